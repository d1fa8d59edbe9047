"""Rows and timestamps of deltas in row order, and which of them a snapshot sees.

The smallest and largest timestamp select one of three speeds: skip all, take the last delta of each row (computed once
and kept), or test each delta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels.cells import deltas as kernels
from ..vectors.memory.memory import address_of
from .patch import RowPlaces

Bounds = tuple[int, int]
"""The smallest and the largest timestamp."""


class SortedDeltas:
    """Deltas without their cells. Those of a row are in time order, so the last is the newest.

    Thread safe. What is computed on demand may be computed twice, with equal results.
    """

    __slots__ = ("_last", "_timestamps", "all", "bounds", "load_timestamps")

    def __init__(
        self, rowids: np.ndarray, places: np.ndarray, bounds: Bounds, load_timestamps: Callable[[], np.ndarray]
    ) -> None:
        """``places`` give each delta's position in the result of ``load_timestamps`` (int64), and among the cells."""
        self.all = RowPlaces(rowids, places)
        self.bounds = bounds
        self.load_timestamps = load_timestamps
        self._timestamps: np.ndarray | None = None
        self._last: RowPlaces | None = None

    @property
    def timestamps(self) -> np.ndarray:
        """The timestamps, by place."""
        if self._timestamps is None:
            self._timestamps = self.load_timestamps()
        return self._timestamps

    @property
    def newest(self) -> RowPlaces | None:
        """`last`, if it has been computed."""
        return self._last

    @property
    def last(self) -> RowPlaces:
        """The newest delta of each row."""
        if self._last is None:
            self._last = self._last_of_rows()
        return self._last

    def redo(self, first: int, last: int, snapshot: int) -> RowPlaces | None:
        """Return the last deltas up to ``snapshot`` of rows [first, last), and perhaps of others; None for none."""
        oldest, newest = self.bounds
        if newest <= snapshot:
            return self.last
        return self._selected(kernels.last_seen, first, last, snapshot) if oldest <= snapshot else None

    def undo(self, first: int, last: int, snapshot: int) -> RowPlaces | None:
        """Return the first deltas of rows [first, last) after ``snapshot``; None for none."""
        if self.bounds[1] <= snapshot:
            return None
        return self._selected(kernels.first_unseen, first, last, snapshot)

    def _selected(self, kernel: Callable[..., Any], first: int, last: int, snapshot: int) -> RowPlaces | None:
        deltas, timestamps = self.all, self.timestamps
        low, high = deltas.window(first, last)
        rowids, places = np.empty(high - low, np.int32), np.empty(high - low, np.int32)
        found = kernel(
            deltas.rows_at + 4 * low,
            deltas.places_at + 4 * low,
            high - low,
            first,
            last,
            address_of(timestamps),
            snapshot,
            address_of(rowids),
            address_of(places),
        )
        return RowPlaces(rowids[:found], places[:found]) if found else None

    def _last_of_rows(self) -> RowPlaces:
        deltas = self.all
        rowids, places = np.empty(deltas.count, np.int32), np.empty(deltas.count, np.int32)
        found = kernels.last_of_rows(
            deltas.rows_at, deltas.places_at, deltas.count, address_of(rowids), address_of(places)
        )
        if found == deltas.count:
            return deltas
        return RowPlaces(rowids[:found].copy(), places[:found].copy())


def sort_rows(rowids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort deltas by row: return ``rowids`` (int32) sorted, and the original position (int32) of each; equal ones keep
    their order."""
    count = len(rowids)
    rowids = np.ascontiguousarray(rowids, np.int32)
    rows, places, spare_rows, spare_places = (np.empty(count, np.int32) for _ in range(4))
    arrays = (address_of(array) for array in (rows, places, spare_rows, spare_places))
    in_spare = kernels.sort_rows(address_of(rowids), count, *arrays)
    return (spare_rows, spare_places) if in_spare else (rows, places)
