"""Read a chunk: liveness first, then the columns of the filter, then the other columns of the rows that are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..rowset.rowset import RowSet
from ..vectors.arrow import to_arrow
from ..vectors.vector import Vector
from .changes import read_changes
from .chunk import Chunk, ScanRequest
from .selection import ChunkCells, wanted_rows


def read_chunk(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Return the selected rows of a chunk, or changes of them, in row order; None when there are none."""
    if request.changes:
        return read_changes(chunk, request)
    cells = read_cells(chunk, request)
    if cells is None:
        return None
    arrays = [
        to_arrow(vector, column.logical.arrow) for vector, column in zip(cells.columns, request.columns, strict=True)
    ]
    return make_batch(arrays, request.columns, cells.row_count)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows as vectors, one a column of the request."""

    row_count: int
    columns: list[Vector]


def read_cells(chunk: Chunk, request: ScanRequest) -> Cells | None:
    """Return the selected rows of a chunk, in row order; None when there are none."""
    cells = ChunkCells(chunk, request)
    rows = wanted_rows(chunk, request, cells)
    row_count = chunk.last - chunk.first if rows is None else len(rows)
    return Cells(row_count, [cells.at(column.id, rows) for column in request.columns]) if row_count else None


def read_rows(rowset: RowSet, rows: np.ndarray, columns: tuple[ColumnSchema, ...], snapshot: int) -> pa.RecordBatch:
    """Return the given rows (ascending, distinct), whether they live or not."""
    arrays = [to_arrow(rowset.gather(column, rows, snapshot), column.logical.arrow) for column in columns]
    return make_batch(arrays, columns, len(rows))


def make_batch(arrays: list[pa.Array], columns: tuple[ColumnSchema, ...], row_count: int) -> pa.RecordBatch:
    """Return a batch; without columns it still has its number of rows."""
    if not columns:
        return empty_batch(row_count)
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def empty_batch(row_count: int) -> pa.RecordBatch:
    """Return a batch without columns that still has its number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), row_count, [None]))


def schema_of(columns: tuple[ColumnSchema, ...]) -> pa.Schema:
    """Return the Arrow schema of a scan's batches."""
    return pa.schema([column.field for column in columns])
