"""DeltaMemStore: the deltas of one rowset that are not in a file yet.

For each column an append-only log of (rowid, timestamp, value) in the order of the timestamps. Reading wants the order
of the rows: the log is sorted when it is read, the sorted prefix is kept, and the rest, the tail, is looked through
until it has grown enough to be worth sorting in. One thread appends, under the tablet's write lock; readers take no
lock: they see a prefix of each log, and what they miss is later than any snapshot they may ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..vectors.growable import GrowableColumn
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector, conformed, stored_as
from .run import DeltaRun, Patch, redo_patch, sorted_run

_TAIL_ROWS = 1024
"""A tail up to this long is never worth sorting in."""


@dataclass(frozen=True, slots=True)
class _SortedPrefix:
    """The first ``count`` entries of a log, sorted, and what a snapshot reads that sees all of them."""

    count: int
    run: DeltaRun
    newest: int
    """The largest timestamp."""
    rowids: np.ndarray
    """The rows, each once."""
    ends: np.ndarray
    """Where in the run the last entry of each row is."""

    @classmethod
    def of(cls, run: DeltaRun) -> _SortedPrefix:
        """Return the prefix that a sorted run is."""
        ends = np.flatnonzero(np.append(run.rowids[1:] != run.rowids[:-1], True)[: len(run)])
        return cls(len(run), run, int(run.timestamps.max(initial=0)), run.rowids[ends], ends)

    def patch(self, first_row: int, last_row: int, snapshot: int) -> Patch:
        """Return what ``snapshot`` sees; the many entries of a hot row cost one that sees all of them nothing."""
        if snapshot < self.newest:
            return redo_patch(self.run.slice(first_row, last_row), snapshot)
        first, last = np.searchsorted(self.rowids, (first_row, last_row))
        return Patch(self.rowids[first:last], self.run.values.take(self.ends[first:last]))


class DeltaLog:
    """The deltas of one column."""

    def __init__(self, physical: PhysicalType) -> None:
        self._rowids = GrowableColumn(PhysicalType.INT32)
        self._timestamps = GrowableColumn(PhysicalType.INT64)
        self._values = GrowableColumn(physical)
        self._count = 0
        self._sorted: _SortedPrefix | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._rowids.nbytes + self._timestamps.nbytes + self._values.nbytes

    def append(self, rowids: Vector, timestamps: Vector, values: Vector) -> None:
        """Add the deltas of one commit, later than all before. The column may have been widened since the last."""
        self._widen(values)
        self._rowids.append(rowids)
        self._timestamps.append(timestamps)
        self._values.append(conformed(values, self._values.physical))
        self._count += len(rowids)

    def run(self, first: int = 0, last: int | None = None) -> DeltaRun:
        """Return entries [first, last) in the order they came, sorted into a run."""
        last = self._count if last is None else last
        return sorted_run(
            _array(self._rowids, first, last), _array(self._timestamps, first, last), self._cells(first, last)
        )

    def patches(self, first_row: int, last_row: int, snapshot: int) -> list[Patch]:
        """Return what ``snapshot`` sees of rows [first_row, last_row): older patches first."""
        count = self._count
        prefix = self._prefix(count)
        tail = self._tail(prefix, count, first_row, last_row)
        return [prefix.patch(first_row, last_row, snapshot), *(redo_patch(run, snapshot) for run in tail)]

    def runs(self, first_row: int, last_row: int) -> list[DeltaRun]:
        """Return the deltas of rows [first_row, last_row) in runs that are not empty, older ones first."""
        count = self._count
        prefix = self._prefix(count)
        found = [prefix.run.slice(first_row, last_row), *self._tail(prefix, count, first_row, last_row)]
        return [run for run in found if len(run)]

    @property
    def last_change(self) -> int:
        """The timestamp of the newest delta; 0 when there is none."""
        return int(_array(self._timestamps, 0, self._count).max(initial=0))

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there is a delta with ``after`` < timestamp <= ``until``."""
        timestamps = _array(self._timestamps, 0, self._count)
        return bool(((timestamps > after) & (timestamps <= until)).any())

    def _widen(self, values: Vector) -> None:
        """Make room for wider values; readers find the narrow ones or the wide ones, and either will do."""
        physical = stored_as(values)
        if physical.width > self._values.physical.width:
            wider = GrowableColumn(physical)
            wider.append(conformed(self._values.view(self._count), physical))
            self._values = wider

    def _prefix(self, count: int) -> _SortedPrefix:
        prefix = self._sorted
        known = prefix.count if prefix else 0
        if prefix is None or count - known > max(_TAIL_ROWS, known // 4):
            prefix = _SortedPrefix.of(self.run(0, count))
            self._sorted = prefix
        return prefix

    def _tail(self, prefix: _SortedPrefix, count: int, first_row: int, last_row: int) -> list[DeltaRun]:
        """Return the deltas of some rows that came after the prefix, as a run; none when there are none."""
        rowids = _array(self._rowids, prefix.count, count)
        hits = np.flatnonzero((rowids >= first_row) & (rowids < last_row))
        if not len(hits):
            return []
        timestamps = _array(self._timestamps, prefix.count, count)[hits]
        return [sorted_run(rowids[hits], timestamps, self._cells(prefix.count, count).take(hits))]

    def _cells(self, first: int, last: int) -> Vector:
        return self._values.view(last).slice(first, last)


class DeltaMemStore:
    """The deltas of one rowset in memory, by column id."""

    def __init__(self) -> None:
        self._logs: dict[int, DeltaLog] = {}
        self.first_lsn: int | None = None
        """The log position of the oldest delta; the log before it is not needed for this store."""

    def __bool__(self) -> bool:
        return self.first_lsn is not None

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return sum(log.nbytes for log in list(self._logs.values()))

    @property
    def column_ids(self) -> list[int]:
        """The columns with deltas."""
        return list(self._logs)

    def log(self, column_id: int) -> DeltaLog | None:
        """Return the deltas of a column, or None when it has none."""
        return self._logs.get(column_id)

    def append(
        self,
        rowids: Vector,
        timestamps: Vector,
        columns: Mapping[int, tuple[PhysicalType, Vector]],
        lsn: int,
    ) -> None:
        """Add one commit's new cells for ``rowids``, column by column. The caller holds the tablet's write lock."""
        for column_id, (physical, values) in columns.items():
            if column_id not in self._logs:
                self._logs[column_id] = DeltaLog(physical)
            self._logs[column_id].append(rowids, timestamps, values)
        if self.first_lsn is None:
            self.first_lsn = lsn

    def counts(self) -> dict[int, int]:
        """Return how many deltas each column has now: a mark for ``between``."""
        return {column_id: len(log) for column_id, log in list(self._logs.items())}

    def between(self, mark: Mapping[int, int], later: Mapping[int, int]) -> dict[int, DeltaRun]:
        """Return the deltas added after ``mark`` was taken and before ``later`` was, column by column.

        Marks may be taken while others append; of a commit under way they may hold some columns and not others.
        """
        spans = {column_id: (mark.get(column_id, 0), count) for column_id, count in later.items()}
        return {
            column_id: self._logs[column_id].run(first, last)
            for column_id, (first, last) in spans.items()
            if first < last
        }

    def until(self, mark: Mapping[int, int]) -> dict[int, DeltaRun]:
        """Return the deltas that were there when ``mark`` was taken, column by column."""
        return self.between({}, mark)


def _array(column: GrowableColumn, first: int, last: int) -> np.ndarray:
    return column.view(last).values[first:last]  # pyright: ignore[reportAttributeAccessIssue]
