"""Delta files: a cfile of kind ``redo`` or ``undo`` with three streams for each changed column.

    (column id, "rowid")       ascending
    (column id, "timestamp")   ascending within a row
    (column id, "value")

The zone maps of the rowid stream locate the deltas of a range of rows; those of the timestamps say of which pages a
snapshot sees all or nothing (`pages`). The metadata has the smallest and largest timestamps of the whole file, so that
a snapshot that sees nothing of a file opens no page of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...schemas.errors import CorruptionError
from ...schemas.message import Message
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.stream import StreamReader
from ..cfile.writer import CFileInfo, CFileWriter, StreamWriter
from ..codecs.codec import BLOCK_ROWS
from ..fs.filesystem import FileSystem
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, conformed
from .history import Stamps, within
from .pages import DeltaPages, values_of
from .run import DeltaRun, row_window


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """How the cells of a column are encoded in the files of a rowset, those of deltas or the base."""

    physical: PhysicalType
    encoding: str
    compression: str
    page_rows: int | None = None
    """Rows of a page of base cells; a power of two. None lets the length of the cells decide."""
    nested: str | None = None
    """The type of nested cells, which are taken apart in base files."""


class DeltaFileMetadata(Message, frozen=True, extra="ignore"):
    """The metadata in the footer of a delta file."""

    rowset_id: int
    first_timestamp: int
    last_timestamp: int
    deltas: dict[int, int]
    """The number of deltas by column id."""


class DeltaFileWriter:
    """Writes a delta file: columns one after the other (`add`), or side by side, in one pass over their rows
    (`append`). Memory holds a page of each open stream.

    A context manager, which removes the file unless it was finished.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        file_id: int,
        kind: str,
        rowset_id: int,
        encodings: Mapping[int, ColumnEncoding],
    ) -> None:
        self._writer = CFileWriter(fs, path, file_id, kind)
        self._rowset_id = rowset_id
        self._encodings = encodings
        self._open: dict[int, tuple[StreamWriter, StreamWriter, StreamWriter]] = {}
        self._deltas: dict[int, int] = {}
        self._first, self._last = 1 << 63, 0

    @property
    def is_empty(self) -> bool:
        """Whether there are no deltas yet; do not finish such a file."""
        return not self._deltas

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._writer.size_bytes

    def add(self, column_id: int, pieces: Iterable[DeltaRun]) -> None:
        """Write all deltas of a column, in pieces with ascending rows. A column without deltas is omitted."""
        for piece in pieces:
            self.append(column_id, piece)
        self._end(column_id)

    def append(self, column_id: int, run: DeltaRun) -> None:
        """Write deltas of a column, whose rows are above all earlier ones."""
        if not len(run):
            return
        if column_id not in self._open:
            self._open[column_id] = self._streams_of(column_id)
        values, rowids, timestamps = self._open[column_id]
        values.append(conformed(run.values, self._encodings[column_id].physical))
        rowids.append(FixedVector(run.rowids))
        timestamps.append(FixedVector(run.timestamps))
        self._deltas[column_id] = rowids.row_count
        self._first = min(self._first, int(run.timestamps.min()))
        self._last = max(self._last, int(run.timestamps.max()))

    def finish(self) -> CFileInfo:
        """Write the rest and the footer, and sync the file; the caller syncs the directory."""
        for column_id in list(self._open):
            self._end(column_id)
        deltas = dict(sorted(self._deltas.items()))
        metadata = DeltaFileMetadata(
            rowset_id=self._rowset_id, first_timestamp=self._first, last_timestamp=self._last, deltas=deltas
        )
        return self._writer.finish(metadata.model_dump(mode="json"))

    def abort(self) -> None:
        """Remove the file unless it was finished."""
        self._writer.abort()

    def _streams_of(self, column_id: int) -> tuple[StreamWriter, StreamWriter, StreamWriter]:
        how, new = self._encodings[column_id], self._writer.open_stream
        return (
            new(StreamKey(column_id, "value"), how.physical, how.encoding, how.compression, zone_maps=False),
            new(StreamKey(column_id, "rowid"), PhysicalType.INT32, "auto"),
            new(StreamKey(column_id, "timestamp"), PhysicalType.INT64, "auto"),
        )

    def _end(self, column_id: int) -> None:
        for stream in self._open.pop(column_id, ()):
            stream.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class DeltaFile:
    """An open delta file. Thread safe for readers."""

    def __init__(self, reader: CFileReader, path: str) -> None:
        self._reader = reader
        self._pages: dict[int, DeltaPages] = {}
        self.path = path
        self.file_id = reader.file_id
        self.metadata = DeltaFileMetadata.model_validate(reader.metadata)
        self.first_timestamp = self.metadata.first_timestamp
        self.last_timestamp = self.metadata.last_timestamp
        self.size_bytes = reader.size_bytes
        self._touched: dict[int, np.ndarray] = {}
        """By column: which mini-blocks of rows have deltas; computed on demand."""
        self._check_row_counts()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        file_id: int,
        kind: str,
        rowset_id: int,
        cache: PageCache,
        written_as: int | None = None,
    ) -> DeltaFile:
        """Open ``path``, a file of a given kind (redo or undo) and rowset. A copy of the file ``written_as`` has the
        rowset's number of where it was written.

        Raises:
            CorruptionError: it is not the delta file that was written there.
        """
        reader = CFileReader.open(fs, path, file_id, cache, written_as)
        if reader.kind != kind:
            raise CorruptionError(path, 0, f"this is a file of kind {reader.kind}, not {kind}")
        file = cls(reader, path)
        if written_as is None and file.metadata.rowset_id != rowset_id:
            why = f"these are deltas of rowset {file.metadata.rowset_id}, not {rowset_id}"
            raise CorruptionError(path, 0, why)
        return file

    @property
    def reader(self) -> CFileReader:
        """The file's streams."""
        return self._reader

    @property
    def column_ids(self) -> list[int]:
        """The columns with deltas."""
        return list(self.metadata.deltas)

    def run(self, column_id: int, first_row: int, last_row: int) -> DeltaRun | None:
        """Return the deltas of a column for rows [first_row, last_row), None if there are none."""
        found = self._find(column_id, first_row, last_row)
        if found is None:
            return None
        low, rowids = found
        high = low + len(rowids)
        timestamps = values_of(self._stream(column_id, "timestamp"), low, high)
        return DeltaRun(rowids, timestamps, self._stream(column_id, "value").read(low, high))

    def value_bytes(self, column_id: int) -> int:
        """Return the bytes of the cells of a column's deltas, before any encoding; 0 if it has none."""
        return self._stream(column_id, "value").raw_bytes if column_id in self.metadata.deltas else 0

    def pages(self, column_id: int) -> DeltaPages | None:
        """Return the deltas of a column by pages, None if it has none."""
        pages = self._pages.get(column_id)
        if pages is None and column_id in self.metadata.deltas:
            rowids, timestamps, values = (self._stream(column_id, role) for role in ("rowid", "timestamp", "value"))
            address = self.file_id, column_id
            pages = self._pages[column_id] = DeltaPages(
                self.path, address, (rowids, timestamps, values), self._reader.pages
            )
        return pages

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there may be a delta with ``after`` < timestamp <= ``until``."""
        return self.metadata.last_timestamp > after and self.metadata.first_timestamp <= until

    def touches(self, column_id: int, first_row: int, last_row: int) -> bool:
        """Whether a column has deltas in the mini-blocks of rows [first_row, last_row)."""
        if column_id not in self.metadata.deltas:
            return False
        blocks = self._touched.get(column_id)
        if blocks is None:
            blocks = self._touched[column_id] = self._touched_blocks(column_id)
        return bool(blocks[first_row // BLOCK_ROWS : -(-last_row // BLOCK_ROWS)].any())

    def _touched_blocks(self, column_id: int) -> np.ndarray:
        """Return for each mini-block of rows, from row 0 on, whether the column has deltas in it."""
        stream = self._stream(column_id, "rowid")
        pages = range(0, stream.row_count, stream.page_rows)
        found = [
            np.unique(values_of(stream, at, min(at + stream.page_rows, stream.row_count)) // BLOCK_ROWS) for at in pages
        ]
        blocks = np.zeros(int(found[-1][-1]) + 1, np.bool_)
        for numbers in found:
            blocks[numbers] = True
        return blocks

    def last_change(self, column_id: int) -> int:
        """Return the timestamp of the newest delta of a column; 0 when there is none."""
        pages = self.pages(column_id)
        return pages.last_change if pages else 0

    def stamps(self, column_id: int, first_row: int, last_row: int, after: int, until: int) -> Stamps | None:
        """Return which rows of [first_row, last_row) a column's deltas changed in (after, until], and when; reads no
        values. None if there are none."""
        found = self._find(column_id, first_row, last_row)
        if found is None:
            return None
        low, rowids = found
        timestamps = values_of(self._stream(column_id, "timestamp"), low, low + len(rowids))
        return within(rowids, timestamps, after, until)

    def close(self) -> None:
        """Close the file; memory that views still use stays until they are dropped."""
        self._reader.close()

    def _find(self, column_id: int, first_row: int, last_row: int) -> tuple[int, np.ndarray] | None:
        """Return the position of a column's first delta for rows [first_row, last_row), and the rows of all of them."""
        if column_id not in self.metadata.deltas:
            return None
        rowids = self._stream(column_id, "rowid")
        first, last = _page_span(rowids, first_row, last_row)
        if first == last:
            return None
        found = values_of(rowids, first, last)
        low, high = row_window(found, first_row, last_row)
        return (first + low, found[low:high]) if low < high else None

    def _stream(self, column_id: int, role: str) -> StreamReader:
        return self._reader.stream(StreamKey(column_id, role))

    def _check_row_counts(self) -> None:
        for column_id, count in self.metadata.deltas.items():
            for role in ("rowid", "timestamp", "value"):
                if self._stream(column_id, role).row_count != count:
                    why = f"the {role} stream of column {column_id} does not hold {count} deltas"
                    raise CorruptionError(self.path, 0, why)


def _page_span(rowids: StreamReader, first_row: int, last_row: int) -> tuple[int, int]:
    """Return the range of deltas in the pages whose rowids may lie in [first_row, last_row)."""
    zones = rowids.zone_maps
    first = next((page for page, zone in enumerate(zones) if zone.max is None or zone.max >= first_row), len(zones))
    last = next((page for page, zone in enumerate(zones) if zone.min is not None and zone.min >= last_row), len(zones))
    start = min(first * rowids.page_rows, rowids.row_count)
    return start, max(min(last * rowids.page_rows, rowids.row_count), start)
