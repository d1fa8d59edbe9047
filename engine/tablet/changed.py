"""Which rows changed after a timestamp, for conditional writes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..rowset.diskrowset import NEWEST, DiskRowSet
from ..rowset.memrowset import MemRowSet
from ..rowset.rowset import RowSet


def changed_after(rowset: RowSet, rowids: np.ndarray, moment: int, column_ids: Collection[int]) -> np.ndarray:
    """Return which of ``rowids`` in a tablet's rowset, of which there is at least one, were inserted or deleted, or
    changed in ``column_ids``, after ``moment``.

    The rowset must keep the history from ``moment`` on; the caller holds the tablet's write lock.
    """
    if isinstance(rowset, MemRowSet):
        changed = rowset.inserted_at(len(rowset))[rowids] > moment
    else:
        # UNDO files have the inserts of rows on disk, with all other changes, unless one commit inserted all rows.
        born = rowset.born if isinstance(rowset, DiskRowSet) else None
        changed = np.full(len(rowids), born is not None and born > moment)
    if rowset.deltas.is_changed(moment, NEWEST):
        first, last = int(rowids.min()), int(rowids.max()) + 1
        for rows, _ in rowset.deltas.stamps(first, last, moment, NEWEST, column_ids):
            changed |= np.isin(rowids, rows)
    return changed
