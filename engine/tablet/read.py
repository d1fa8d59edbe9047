"""Read a chunk: liveness first, then the columns of the filter, then the other columns of the rows that are left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..filter.evaluate import select
from ..rowset.rowset import RowSet
from ..vectors.arrow import to_arrow
from ..vectors.vector import Vector
from .changes import read_changes
from .chunk import Chunk, ScanRequest

_GATHER_BELOW = 1 / 8
"""Rows are fetched one by one where fewer than this share of a chunk is wanted, else the chunk is decoded whole."""


def read_chunk(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Return the selected rows of a chunk, or changes of them, in row order; None when there are none."""
    if request.changes:
        return read_changes(chunk, request)
    selected, known = _selected(chunk, request)
    if selected is not None and not len(selected):
        return None
    row_count = chunk.last - chunk.first if selected is None else len(selected)
    arrays = [_cells(chunk, column, request.snapshot, selected, known) for column in request.columns]
    return make_batch(arrays, request.columns, row_count)


def _selected(chunk: Chunk, request: ScanRequest) -> tuple[np.ndarray | None, dict[int, Vector]]:
    """Return the rows wanted, counted from the chunk's first (None for all), and the columns read to find them."""
    first, last = chunk.first, chunk.last
    mask = chunk.rowset.live_in(first, last, request.snapshot)
    known: dict[int, Vector] = {}
    if request.where is not None and (mask is None or mask.any()):
        for column in request.filter_columns:
            known[column.id] = chunk.rowset.read(column, first, last, request.snapshot)
        matches = select(request.where, known, last - first)
        mask = matches if mask is None else mask & matches
    if mask is None or mask.all():
        return None, known
    return np.flatnonzero(mask), known


def _cells(
    chunk: Chunk, column: ColumnSchema, snapshot: int, selected: np.ndarray | None, known: dict[int, Vector]
) -> pa.Array:
    rowset, first, last = chunk.rowset, chunk.first, chunk.last
    vector = known.get(column.id)
    if vector is not None:
        vector = vector if selected is None else vector.take(selected)
    elif selected is not None and len(selected) < (last - first) * _GATHER_BELOW:
        vector = rowset.gather(column, selected + first, snapshot)
    else:
        vector = rowset.read(column, first, last, snapshot)
        vector = vector if selected is None else vector.take(selected)
    return to_arrow(vector, column.logical.arrow)


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
