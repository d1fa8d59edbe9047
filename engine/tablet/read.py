"""Read a chunk: liveness first, then the columns of the filter, then the other columns of the rows that are left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..rowset.rowset import RowSet
from ..vectors.arrow import to_arrow
from .changes import read_changes
from .chunk import Chunk, ScanRequest
from .selection import ChunkCells, wanted_rows


def read_chunk(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Return the selected rows of a chunk, or changes of them, in row order; None when there are none."""
    if request.changes:
        return read_changes(chunk, request)
    cells = ChunkCells(chunk, request)
    rows = wanted_rows(chunk, request, cells)
    row_count = chunk.last - chunk.first if rows is None else len(rows)
    if not row_count:
        return None
    arrays = [to_arrow(cells.at(column.id, rows), column.logical.arrow) for column in request.columns]
    return make_batch(arrays, request.columns, row_count)


def read_rows(rowset: RowSet, rows: np.ndarray, columns: tuple[ColumnSchema, ...], snapshot: int) -> pa.RecordBatch:
    """Return the given rows (ascending, distinct), whether they live or not."""
    arrays = [to_arrow(rowset.gather(column, rows, snapshot), column.logical.arrow) for column in columns]
    return make_batch(arrays, columns, len(rows))


def make_batch(arrays: list[pa.Array], columns: tuple[ColumnSchema, ...], row_count: int) -> pa.RecordBatch:
    """Return a batch; without columns it still has its number of rows."""
    if not columns:
        empty = pa.Array.from_buffers(pa.struct([]), row_count, [None])
        return pa.RecordBatch.from_struct_array(empty)
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def schema_of(columns: tuple[ColumnSchema, ...]) -> pa.Schema:
    """Return the Arrow schema of a scan's batches."""
    return pa.schema([column.field for column in columns])
