"""Finds the rows of a built file whose keys the table already has, and writes the file without them.

One key is in one row of one rowset. So a file may only be attached with keys that no rowset of the tablet has. An
imported row with an existing key becomes an ordinary change of that row, in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ....schemas.table.table import TableSchema
from ...fs.filesystem import FileSystem
from ...manifest import files
from ...rowset import steps
from ...rowset.base_file import BaseFileWriter
from ...rowset.diskrowset import DiskRowSet
from ...rowset.rowset import RowSet
from ...tablet.tablet import Tablet
from ...vectors.arrow import to_arrow
from ...vectors.keys.keys import hash_keys, take_keys

_KEYS_AT_ONCE = 1 << 14
"""Keys to look up before the write lock is released."""


def existing_rows(tablet: Tablet, rowset: DiskRowSet, now: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of an imported file (int64, ascending) whose keys are in the tablet now, and whether they are
    alive there at the moment ``now``.

    Rows outside the key ranges of all rowsets are skipped.
    """
    found: list[np.ndarray] = [np.empty(0, np.int64)]
    living: list[np.ndarray] = [np.empty(0, np.bool_)]
    for first, last in _doubtful(tablet, rowset):
        for start in range(first, last, _KEYS_AT_ONCE):
            keys = rowset.keys_in(start, min(start + _KEYS_AT_ONCE, last))
            hashes = hash_keys(keys)
            with tablet.write_lock:
                locations, alive = tablet.find_at(keys, hashes, now)
            found.append(np.flatnonzero(locations >= 0) + start)
            living.append(alive[locations >= 0])
    return np.concatenate(found), np.concatenate(living)


def _doubtful(tablet: Tablet, rowset: DiskRowSet) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, ascending, that are within the key range of a rowset."""
    with tablet.write_lock:
        version = tablet.version
    ranges = sorted(_range_in(rowset, other) for other in version.rowsets() if len(other))
    done = 0
    for first, last in ranges:
        if max(first, done) < last:
            yield max(first, done), last
            done = last


def _range_in(rowset: DiskRowSet, other: RowSet) -> tuple[int, int]:
    if not isinstance(other, DiskRowSet):
        return 0, len(rowset)
    return rowset.row_range(other.min_key, other.max_key + b"\0")


def rows_at(rowset: DiskRowSet, schema: TableSchema, rows: np.ndarray) -> pa.RecordBatch:
    """Return all columns of rows of an imported file, named by id."""
    arrays = [to_arrow(rowset.base_at(column, rows), column.logical.arrow) for column in schema.columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in schema.columns])


def write_without(
    rowset: DiskRowSet, gone: np.ndarray, schema: TableSchema, fs: FileSystem, path: str, file_id: int
) -> None:
    """Write the rows of an imported file except ``gone``, which are not all, as another file, and sync it."""
    kept = np.ones(len(rowset), np.bool_)
    kept[gone] = False
    encodings = files.encodings(schema)
    writer = BaseFileWriter(fs, path, file_id, encodings, [column.id for column in schema.columns], schema.row_column)
    try:
        count = steps.rows_of([(rowset, ())], schema.row_column, steps.BYTES_AT_ONCE)
        for first in range(0, len(rowset), count):
            last = min(first + count, len(rowset))
            rows = np.flatnonzero(kept[first:last])
            if not len(rows):
                continue
            for column in schema.columns:
                writer.append(column.id, rowset.base(column, first, last).take(rows))
            writer.end_run(take_keys(rowset.keys_in(first, last), rows), np.ones(len(rows), np.bool_))
        writer.finish(0, schema.version)
    finally:
        writer.abort()
