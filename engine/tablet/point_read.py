"""Reads one row by its key: `lookup` for a single row, without a vector or an Arrow array.

The meaning is that of `lookup`. Whatever is not covered here raises `UndecidedError`, and the caller takes `lookup`:
keys in rowsets that are not indexed, rows that are moving, snapshots older than a base.
"""

from __future__ import annotations

import numpy as np

from ...schemas.protocol.request import NotInMemoryError, may_wait
from .. import threads
from ..codecs.codec import CorruptPageError
from ..delta import LIVE
from ..delta.file import DeltaFile
from ..delta.row_log import RowLog
from ..rowset.location import ROWID_BITS, ROWS_MAX
from ..rowset.native.row_columns import RowColumns
from ..rowset.rowset import RowSet
from ..vectors.raw_cell import RawCell, raw_cell
from .key_lookup import ABSENT
from .tablet import Tablet

_MOMENT_SECONDS = 0.002
"""A row's commit holds the lock of its tablet for less."""


class UndecidedError(Exception):
    """A quick read of a tablet's row cannot tell: only `lookup` can."""


def read_row(
    tablet: Tablet, key: tuple[int, int], key_cells: list[RawCell], snapshot: int, columns: RowColumns
) -> list[RawCell] | None:
    """Return the raw cells of the row of a tablet with a key that is alive at ``snapshot``, None if there is none.

    ``key`` is the encoded key as `KeyIndex.locate` takes it, ``key_cells`` the raw cells of the leading columns. Holds
    the tablet's write lock for one probe of a hash table.

    Raises:
        UndecidedError: use `lookup`.
        NotInMemoryError: the thread may not wait, and would have to.
        StoreError: a file is damaged.
    """
    if tablet.write_lock.locked():
        _wait_a_moment(tablet.write_lock)
    with tablet.write_lock:
        tablet.rows_read += 1
        location = tablet.key_lookup.locate(tablet.version, *key)
        rowset = tablet.rowset_at(location >> ROWID_BITS) if location >= 0 else None
    if location == ABSENT:
        return None
    if rowset is None:
        raise UndecidedError
    row = location & (ROWS_MAX - 1)
    try:
        cells = rowset.raw_cells(row, snapshot, columns)
    except CorruptPageError:
        raise UndecidedError from None
    if cells is None or cells[: len(key_cells)] != key_cells:
        raise UndecidedError
    apply_deltas(rowset, row, snapshot, columns, cells)
    return cells if cells.pop() else None


def _wait_a_moment(lock: threads.Lock) -> None:
    """Wait shortly for a lock on a thread that may not wait for a disk, since whoever holds the lock may."""
    if may_wait():
        return
    if not lock.acquire(timeout=_MOMENT_SECONDS):
        raise NotInMemoryError
    lock.release()


def apply_deltas(rowset: RowSet, row: int, snapshot: int, columns: RowColumns, cells: list[RawCell]) -> None:
    """For a tablet's read of one row: bring its base cells, the liveness last, forward to ``snapshot`` by its
    deltas."""
    stores, ids = rowset.deltas.stores, (*columns.ids, LIVE)
    for file in stores.redo:
        if file.first_timestamp <= snapshot:
            _apply_file(file, np.array([row], np.int64), snapshot, ids, cells)
    for store in stores.memory:
        entries: dict[RowLog, int] = {}
        for i, column_id in enumerate(ids) if store else ():
            if (log := store.log(column_id)) is None:
                continue
            rows = log.rows
            if rows not in entries:
                entries[rows] = rows.newest(row, snapshot)
            if entries[rows] >= 0:
                cells[i] = log.values.cell(entries[rows])


def _apply_file(file: DeltaFile, row: np.ndarray, snapshot: int, ids: tuple[int, ...], cells: list[RawCell]) -> None:
    for i, column_id in enumerate(ids):
        if pages := file.pages(column_id):
            for places, values in pages.newest_of(row, snapshot):
                cells[i] = raw_cell(values, places.item(0))
