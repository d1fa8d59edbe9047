"""RowLog: the rows and timestamps of deltas in the order they came, and the same sorted, for any number of columns.

Readers want the order of the rows. A log is sorted piece by piece when it is read: what has come since becomes a sorted
run, together with the runs before it that are not twice as long. So there are few runs, each entry is sorted a few
times, and what was sorted stays for all scans and all columns.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from ..vectors.growable import GrowableColumn
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector
from .cells import DeltaCells
from .patch import Patch
from .sorted_rows import SortedDeltas, sort_rows

Order = tuple[np.ndarray, np.ndarray]
"""Rows (int32, ascending) and the positions (int32) that they came from."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedRun:
    """Entries [first, last) of a log in the order of the rows; places count from ``first``."""

    first: int
    last: int
    rows: SortedDeltas
    cells: dict[int, DeltaCells] = field(default_factory=dict)
    """By column id, made when they are first read."""
    whole: dict[int, Patch] = field(default_factory=dict)
    """What a snapshot reads that sees the whole run, likewise."""


class RowLog:
    """Rows and timestamps of columns that have only ever changed together.

    One thread appends; what it appends is read once it is published. Readers share a lock among themselves while they
    sort, which the appender never takes.
    """

    def __init__(self) -> None:
        self.count = 0
        """Entries published: every column of the log has as many cells."""
        self._rowids = GrowableColumn(PhysicalType.INT32)
        self._timestamps = GrowableColumn(PhysicalType.INT64)
        self._runs: tuple[SortedRun, ...] = ()
        self._unsorted = (0, 0, 1 << 62)
        """Where the runs end, and the oldest timestamp from there up to where."""
        self._order: tuple[int, int, Order] | None = None
        self._sorting = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes reserved, without what is sorted."""
        return self._rowids.nbytes + self._timestamps.nbytes

    def append(self, rowids: Vector, timestamps: Vector) -> None:
        """Add entries; those of one row come in the order of time. They are read once they are published."""
        self._rowids.append(rowids)
        self._timestamps.append(timestamps)

    def publish(self) -> None:
        """Let readers see what was appended: all columns have their cells."""
        self.count = len(self._rowids)

    def copy(self) -> RowLog:
        """Return a log with the same entries, for columns that go their own way from here."""
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
        """Return entries [first, last) in the order of the rows; the last answer is kept, for the other columns."""
        known = self._order
        if known is None or known[:2] != (first, last):
            known = self._order = first, last, sort_rows(self.rowids(first, last))
        return known[2]

    def runs(self, snapshot: int) -> tuple[SortedRun, ...]:
        """Return sorted runs, older ones first, which hold every entry that ``snapshot`` sees."""
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
        """Return the oldest timestamp of the unsorted entries [first, last), of which none is looked at twice."""
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
