"""The number of rows that a merge would drop for good: rows that have been dead since before the history.

A row that is dead now has been dead since the mark unless its liveness changed after the mark. Such changes are in
delta files, whose pages have their newest timestamp, and in memory. They are counted again only if there is something
new to count, or if the mark has advanced by a while. Between counts the number may be too small, never too large: a
merge to remove dead rows frees at least their space.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..delta import LIVE
from ..delta.history import within
from ..rowset.diskrowset import NEWEST, DiskRowSet

_STEP = 10_000_000 << 12
"""Marks are rounded down to ten seconds."""


@dataclass(frozen=True, slots=True)
class _Count:
    state: tuple[int, int, int]
    """The input of the count: the rounded mark, dead rows, changes of liveness in memory."""
    rows: int


_COUNTS: WeakKeyDictionary[DiskRowSet, _Count] = WeakKeyDictionary()


def long_dead(rowset: DiskRowSet, ancient_history_mark: int) -> int:
    """Return how many rows a merge would drop: those that have been dead since the mark or earlier, perhaps without
    those of the last seconds before it."""
    dead = rowset.live.dead_count
    if not dead:
        return 0
    if rowset.deltas.last_change(LIVE) <= ancient_history_mark:
        return dead
    mark = rounded(ancient_history_mark)
    state = (mark, dead, sum(store.counts().get(LIVE, 0) for store in rowset.deltas.stores.memory))
    known = _COUNTS.get(rowset)
    if known is None or known.state != state:
        known = _COUNTS[rowset] = _Count(state, dead - _died_after(rowset, mark))
    return max(known.rows, 0)


def rounded(mark: int) -> int:
    """Return a mark for which rows are counted: they are counted again when it changes."""
    return mark - mark % _STEP


def _died_after(rowset: DiskRowSet, mark: int) -> int:
    """Return how many rows that are dead now were alive at some time after ``mark``."""
    rows = len(rowset)
    newer = [file for file in rowset.deltas.files if file.last_change(LIVE) > mark]
    logs = [log for store in rowset.deltas.stores.memory if (log := store.log(LIVE))]
    found = [file.stamps(LIVE, 0, rows, mark, NEWEST) for file in newer]
    found += [within(run.rowids, run.timestamps, mark, NEWEST) for log in logs for run in log.runs(0, rows)]
    is_changed = np.zeros(rows, np.bool_)
    for stamps in found:
        if stamps:
            is_changed[stamps[0]] = True
    changed = np.flatnonzero(is_changed)
    return int(np.count_nonzero(~rowset.live.at(changed)))
