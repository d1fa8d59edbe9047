"""Fills a CellTable with rows of a rowset as a snapshot sees them: base cells, and deltas after the base, by kernels.

What these cannot read is read as scans read it (`RowSet.gather`): columns at a snapshot before their base, pages of
encodings without random access.
"""

from __future__ import annotations

import numpy as np

from ..delta import LIVE
from ..delta.file import DeltaFile
from ..delta.memstore import DeltaLog, DeltaMemStore
from ..delta.row_log import RowLog
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, conformed
from .native.cell_table import CellTable
from .native.places import is_widened, place_of
from .rowset import RowSet


def fill(table: CellTable, rowset: RowSet, rows: np.ndarray, positions: np.ndarray, snapshot: int) -> None:
    """Read ``rows`` of a rowset (int64, ascending, repeats allowed) into the table's rows ``positions`` (int64).

    Raises:
        StoreError: a file is damaged.
        CorruptPageError: a cell cannot be decoded.
    """
    deltas, stores = rowset.deltas, rowset.deltas.stores
    left = rowset.read_base(table, rows, positions, snapshot)
    if stores.redo or snapshot < deltas.newest_base:
        ids = (*table.columns.ids, LIVE)
        later = {i for i, number in enumerate(ids) if snapshot < deltas.base_timestamp(number)}
        first, last = int(rows[0]), int(rows[-1]) + 1
        left |= {i for i in later if deltas.in_files(ids[i], snapshot, first, last)}
        native = {i: number for i, number in enumerate(ids) if i not in left and i not in later}
        for file in stores.redo:
            if file.first_timestamp <= snapshot:
                _put_redo(table, file, native, rows, positions, snapshot)
    for store in stores.memory:
        if store:
            left |= _put_deltas(table, store, rows, positions, snapshot)
    if left:
        _put_gathered(table, rowset, left, rows, positions, snapshot)


def _put_redo(
    table: CellTable, file: DeltaFile, ids: dict[int, int], rows: np.ndarray, positions: np.ndarray, snapshot: int
) -> None:
    """Read what a snapshot sees through a file of the columns with some ``ids``, by number."""
    wanted = (*table.columns.physicals, PhysicalType.BOOL)
    for i, column_id in ids.items():
        if pages := file.pages(column_id):
            for places, cells in pages.newest_of(rows, snapshot):
                table.put({i: conformed(cells, wanted[i])}, places, positions)


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
