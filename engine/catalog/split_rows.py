"""Rows in memory, copied to the MemRowSets of the two halves of a tablet while writers continue.

Rows are copied in rounds that get shorter, with the timestamps of their inserts and changes. The last, small round runs
under the write lock. `switch_over` does the same for rows that move to files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...schemas.table.column import ColumnSchema
from ..compaction.switch_over import append_changes
from ..delta.run import DeltaRun
from ..partition.router import Router
from ..rowset.memrowset import MemRowSet
from ..vectors.keys.keys import slice_keys, take_keys
from ..vectors.vector import Vector

_AT_ONCE = 1 << 16
"""The most rows, or deltas of a column, to copy at a time."""


class SplitRows:
    """Rows in memory of a tablet that is being split: those of ``source``, in ``targets``, which are not visible yet;
    ``sides`` gives the target of each row."""

    def __init__(
        self, source: MemRowSet, targets: Sequence[MemRowSet], sides: Router, columns: Sequence[ColumnSchema]
    ) -> None:
        self.source = source
        self._targets = targets
        self._sides = sides
        self._columns = columns
        self._row_count = 0
        self._mark: dict[int, int] = {}
        self._side = np.empty(0, np.int8)
        self._place = np.empty(0, np.int32)
        """The row number in its target, for each row."""

    @property
    def missing(self) -> int:
        """How many rows and changes have come since the last round."""
        mark = self._mark
        changes = sum(count - mark.get(column, 0) for column, count in self.source.deltas.active.counts().items())
        return changes + len(self.source) - self._row_count

    def carry_over(self) -> int:
        """Copy what has come since the last round; return the number of rows and changes. Needs no lock."""
        store, copied = self.source.deltas.active, 0
        changes = store.counts()  # before the rows: a counted change then belongs to a counted row
        last = len(self.source)
        copied += self._copy_rows(last)
        while self._mark != changes:
            some = {column: min(end, self._mark.get(column, 0) + _AT_ONCE) for column, end in changes.items()}
            for column_id, run in store.between(self._mark, some).items():
                copied += len(run)
                self._copy_changes(column_id, run)
            self._mark = some
        return copied

    def _copy_rows(self, last: int) -> int:
        done = self._row_count
        if done == last:
            return 0
        side, place = np.empty(last - done, np.int8), np.empty(last - done, np.int32)
        for first in range(done, last, _AT_ONCE):
            end = min(first + _AT_ONCE, last)
            side[first - done : end - done], place[first - done : end - done] = self._copy_some(first, end)
        self._side, self._place = np.append(self._side, side), np.append(self._place, place)
        self._row_count = last
        return last - done

    def _copy_some(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Copy rows [first, last); return their sides and their row numbers there."""
        source = self.source
        cells: dict[int, Vector] = {column.id: source.base(column, first, last) for column in self._columns}
        keys, born = slice_keys(source.keys(last), first, last), source.inserted_at(last)[first:]
        sides = self._sides.numbers_of_cells(cells, last - first)
        places = np.empty(last - first, np.int32)
        for side, target in enumerate(self._targets):
            rows = np.flatnonzero(sides == side)
            if len(rows):
                mine = {column_id: vector.take(rows) for column_id, vector in cells.items()}
                places[rows] = target.insert(mine, take_keys(keys, rows), born[rows], source.first_lsn or 0)
        return sides, places

    def _copy_changes(self, column_id: int, run: DeltaRun) -> None:
        """Copy changes of copied rows. They stay sorted by row, because each side keeps the order of its rows."""
        sides = self._side[run.rowids]
        for side, target in enumerate(self._targets):
            mine = run.take(np.flatnonzero(sides == side))
            if mine:
                there = DeltaRun(self._place[mine.rowids], mine.timestamps, mine.values)
                append_changes(target, column_id, there, self.source.first_lsn or 0)
