"""Reads a chunk: first liveness, then the filter's columns, then the other columns of the selected rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..rowset.read_rows import make_batch
from ..vectors.arrow import to_arrow
from ..vectors.vector import Vector
from .changes import read_changes
from .chunk import Chunk, ScanRequest
from .selection import ChunkCells, wanted_rows


def read_chunk(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Return the selected rows of a chunk, or changes of them, in row order; None if there are none."""
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
    """Rows as vectors, one per column of the request."""

    row_count: int
    columns: list[Vector]


def read_cells(chunk: Chunk, request: ScanRequest) -> Cells | None:
    """Return the selected rows of a chunk, in row order, up to the limit of the scan; None if there are none."""
    cells = ChunkCells(chunk, request)
    rows = wanted_rows(chunk, request, cells)
    row_count = chunk.last - chunk.first if rows is None else len(rows)
    if not row_count:
        return None
    if request.limit is not None and row_count > request.limit:
        row_count = request.limit
        rows = np.arange(row_count) if rows is None else rows[:row_count]
    column_ids = [column.id for column in request.columns]
    cells.read(column_ids, rows, as_strings=True)
    return Cells(row_count, [cells.at(column_id, rows) for column_id in column_ids])
