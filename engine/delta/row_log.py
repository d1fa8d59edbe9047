"""RowLog: the rows and timestamps of deltas in the order of arrival and sorted by row, for any number of columns.

Readers need the order of the rows. Reading sorts a log piece by piece: new entries become a sorted run, together with
the preceding runs that are not twice as long. So there are few runs, each entry is sorted a few times, and all scans
and columns share the sorted runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .. import threads
from ..vectors.growable import GrowableColumn
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector
from .cells import DeltaCells
from .patch import Patch
from .row_index import RowIndex
from .sorted_rows import SortedDeltas, sort_rows

Order = tuple[np.ndarray, np.ndarray]
"""Rows (int32, ascending) and their original positions (int32)."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedRun:
    """Deltas [first, last) of a `RowLog` in row order; places count from ``first``."""

    first: int
    last: int
    rows: SortedDeltas
    cells: dict[int, DeltaCells] = field(default_factory=dict)
    """By column id, made when first read."""
    whole: dict[int, Patch] = field(default_factory=dict)
    """By column id: the patch for a snapshot that sees the whole run, made when first read."""


class RowLog:
    """Rows and timestamps of the deltas of columns that have always changed together.

    One thread appends; readers see entries once they are published. Readers share a lock for sorting, which the
    appender never takes.
    """

    def __init__(self) -> None:
        self.count = 0
        """Published entries: every column of the log has this many cells."""
        self._rowids = GrowableColumn(PhysicalType.INT32)
        self._timestamps = GrowableColumn(PhysicalType.INT64)
        self._runs: tuple[SortedRun, ...] = ()
        self._unsorted = (0, 0, 1 << 62)
        """The end of the runs, the end of the known part after it, and the oldest timestamp in that part."""
        self._order: tuple[int, int, Order] | None = None
        self._by_row = RowIndex()
        self._sorting = threads.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes reserved, without sorted runs and the index of rows."""
        return self._rowids.nbytes + self._timestamps.nbytes

    def append(self, rowids: Vector, timestamps: Vector) -> None:
        """Add entries, those of one row in time order. Readers see them once they are published."""
        self._rowids.append(rowids)
        self._timestamps.append(timestamps)

    def append_row(self, row: int, timestamp: int) -> None:
        """Add one entry and let readers see it; all columns must have their cells."""
        self._rowids.append_cell(row)
        self._timestamps.append_cell(timestamp)
        self.publish()

    def publish(self) -> None:
        """Let readers see the appended entries; all columns must have their cells."""
        self.count = len(self._rowids)

    def copy(self) -> RowLog:
        """Return a log with the same entries, for columns that now change separately."""
        log = RowLog()
        if self.count:
            log.append(self._rowids.view(self.count), self._timestamps.view(self.count))
        log._runs = self._runs
        log.publish()
        return log

    def rowids(self, first: int, last: int) -> np.ndarray:
        """Return the rows (int32) of entries [first, last)."""
        return _array(self._rowids, first, last)

    def timestamps(self, first: int, last: int) -> np.ndarray:
        """Return the timestamps (int64) of entries [first, last)."""
        return _array(self._timestamps, first, last)

    def order(self, first: int, last: int) -> Order:
        """Return entries [first, last) in row order; the last result is kept, for the other columns."""
        known = self._order
        if known is None or known[:2] != (first, last):
            known = self._order = first, last, sort_rows(self.rowids(first, last))
        return known[2]

    def newest(self, row: int, snapshot: int) -> int:
        """Return the newest entry of a row that ``snapshot`` sees, -1 if there is none."""
        entry = self._by_row.newest(row, self.count, lambda count: self.rowids(0, count))
        while entry >= 0 and self._timestamps.cell(entry) > snapshot:
            entry = self._by_row.before(entry)
        return entry

    def newest_of(self, rows: np.ndarray, snapshot: int) -> tuple[np.ndarray, int] | None:
        """Return the newest entry (int64) of each of ``rows`` (int64) that ``snapshot`` sees, -1 for none, and a count
        of entries above them all, which every column has; None if there is none."""
        if not self.count:
            return None
        everything = lambda count: self.rowids(0, count), lambda count: self.timestamps(0, count)
        return self._by_row.newest_of(rows, snapshot, self.count, *everything)

    def runs(self, snapshot: int) -> tuple[SortedRun, ...]:
        """Return sorted runs, oldest first, that contain every entry that ``snapshot`` sees."""
        runs, count = self._runs, self.count
        covered = runs[-1].last if runs else 0
        if covered >= count or self._oldest(covered, count) > snapshot:
            return runs
        with self._sorting:
            runs, count = self._runs, self.count
            if (runs[-1].last if runs else 0) < count:
                runs = self._runs = self._extended(runs, count)
        return runs

    def _oldest(self, first: int, last: int) -> int:
        """Return the oldest timestamp of the unsorted entries [first, last), reading each only once."""
        start, end, oldest = self._unsorted
        if start != first:
            end, oldest = first, 1 << 62
        if end < last:
            oldest = min(oldest, int(self.timestamps(end, last).min()))
            self._unsorted = first, last, oldest
        return oldest

    def _extended(self, runs: tuple[SortedRun, ...], count: int) -> tuple[SortedRun, ...]:
        first, kept = runs[-1].last if runs else 0, list(runs)
        while kept and kept[-1].last - kept[-1].first < 2 * (count - first):
            first = kept.pop().first
        rowids, places = sort_rows(self.rowids(first, count))
        timestamps = self.timestamps(first, count)
        bounds = int(timestamps.min()), int(timestamps.max())
        return (*kept, SortedRun(first, count, SortedDeltas(rowids, places, bounds, lambda: timestamps)))


def _array(column: GrowableColumn, first: int, last: int) -> np.ndarray:
    view = column.view(last)
    assert isinstance(view, FixedVector)
    return view.values[first:last]
