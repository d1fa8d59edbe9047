"""Write a cfile, front to back, with one page in memory."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ...schemas.errors import InvalidArgumentError
from ..codecs.codec import Codec
from ..codecs.compression import compression_code
from ..codecs.registry import codec_by_name
from ..fs.filesystem import FileSystem
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector
from .cutter import cell_bytes, choose_page_rows, cut_pages
from .encoder import stream_encoder
from .footer import Footer, PageEntry, StreamEntry, pack_footer, page_entry
from .format import FileHeader, StreamKey
from .page import EncodedPage
from .zone_map import ZoneMap, zone_map_of


@dataclass(frozen=True, slots=True)
class CFileInfo:
    """What whoever refers to a file keeps of it, to know it again."""

    file_id: int
    size_bytes: int
    crc: int
    """The crc32 of the whole file."""


class CFileWriter:
    """Writes the streams of one file, one after the other, then its footer.

    Not for concurrent use. Memory stays at one page and, for a dictionary stream, its dictionary. After an exception
    of any method the file is worthless and only ``abort`` may be called; as a context manager, a writer that is
    left without ``finish`` aborts by itself.
    """

    def __init__(self, fs: FileSystem, path: str, file_id: int, kind: str) -> None:
        """Create the file ``path``, which must not exist. ``kind`` is "base", "redo" or "undo"."""
        self.path = path
        self.file_id = file_id
        self.kind = kind
        self._fs = fs
        self._streams: dict[StreamKey, StreamEntry] = {}
        self._crc = 0
        self._file = fs.create(path)
        self._is_open = True
        self._append([FileHeader(kind, file_id).pack()])

    def write_stream(
        self,
        key: StreamKey,
        physical: PhysicalType,
        vectors: Iterable[Vector],
        encoding: str,
        compression: str = "none",
        zone_maps: bool = True,
    ) -> None:
        """Write the cells of ``vectors``, chunked in any way, as the stream ``key``.

        Raises InvalidArgumentError when ``encoding`` or ``compression`` is unknown or does not fit ``physical``, or
        when the cells of one page take more than ``MAX_PAGE_BYTES``.
        """
        key = StreamKey(*key)
        assert key not in self._streams, f"{key} is written twice"
        codec, compression_number = _encoding_of(physical, encoding, compression)
        page_rows, vectors = choose_page_rows(vectors, physical)
        encoder = stream_encoder(physical, codec, compression_number, page_rows)
        pages: list[PageEntry] = []
        raw_bytes = 0
        for vector in cut_pages(vectors, page_rows):
            raw_bytes += cell_bytes(vector)
            page, cells = encoder.encode(vector)
            pages.append(self._append_page(page, zone_map_of(cells, physical), zone_maps))
        dictionary = encoder.dictionary_page()
        self._streams[key] = StreamEntry(
            column_id=key.column_id,
            role=key.role,
            physical=physical,
            row_count=sum(page.row_count for page in pages),
            page_rows=page_rows,
            raw_bytes=raw_bytes,
            encodings=encoder.encodings,
            pages=pages,
            dictionary=self._append_dictionary(dictionary) if dictionary else None,
        )

    def finish(self, metadata: dict[str, Any]) -> CFileInfo:
        """Write the footer with the caller's ``metadata`` (JSON values), sync and close the file.

        The name of the file is durable only after the CALLER has synced its directory.
        """
        footer = Footer(
            file_id=self.file_id,
            kind=self.kind,
            streams=list(self._streams.values()),
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    def _append_page(self, page: EncodedPage, zone: ZoneMap, keep_zone: bool) -> PageEntry:
        offset = self._file.size
        self._append(page.parts(self.file_id, offset))
        return page_entry(offset, page.length, zone, keep_zone)

    def _append_dictionary(self, page: EncodedPage) -> PageEntry:
        offset = self._file.size
        self._append(page.parts(self.file_id, offset))
        return PageEntry(offset=offset, length=page.length, row_count=page.header.row_count)

    def _append(self, parts: list[bytes | memoryview]) -> None:
        for part in parts:
            self._crc = zlib.crc32(part, self._crc)
        self._file.pwrite(self._file.size, *parts)


def _encoding_of(physical: PhysicalType, encoding: str, compression: str) -> tuple[Codec, int]:
    """Return (codec, compression code) by their names."""
    try:
        codec, code = codec_by_name(encoding), compression_code(compression)
    except KeyError as unknown:
        raise InvalidArgumentError(f"there is no encoding or compression {unknown}") from None
    if not codec.supports(physical):
        raise InvalidArgumentError(f"encoding {encoding} does not fit {physical} cells")
    return codec, code
