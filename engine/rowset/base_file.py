"""The base file of a DiskRowSet: a cfile of kind ``base``.

(column id, "base")     one stream a column, rows in the order of their encoded keys
(LIVE, "base")          which rows exist; absent when all do
(0, "key_index")        the encoded key of the first row of every 1,024 rows

A major delta compaction rewrites some columns into a base file of their own, which has no more than their streams and
says in its metadata to which rowset it belongs and which moment it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from ...schemas.errors import CorruptionError
from ..cfile.cache import PageCache
from ..cfile.format import StreamKey
from ..cfile.reader import CFileReader
from ..cfile.writer import CFileInfo, CFileWriter
from ..codecs.codec import BLOCK_ROWS
from ..delta import LIVE
from ..delta.file import ColumnEncoding
from ..fs.filesystem import FileSystem
from ..vectors.keys import KeyVector, key_bytes, keys_as_bytes, take_keys
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector

KEY_INDEX = StreamKey(LIVE, "key_index")


class RowsetMetadata(BaseModel):
    """What the footer of a base file says of the rowset. Keys are encoded, in hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    row_count: int
    min_key: str
    max_key: str
    base_timestamp: int
    schema_version: int


class ColumnsMetadata(BaseModel):
    """What the footer of a base file with some columns of a rowset says."""

    model_config = ConfigDict(frozen=True, extra="ignore")

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
    def open(cls, fs: FileSystem, path: str, file_id: int, cache: PageCache) -> ColumnsFile:
        """Open ``path``. Raises CorruptionError when it is not what was written there."""
        reader = CFileReader.open(fs, path, file_id, cache)
        metadata = ColumnsMetadata.model_validate(reader.metadata)
        for key in reader.streams():
            if reader.stream(key).row_count != metadata.row_count:
                raise CorruptionError(path, 0, f"stream {key} does not hold {metadata.row_count} rows")
        return cls(file_id, path, reader, metadata)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return self.reader.size_bytes

    def close(self) -> None:
        """Drop its pages from the cache; whoever still reads it may go on."""
        self.reader.close()


def write_columns_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    columns: Mapping[int, Iterable[Vector]],
    encodings: Mapping[int, ColumnEncoding],
    metadata: ColumnsMetadata,
) -> CFileInfo:
    """Write columns, by id and chunked in any way, as one base file and sync it; the caller syncs the directory."""
    with CFileWriter(fs, path, file_id, "base") as writer:
        for column_id, cells in sorted(columns.items()):
            how = encodings[column_id]
            writer.write_stream(StreamKey(column_id, "base"), how.physical, cells, how.encoding, how.compression)
        return writer.finish(metadata.model_dump(mode="json"))


def write_base_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    cells: Mapping[int, Vector],
    alive: np.ndarray | None,
    keys: KeyVector,
    encodings: Mapping[int, ColumnEncoding],
    base_timestamp: int,
    schema_version: int,
) -> CFileInfo:
    """Write rows that stand in key order as one file and sync it; the caller syncs the directory.

    ``cells`` and ``encodings`` go by column id; ``alive`` is None when every row exists.
    """
    row_count = len(keys)
    metadata = RowsetMetadata(
        row_count=row_count,
        min_key=key_bytes(keys, 0).hex(),
        max_key=key_bytes(keys, row_count - 1).hex(),
        base_timestamp=base_timestamp,
        schema_version=schema_version,
    )
    with CFileWriter(fs, path, file_id, "base") as writer:
        for column_id, vector in sorted(cells.items()):
            how = encodings[column_id]
            key = StreamKey(column_id, "base")
            writer.write_stream(key, how.physical, [vector], how.encoding, how.compression)
        if alive is not None and not alive.all():
            live = FixedVector(alive.astype(np.uint8))
            writer.write_stream(StreamKey(LIVE, "base"), PhysicalType.BOOL, [live], "run_length")
        firsts = keys_as_bytes(take_keys(keys, np.arange(0, row_count, BLOCK_ROWS, dtype=np.int64)))
        writer.write_stream(KEY_INDEX, PhysicalType.BYTES, [firsts], "plain", zone_maps=False)
        return writer.finish(metadata.model_dump(mode="json"))
