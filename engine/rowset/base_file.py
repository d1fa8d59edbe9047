"""The base file of a DiskRowSet: a cfile of kind ``base``.

(column id, "base")     one stream a column, rows in the order of their encoded keys
(LIVE, "base")          the liveness of rows; absent if all are alive
(LIVE, "row")           each row once more, in row encoding (`codecs.row`), if the table has the option row_column
(0, "key_index")        the encoded key of the first row of every 1,024 rows
(0, "key_filter")       a Bloom filter of the keys (`key_filter`)

A major delta compaction rewrites some columns into a base file of their own, which has only their streams. Its metadata
names its rowset and the timestamp that it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import CorruptionError
from ...schemas.message import Message
from ...schemas.table.table import TableSchema
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.stream import StreamReader
from ..cfile.writer import CFileInfo, CFileWriter, StreamWriter
from ..codecs.codec import BLOCK_ROWS
from ..codecs.row import encode as encode_rows
from ..delta import LIVE
from ..delta.file import ColumnEncoding
from ..fs.filesystem import FileSystem
from ..vectors.keys.keys import KeyVector, hash_keys, key_bytes, keys_as_bytes, take_keys
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector
from .key_filter import KEY_FILTER, SPLIT_BLOCK, filter_cells

_ROWS_BYTES_AT_ONCE = 16 << 20
_LONG_ROW_BYTES = 64 << 20
"""Longer rows are not there as wholes: their cells fit into pages of their own, and all of them into none."""
_NO_ROW = BytesVector(np.zeros(2, np.int32), np.empty(0, np.uint8))
KEY_INDEX = StreamKey(LIVE, "key_index")
ROWS = StreamKey(LIVE, "row")


class RowsetMetadata(Message, frozen=True, extra="ignore"):
    """The rowset's metadata in the footer of a base file. Keys are encoded, in hexadecimal."""

    row_count: int
    min_key: str
    max_key: str
    base_timestamp: int
    schema_version: int
    key_filter: int = 0
    """The kind of key filter (`key_filter`); 0 for none."""


class ColumnsMetadata(Message, frozen=True, extra="ignore"):
    """The metadata in the footer of a base file with some columns of a rowset."""

    rowset_id: int
    row_count: int
    base_timestamp: int


@dataclass(frozen=True, slots=True, eq=False)
class ColumnsFile:
    """An open base file with some columns of a rowset, as they were at its base timestamp."""

    file_id: int
    path: str
    reader: CFileReader
    metadata: ColumnsMetadata

    @classmethod
    def open(
        cls, fs: FileSystem, path: str, file_id: int, cache: PageCache, written_as: int | None = None
    ) -> ColumnsFile:
        """Open ``path``; see CFileReader for ``written_as``. Raises CorruptionError when it is not what was written
        there."""
        reader = CFileReader.open(fs, path, file_id, cache, written_as)
        metadata = ColumnsMetadata.model_validate(reader.metadata)
        for key in reader.streams():
            if reader.stream(key).row_count != metadata.row_count:
                raise CorruptionError(path, 0, f"stream {key} does not have {metadata.row_count} rows")
        return cls(file_id, path, reader, metadata)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return self.reader.size_bytes

    def close(self) -> None:
        """Drop its pages from the cache; present readers may continue."""
        self.reader.close()


def write_columns_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    columns: Mapping[int, Iterable[Vector]],
    encodings: Mapping[int, ColumnEncoding],
    metadata: ColumnsMetadata,
) -> CFileInfo:
    """Write columns of a rowset, by id and chunked in any way, as one base file and sync it; the caller syncs the
    directory."""
    with CFileWriter(fs, path, file_id, "base") as writer:
        for column_id, cells in sorted(columns.items()):
            how = encodings[column_id]
            key, page_rows = StreamKey(column_id, "base"), how.page_rows
            writer.write_stream(
                key, how.physical, cells, how.encoding, how.compression, page_rows=page_rows, nested=how.nested
            )
        return writer.finish(metadata.model_dump(mode="json"))


class BaseFileWriter:
    """Writes the base file of a rowset in one pass over its rows, which come in key order.

    For each run of rows, ``append`` the cells of every column, then ``end_run``. Memory holds a page of each column,
    and 9 bytes a row; with whole rows the cells of a run, too. Call ``abort`` unless it was finished.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        file_id: int,
        encodings: Mapping[int, ColumnEncoding],
        column_ids: Iterable[int],
        row_column: bool = False,
    ) -> None:
        """With ``row_column`` the file has whole rows, too."""
        self.row_count = 0
        """Rows of the runs that have ended."""
        self._writer = CFileWriter(fs, path, file_id, "base")
        self._streams = {column_id: self._open(column_id, encodings[column_id]) for column_id in sorted(column_ids)}
        self._rows: StreamWriter | None = None
        self._run: dict[int, Vector] = {}
        """The cells of the run, by column, for its rows."""
        if row_column:
            self._rows = self._writer.open_stream(ROWS, PhysicalType.BYTES, "plain", "none", False, None)
        self._alive: list[np.ndarray] = []
        self._hashes: list[np.ndarray] = []
        self._block_keys: list[Vector] = []
        self._min_key = self._max_key = b""

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._writer.size_bytes

    def append(self, column_id: int, cells: Vector) -> None:
        """Add the cells of a column for the run."""
        self._streams[column_id].append(cells)
        if self._rows:
            self._run[column_id] = cells

    def copy_rows(self, column_id: int, stream: StreamReader, first: int) -> bool:
        """Copy the encoded pages of PAGE_ROWS rows of a stream, from row ``first`` on, instead of appending cells.

        Returns False if that is not possible."""
        return self._rows is None and self._streams[column_id].copy_rows(stream, first)

    def end_run(self, keys: KeyVector, alive: np.ndarray) -> None:
        """End a run of rows with these encoded keys and liveness; every column has their cells."""
        blocks = np.arange(-self.row_count % BLOCK_ROWS, len(keys), BLOCK_ROWS, dtype=np.int64)
        self._block_keys.append(keys_as_bytes(take_keys(keys, blocks)))
        self._min_key = self._min_key if self.row_count else key_bytes(keys, 0)
        self._max_key = key_bytes(keys, len(keys) - 1)
        self._alive.append(alive)
        self._hashes.append(hash_keys(keys))
        self.row_count += len(keys)
        if self._rows:
            self._append_rows(self._rows, len(keys))

    def _append_rows(self, rows: StreamWriter, count: int) -> None:
        """Add the rows of a run as wholes, some at a time: they may be long."""
        size = sum(_decoded_bytes(cells) for cells in self._run.values())
        step = max(count * _ROWS_BYTES_AT_ONCE // max(size, _ROWS_BYTES_AT_ONCE), 1)
        for first in range(0, count, step):
            last = min(first + step, count)
            part = {column_id: cells.slice(first, last) for column_id, cells in self._run.items()}
            if sum(map(_decoded_bytes, part.values())) <= _LONG_ROW_BYTES:
                rows.append(encode_rows(part, last - first))
                continue
            for row in range(last - first):
                alone = {column_id: cells.slice(row, row + 1) for column_id, cells in part.items()}
                is_long = sum(map(_decoded_bytes, alone.values())) > _LONG_ROW_BYTES
                rows.append(_NO_ROW if is_long else encode_rows(alone, 1))
        self._run.clear()

    def finish(self, base_timestamp: int, schema_version: int) -> np.ndarray:
        """Write the rest, sync the file and return the liveness of all rows; the caller syncs the directory."""
        for stream in [*self._streams.values(), *([self._rows] if self._rows else ())]:
            stream.finish()
        alive = np.concatenate(self._alive)
        if not alive.all():
            live = FixedVector(alive.astype(np.uint8))
            self._writer.write_stream(StreamKey(LIVE, "base"), PhysicalType.BOOL, [live], "run_length")
        self._writer.write_stream(KEY_INDEX, PhysicalType.BYTES, self._block_keys, "plain", zone_maps=False)
        key_filter = filter_cells(self._hashes)
        self._writer.write_stream(KEY_FILTER, PhysicalType.INT64, [key_filter], "plain", zone_maps=False)
        metadata = RowsetMetadata(
            row_count=self.row_count,
            min_key=self._min_key.hex(),
            max_key=self._max_key.hex(),
            base_timestamp=base_timestamp,
            schema_version=schema_version,
            key_filter=SPLIT_BLOCK,
        )
        self._writer.finish(metadata.model_dump(mode="json"))
        return alive

    def abort(self) -> None:
        """Remove the file unless it was finished."""
        self._writer.abort()

    def _open(self, column_id: int, how: ColumnEncoding) -> StreamWriter:
        return self._writer.open_stream(
            StreamKey(column_id, "base"),
            how.physical,
            how.encoding,
            how.compression,
            page_rows=how.page_rows,
            nested=how.nested,
        )


def _decoded_bytes(cells: Vector) -> int:
    """Return the bytes of cells, each of a dictionary as often as it occurs."""
    if isinstance(cells, DictionaryVector):
        return int(cells.dictionary.lengths[cells.codes].sum(dtype=np.int64))
    return cells.nbytes


def write_base_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    cells: Mapping[int, Vector],
    alive: np.ndarray | None,
    keys: KeyVector,
    encodings: Mapping[int, ColumnEncoding],
    base_timestamp: int,
    schema: TableSchema,
) -> None:
    """Write the rows of a rowset in key order as its base file and sync it; the caller syncs the directory.

    ``cells`` and ``encodings`` are by column id; ``alive`` is None if every row is alive.
    """
    writer = BaseFileWriter(fs, path, file_id, encodings, cells, schema.row_column)
    try:
        for column_id, vector in cells.items():
            writer.append(column_id, vector)
        writer.end_run(keys, np.ones(len(keys), np.bool_) if alive is None else alive)
        writer.finish(base_timestamp, schema.version)
    finally:
        writer.abort()
