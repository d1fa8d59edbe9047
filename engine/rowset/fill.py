"""Fills a CellTable with rows of a rowset as a snapshot sees them: base cells, and deltas in memory, by kernels.

What these cannot read is read as scans read it (`RowSet.gather`): columns with deltas in files, columns at a snapshot
before their base, pages of encodings without random access.
"""

from __future__ import annotations

import numpy as np

from ..delta import LIVE
from ..delta.memstore import DeltaLog, DeltaMemStore
from ..delta.row_log import RowLog
from ..vectors.vector import FixedVector
from .cell_table import CellTable
from .places import is_widened, place_of
from .rowset import RowSet


def fill(table: CellTable, rowset: RowSet, rows: np.ndarray, positions: np.ndarray, snapshot: int) -> None:
    """Read ``rows`` (int64, ascending, repeats allowed) into the table's rows ``positions`` (int64).

    Raises:
        StoreError: a file is damaged.
        CorruptPageError: a cell cannot be decoded.
    """
    stores = rowset.deltas.stores
    left = rowset.read_base(table, rows, positions, snapshot)
    if stores.redo or stores.undo:
        first, last = int(rows[0]), int(rows[-1]) + 1
        ids = (*table.columns.ids, LIVE)
        left |= {i for i, number in enumerate(ids) if rowset.deltas.in_files(number, snapshot, first, last)}
    for store in stores.memory:
        if store:
            left |= _put_deltas(table, store, rows, positions, snapshot)
    if left:
        _put_gathered(table, rowset, left, rows, positions, snapshot)


def _put_deltas(
    table: CellTable, store: DeltaMemStore, rows: np.ndarray, positions: np.ndarray, snapshot: int
) -> set[int]:
    """Read what a snapshot sees of the deltas in memory; return the columns that were left out."""
    left: set[int] = set()
    physicals = table.columns.physicals
    groups: dict[RowLog, dict[int, DeltaLog]] = {}
    for i, column_id in enumerate((*table.columns.ids, LIVE)):
        if (log := store.log(column_id)) is None:
            continue
        if i < len(physicals) and is_widened(log.values.physical, physicals[i]):
            left.add(i)
        groups.setdefault(log.rows, {})[i] = log
    for row_log, logs in groups.items():
        if (found := row_log.newest_of(rows, snapshot)) is not None:
            entries, count = found
            places = {i: place_of(log.values.view(count), table.held) for i, log in logs.items()}
            table.put_places(places, entries, positions)
    return left


def _put_gathered(
    table: CellTable, rowset: RowSet, left: set[int], rows: np.ndarray, positions: np.ndarray, snapshot: int
) -> None:
    is_new = np.ones(len(rows), np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=is_new[1:])
    distinct, places = rows[is_new], np.cumsum(is_new) - 1
    columns = table.columns.columns
    cells = {i: rowset.gather(columns[i], distinct, snapshot) for i in left if i < len(columns)}
    if len(columns) in left:
        cells[len(columns)] = FixedVector(rowset.live_at(distinct, snapshot).view(np.uint8))
    table.put(cells, places, positions)
