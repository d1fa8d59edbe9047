"""A run of deltas of one column, and what a snapshot reads of it.

    rowids      3   3   3   7   9   9     ascending
    timestamps  t1  t4  t6  t2  t1  t5    ascending within a row
    values      a   b   c   d   e   f

As REDO, entry (3, t4, b) means that row 3 has b from t4 on. A snapshot T takes a row's last entry with timestamp <= T.
As UNDO, the same entry means that row 3 had b before t4. A snapshot T takes a row's first entry with timestamp > T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..vectors.vector import Vector, concat, patch

_NO_ROW = np.iinfo(np.int32).max
"""Above the rows of any rowset."""


def row_window(rowids: np.ndarray, first_row: int, last_row: int) -> tuple[int, int]:
    """Return the range of deltas whose rows are in [first_row, last_row), by their ``rowids`` (int32, ascending)."""
    # bounds of the same type: for any other, numpy would convert all rowids first
    low, high = rowids.searchsorted(np.array((first_row, min(last_row, _NO_ROW)), np.int32)).tolist()
    return low, high


@dataclass(frozen=True, slots=True, eq=False)
class DeltaRun:
    """Deltas of one column, sorted by (rowid, timestamp)."""

    rowids: np.ndarray
    """int32, ascending."""
    timestamps: np.ndarray
    """int64, ascending within a row."""
    values: Vector

    def __len__(self) -> int:
        return len(self.rowids)

    def slice(self, first_row: int, last_row: int) -> DeltaRun:
        """Return the deltas of rows [first_row, last_row) as views."""
        first, last = row_window(self.rowids, first_row, last_row)
        return DeltaRun(self.rowids[first:last], self.timestamps[first:last], self.values.slice(first, last))

    def take(self, positions: np.ndarray) -> DeltaRun:
        """Return the deltas at ``positions``."""
        return DeltaRun(self.rowids[positions], self.timestamps[positions], self.values.take(positions))


def merge_runs(runs: Sequence[DeltaRun]) -> DeltaRun:
    """Return runs of deltas of one column as one. If both have deltas of a row, those of the earlier run are older."""
    if len(runs) == 1:
        return runs[0]
    rowids = np.concatenate([run.rowids for run in runs])
    timestamps = np.concatenate([run.timestamps for run in runs])
    order = np.argsort(rowids, kind="stable")
    return DeltaRun(rowids[order], timestamps[order], concat([run.values for run in runs]).take(order))


def collapsed(redo: DeltaRun, mark: int) -> DeltaRun:
    """Drop the REDO deltas that no snapshot at or after ``mark`` sees, because a later one is at or before it."""
    kept = np.ones(len(redo), np.bool_)
    kept[:-1] = (redo.rowids[1:] != redo.rowids[:-1]) | (redo.timestamps[1:] > mark)
    return redo if kept.all() else redo.take(np.flatnonzero(kept))


def invert(base: Vector, redo: DeltaRun) -> tuple[Vector, DeltaRun]:
    """Bring cells, the ``base``, forward by the deltas ``redo``; return them with the UNDO run that reverses this.

    The UNDO entry of a change has the row's previous value: that of its change before, or the base's.
    """
    if not len(redo):
        return base, redo
    positions = np.arange(len(redo), dtype=np.int64)
    is_first = np.empty(len(redo), np.bool_)
    is_first[0] = True
    is_first[1:] = redo.rowids[1:] != redo.rowids[:-1]
    is_last = np.append(is_first[1:], True)
    sources = np.where(is_first, len(redo) + redo.rowids, positions - 1)
    undo_values = concat([redo.values, base]).take(sources)
    brought = patch(base, redo.rowids[is_last], redo.values.take(positions[is_last]))
    return brought, DeltaRun(redo.rowids, redo.timestamps, undo_values)
