"""The base file of a DiskRowSet: a cfile of kind ``base``.

(column id, "base")     one stream a column, rows in the order of their encoded keys
(LIVE, "base")          which rows exist; absent when all do
(0, "key_index")        the encoded key of the first row of every 1,024 rows
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict

from ..cfile.format import StreamKey
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
