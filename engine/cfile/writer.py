"""Writes a cfile, front to back, with one page of every open stream in memory.

The pages of streams that are written at once are in the order in which they filled up; the footer has their positions.
So rows can be written in one pass over all their columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from ...schemas.cells.encoding import AUTO
from ...schemas.errors import InvalidArgumentError
from ..codecs.checksum import crc32
from ..codecs.codec import BLOCK_ROWS, PAGE_ROWS, Codec
from ..codecs.compression import compression_code
from ..codecs.registry import codec_by_code, codec_by_name
from ..fs.filesystem import FileSystem
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector
from .cutter import PageCutter, cell_bytes
from .encoder import StreamEncoder, stream_encoder
from .footer import Footer, PageEntry, StreamEntry, features_of, pack_footer, page_entry
from .format import FileHeader, StreamKey
from .page import EncodedPage
from .stream import StreamReader
from .zone_map import zone_map_of

WIDE_PAGE_BYTES = 1536 * 1024
"""A page of PAGE_ROWS rows that is longer, as stored, makes the pages of its stream narrow."""
NARROW_PAGE_BYTES = 256 * 1024
"""About so long are the pages of such a stream: whoever wants one row reads and checks a page of each column."""


@dataclass(frozen=True, slots=True)
class CFileInfo:
    """The identity of a written cfile, for those that refer to it."""

    file_id: int
    size_bytes: int
    crc: int
    """The crc32 of the whole file."""


class CFileWriter:
    """Writes the streams of one cfile, one after the other or side by side, then its footer.

    Not thread safe. Memory holds one page of each open stream and, for a dictionary stream, its dictionary. After an
    exception of any method the file is worthless and only ``abort`` may be called; a context manager, which aborts
    unless the file was finished.
    """

    def __init__(self, fs: FileSystem, path: str, file_id: int, kind: str) -> None:
        """Create the file ``path``, which must not exist. ``kind`` is "base", "redo" or "undo"."""
        self.path = path
        self.file_id = file_id
        self.kind = kind
        self._fs = fs
        self._keys: set[StreamKey] = set()
        self._streams: list[StreamEntry] = []
        self._crc = 0
        self._file = fs.create(path)
        self._is_open = True
        try:
            self._append([FileHeader(kind, file_id).pack()])
        except BaseException:
            self.abort()
            raise

    def open_stream(
        self,
        key: StreamKey,
        physical: PhysicalType,
        encoding: str,
        compression: str = "none",
        zone_maps: bool = True,
        page_rows: int | None = PAGE_ROWS,
        nested: str | None = None,
    ) -> StreamWriter:
        """Begin the stream ``key``; any number may be open at once, and each must be finished before the file.

        ``page_rows``, a power of two up to ``PAGE_ROWS``, is the number of rows of its pages; None lets the first page
        decide: PAGE_ROWS, or fewer if its cells are long. ``nested`` is the type of nested cells, which have no order.

        Raises InvalidArgumentError when ``encoding`` or ``compression`` is unknown or does not fit ``physical``.
        """
        key = StreamKey(*key)
        assert key not in self._keys, f"{key} is written twice"
        codec, compression_number = _encoding_of(physical, encoding, compression)
        self._keys.add(key)
        return StreamWriter(self, key, physical, codec, compression_number, zone_maps, page_rows, nested)

    def write_stream(
        self,
        key: StreamKey,
        physical: PhysicalType,
        vectors: Iterable[Vector],
        encoding: str,
        compression: str = "none",
        zone_maps: bool = True,
        page_rows: int | None = PAGE_ROWS,
        nested: str | None = None,
    ) -> None:
        """Write the cells of ``vectors``, chunked in any way, as the stream ``key``.

        Raises InvalidArgumentError when ``encoding`` or ``compression`` is unknown or does not fit ``physical``, or
        when one cell takes more than ``MAX_PAGE_BYTES``.
        """
        stream = self.open_stream(key, physical, encoding, compression, zone_maps, page_rows, nested)
        for vector in vectors:
            stream.append(vector)
        stream.finish()

    def finish(self, metadata: dict[str, Any]) -> CFileInfo:
        """Write the footer with the caller's ``metadata`` (JSON values), sync and close the file.

        The name of the file becomes durable only when the CALLER syncs its directory.
        """
        assert len(self._streams) == len(self._keys), "every stream is finished before its file"
        footer = Footer(
            file_id=self.file_id,
            kind=self.kind,
            required_features=features_of(self._streams),
            streams=self._streams,
            metadata=metadata,
        )
        self._append([pack_footer(footer, self._file.size)])
        self._file.sync()
        size_bytes = self._file.size
        self._is_open = False
        self._file.close()
        return CFileInfo(self.file_id, size_bytes, self._crc)

    def abort(self) -> None:
        """Close and remove the file. Does nothing after ``finish`` or ``abort``."""
        if self._is_open:
            self._is_open = False
            try:
                self._file.close()
            finally:
                self._fs.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.size

    def append_page(self, page: EncodedPage) -> int:
        """Write a page of an open stream; return its offset."""
        offset = self._file.size
        self._append(page.parts(self.file_id, offset))
        return offset

    def add_stream(self, entry: StreamEntry) -> None:
        """Add a stream to the footer, after all its pages are written."""
        self._streams.append(entry)

    def _append(self, parts: list[bytes | memoryview]) -> None:
        for part in parts:
            self._crc = crc32(part, self._crc)
        self._file.pwrite(self._file.size, *parts)


class StreamWriter:
    """One stream of a cfile that is being written; made by ``CFileWriter.open_stream``."""

    def __init__(
        self,
        file: CFileWriter,
        key: StreamKey,
        physical: PhysicalType,
        codec: Codec | None,
        compression: int,
        zone_maps: bool,
        page_rows: int | None,
        nested: str | None,
    ) -> None:
        known = page_rows or PAGE_ROWS
        assert 0 < known <= PAGE_ROWS and not known & (known - 1), "checked by the schema"
        self.row_count = 0
        """Cells appended."""
        self.raw_bytes = 0
        """Their bytes, without offsets and before any encoding."""
        self._file = file
        self._key = key
        self._physical = physical
        self._codec = codec
        self._compression = compression
        self._zone_maps = zone_maps
        self._page_rows = page_rows
        self._nested = nested
        self._cutter = PageCutter(known)
        self._encoder = self._new_encoder()
        self._pages: list[PageEntry] = []

    def append(self, vector: Vector) -> None:
        """Add any number of cells; pages are written as they fill.

        Raises InvalidArgumentError if one cell takes more than ``MAX_PAGE_BYTES``.
        """
        self.row_count += len(vector)
        self.raw_bytes += cell_bytes(vector)
        for page in self._cutter.add(vector):
            self._write(page, is_full=True)

    def copy_rows(self, stream: StreamReader, first: int) -> bool:
        """Add PAGE_ROWS rows of another stream, from its row ``first`` on, page by page and byte for byte.

        Returns False, and adds nothing, if they cannot be pages of this one: they are not whole pages, cells are
        pending, or their type, rows, encoding, compression or dictionary differ.

        Their bytes before encoding are estimated as their share of their stream's. Raises CorruptionError if one is
        damaged.
        """
        rows = stream.page_rows
        if stream.page_shift is None or first % rows or first + PAGE_ROWS > stream.row_count:
            return False
        if self._page_rows not in (None, rows) or not self._cutter.may_skip():
            return False
        numbers = range(stream.page_of(first), stream.page_of(first + PAGE_ROWS - 1) + 1)
        entry = stream.entry.pages[numbers[0]]
        if self._page_rows is None and not _are_fitting(rows, entry.length):
            return False
        if not self._copy_page(stream, numbers[0]):
            return False
        self._page_rows = rows
        self._cutter.narrow(rows)
        for number in numbers[1:]:
            if not (self._cutter.may_skip() and self._copy_page(stream, number)):
                start = stream.first_row(number)
                self.append(stream.read(start, start + rows))
        return True

    def _copy_page(self, stream: StreamReader, number: int) -> bool:
        entry = stream.entry.pages[number]
        if (stream.physical, entry.zone is not None) != (self._physical, self._zone_maps):
            return False
        page = stream.stored_page(number).encoded
        raw_bytes = stream.raw_bytes * entry.row_count // stream.row_count
        if page.header.compression != self._compression:
            return False
        if not self._encoder.copies(codec_by_code(page.header.encoding).name, stream.dictionary()):
            self._encoder = self._encoder if self._pages else self._new_encoder()  # it may have begun to adopt
            return False
        self.row_count += entry.row_count
        self.raw_bytes += raw_bytes
        update: dict[str, Any] = {"offset": self._file.append_page(page)}
        if stream.entry.nested != self._nested:
            update["leaves"] = ()
        self._pages.append(entry.model_copy(update=update))
        return True

    def finish(self) -> None:
        """Write the rest, and the dictionary if there is one. Nothing may be appended any more."""
        for page in self._cutter.rest():
            self._write(page, is_full=False)
        dictionary = self._encoder.dictionary_page()
        page_rows = self._page_rows or PAGE_ROWS
        rows = [page.row_count for page in self._pages]
        is_even = all(count == page_rows for count in rows[:-1]) and max(rows[-1:], default=0) <= page_rows
        self._file.add_stream(
            StreamEntry(
                column_id=self._key.column_id,
                role=self._key.role,
                physical=self._physical,
                row_count=self.row_count,
                page_rows=page_rows if is_even else 1,
                raw_bytes=self.raw_bytes,
                encodings=self._encoder.encodings,
                pages=self._pages,
                dictionary=self._write_dictionary(dictionary) if dictionary else None,
                nested=self._nested if self._nested and any(page.leaves for page in self._pages) else None,
            )
        )

    def _new_encoder(self) -> StreamEncoder:
        return stream_encoder(self._physical, self._codec, self._compression, self._nested)

    def _write(self, vector: Vector, is_full: bool) -> None:
        """Write a page; the first one may turn out to be several."""
        page, cells = self._encoder.encode(vector, is_full)
        if self._page_rows is None:
            self._page_rows = _fitting_rows(page.length, len(vector))
            self._cutter.narrow(self._page_rows)
            if self._page_rows < len(vector):
                self._write_narrow(vector, is_full)
                return
        self._add(page, cells)

    def _write_narrow(self, vector: Vector, is_full: bool) -> None:
        """Begin the stream with pages of ``_page_rows``, and go on with such."""
        self._encoder.restart()
        for page in self._cutter.add(vector):
            self._write(page, is_full=True)
        if not is_full:
            for page in self._cutter.rest():
                self._write(page, is_full=False)

    def _add(self, page: EncodedPage, cells: Vector) -> None:
        zone = zone_map_of(cells, self._physical)
        entry = page_entry(self._file.append_page(page), page.length, zone, self._zone_maps, page.leaves)
        self._pages.append(entry)

    def _write_dictionary(self, page: EncodedPage) -> PageEntry:
        offset = self._file.append_page(page)
        return PageEntry(offset=offset, length=page.length, row_count=page.header.row_count)


def _fitting_rows(length: int, row_count: int) -> int:
    """Return the rows of a stream's pages, if so many rows take a page of ``length`` bytes."""
    rows = PAGE_ROWS
    while length > WIDE_PAGE_BYTES and rows > BLOCK_ROWS and rows * length > NARROW_PAGE_BYTES * row_count:
        rows //= 2
    return rows


def _are_fitting(rows: int, length: int) -> bool:
    """Whether a stream may go on with pages of so many rows, of which one takes ``length`` bytes."""
    if rows == PAGE_ROWS:
        return length <= WIDE_PAGE_BYTES
    return 4 * length > NARROW_PAGE_BYTES and (rows == BLOCK_ROWS or length <= 2 * NARROW_PAGE_BYTES)


def _encoding_of(physical: PhysicalType, encoding: str, compression: str) -> tuple[Codec | None, int]:
    """Return the codec, None to choose one for each page, and the compression code for two names."""
    try:
        code = compression_code(compression)
        if encoding == AUTO:
            return None, code
        codec = codec_by_name(encoding)
    except KeyError as unknown:
        raise InvalidArgumentError(f"there is no encoding or compression {unknown}") from None
    if not codec.supports(physical):
        raise InvalidArgumentError(f"encoding {encoding} does not fit {physical} cells")
    return codec, code
