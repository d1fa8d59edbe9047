"""How many rows of a rowset a merge would leave out for good: those that have been dead since before the history.

A row that is dead now has been dead since the mark unless its liveness changed after the mark. Such changes stand in
the delta files, whose pages say how new they are, and in memory. They are counted anew only when there is something new
to count, or when the mark has moved on by a while; in between the count may be too small, never too large: a merge that
is done for the sake of dead rows gives their space back.
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
    """What it was counted from: the rounded mark, dead rows, changes of liveness in memory."""
    rows: int


_COUNTS: WeakKeyDictionary[DiskRowSet, _Count] = WeakKeyDictionary()


def long_dead(rowset: DiskRowSet, ancient_history_mark: int) -> int:
    """Return how many rows died at or before the mark and have been dead since; of the last seconds before it, perhaps
    not all."""
    dead = rowset.live.dead_count
    if not dead:
        return 0
    if rowset.deltas.last_change(LIVE) <= ancient_history_mark:
        return dead
    mark = ancient_history_mark - ancient_history_mark % _STEP
    state = (mark, dead, sum(store.counts().get(LIVE, 0) for store in rowset.deltas.stores.memory))
    known = _COUNTS.get(rowset)
    if known is None or known.state != state:
        known = _COUNTS[rowset] = _Count(state, dead - _died_after(rowset, mark))
    return max(known.rows, 0)


def _died_after(rowset: DiskRowSet, mark: int) -> int:
    """Return how many rows that are dead now lived at some moment after ``mark``."""
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
