"""Reads a chunk: first liveness, then the filter's columns, then the other columns of the selected rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...codecs.codec import CorruptPageError
from ...rowset.fill import fill
from ...rowset.native.cell_table import CellTable
from ...rowset.native.row_columns import RowColumns
from ...rowset.read_rows import make_batch
from ...vectors.arrow import to_arrow
from .changes import read_changes
from .chunk import Chunk, ScanRequest
from .selection import ChunkCells, wanted_rows

_FEW_ROWS = 1_024
"""The most rows that are read like gets, all columns in a few calls: more are faster column by column."""


def read_chunk(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Return the selected rows of a chunk up to the limit of the scan, or changes of them, in row order; None if there
    are none."""
    if request.changes:
        return read_changes(chunk, request)
    cells = ChunkCells(chunk, request)
    rows = wanted_rows(chunk, request, cells)
    row_count = chunk.last - chunk.first if rows is None else len(rows)
    if not row_count:
        return None
    if request.limit is not None and row_count > request.limit:
        row_count = request.limit
        rows = np.arange(row_count) if rows is None else rows[:row_count]
    arrays = None
    if request.row_columns and rows is not None and row_count <= _FEW_ROWS and cells.are_few(rows):
        arrays = _few(chunk, chunk.first + rows, request, request.row_columns)
    if arrays is None:
        column_ids = [column.id for column in request.columns]
        cells.read(column_ids, rows, as_strings=True)
        arrays = [to_arrow(cells.at(column.id, rows), column.logical.arrow) for column in request.columns]
    return make_batch(arrays, request.columns, row_count)


def _few(chunk: Chunk, rows: np.ndarray, request: ScanRequest, columns: RowColumns) -> list[pa.Array] | None:
    """Return the cells of rows (int64, ascending), read as by their keys; None if only a read of vectors can tell."""
    places = np.arange(len(rows))
    table = CellTable(columns, places)
    try:
        fill(table, chunk.rowset, rows, places, request.snapshot)
    except CorruptPageError:
        return None
    known = dict(zip(columns.ids, table.taken(places), strict=True))
    return [known[column.id] for column in request.columns]
