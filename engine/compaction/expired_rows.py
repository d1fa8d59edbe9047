"""The rows that expired before the history, as far as zone maps tell: a merge drops them for good.

No page of rows is read. Rows that changed since, or whose moment may differ from the base, are not counted, so the
number may be too small, never too large. It is counted again as in `dead_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..cfile.zone_map import PageZones
from ..filter.expiry import Expiry
from ..rowset.diskrowset import NEWEST, DiskRowSet
from .dead_rows import rounded


@dataclass(frozen=True, slots=True)
class _ExpiredCount:
    state: tuple[Expiry, int, int, int]
    """The input of the count: when rows expire, the greatest cell that has expired, changes of moments, dead rows."""
    rows: int


_COUNTS: WeakKeyDictionary[DiskRowSet, _ExpiredCount] = WeakKeyDictionary()


def long_expired(rowset: DiskRowSet, expiry: Expiry | None, ancient_history_mark: int) -> int:
    """Return how many rows of a rowset surely expired at the mark or earlier, perhaps without those of the last seconds
    before it."""
    if expiry is None or not rowset.has_base(expiry.column.id):
        return 0
    mark = rounded(ancient_history_mark)
    later = rowset.deltas.changes_at_most(expiry.column.id, NEWEST)
    dead = rowset.live.dead_count
    state = (expiry, expiry.last_gone(mark), later, dead)
    count = _COUNTS.get(rowset)
    if count is None or count.state != state:
        count = _COUNTS[rowset] = _ExpiredCount(state, max(_expired(rowset, expiry, mark) - later - dead, 0))
    return count.rows


def have_all_expired(rowset: DiskRowSet, expiry: Expiry | None, ancient_history_mark: int) -> bool:
    """Return whether all rows of a rowset surely expired at the mark or earlier."""
    return expiry is not None and long_expired(rowset, expiry, ancient_history_mark) == len(rowset)


def _expired(rowset: DiskRowSet, expiry: Expiry, mark: int) -> int:
    """Return how many rows are in pages in which every base cell has expired, without those that changed later."""
    stream = rowset.base_stream(expiry.column.id)
    gone = _are_gone(stream.page_zones, expiry.last_gone(mark))
    if not gone.any():
        return 0
    ends = np.array([*(stream.first_row(number) for number in range(1, len(gone))), len(rowset)], np.int64)
    changes = rowset.changes(0, len(rowset), mark, NEWEST, [expiry.column.id])
    changed = np.unique(changes.rowids)
    rows = np.diff(ends, prepend=0)[gone].sum()
    return int(rows - np.count_nonzero(gone[np.searchsorted(ends, changed, side="right")]))


def _are_gone(zones: PageZones, last_gone: int) -> np.ndarray:
    """Return the pages (bool) in which every row has expired."""
    if zones.numbers is None:
        return np.zeros(len(zones.maps), np.bool_)
    bounds = zones.numbers
    return (zones.null_counts == 0) & zones.has_cells & bounds.are_known & (bounds.highs <= last_gone)
