"""Rows of a rowset as a record batch, for point reads and scans alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.table.column import ColumnSchema
from ..vectors.arrow import to_arrow
from .rowset import RowSet


def read_rows(rowset: RowSet, rows: np.ndarray, columns: tuple[ColumnSchema, ...], snapshot: int) -> pa.RecordBatch:
    """Return the given rows of a rowset (ascending, distinct), alive or dead."""
    arrays = [to_arrow(rowset.gather(column, rows, snapshot), column.logical.arrow) for column in columns]
    return make_batch(arrays, columns, len(rows))


def make_batch(arrays: list[pa.Array], columns: tuple[ColumnSchema, ...], row_count: int) -> pa.RecordBatch:
    """Return rows of a rowset as a batch; without columns it still has its number of rows."""
    if not columns:
        return empty_batch(row_count)
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def empty_batch(row_count: int) -> pa.RecordBatch:
    """Return rows of a rowset as a batch without columns that still has its number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), row_count, [None]))


def schema_of(columns: tuple[ColumnSchema, ...]) -> pa.Schema:
    """Return the Arrow schema of batches of a rowset's rows."""
    return pa.schema([column.field for column in columns])
