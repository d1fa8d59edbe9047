"""The history of a column: the cell of a row at any moment.

    UNDO entry (row, t, old)   the row had ``old`` before t
    REDO entry (row, t, new)   the row has ``new`` from t on

At a moment T the last REDO entry of the row with t <= T decides, else its first UNDO entry with t > T, else the base.
That holds for any base timestamp, because UNDO entries are not later than it and REDO entries are. So an entry may move
from REDO to UNDO, with the base brought forward over it, and every result stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..vectors.vector import Vector, patch
from .run import DeltaRun

Stamps = tuple[np.ndarray, np.ndarray]
"""The rows (int32) and timestamps (int64) of changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The moments at which deltas changed rows, ascending by row, then by timestamp. Both arrays are int64."""

    rowids: np.ndarray
    timestamps: np.ndarray

    def __len__(self) -> int:
        return len(self.rowids)

    @property
    def first_row(self) -> int:
        """The smallest row."""
        return int(self.rowids[0])

    @property
    def last_row(self) -> int:
        """One more than the largest row."""
        return int(self.rowids[-1]) + 1

    def take(self, positions: np.ndarray) -> Moments:
        """Return the moments at ``positions``, which ascend."""
        return Moments(self.rowids[positions], self.timestamps[positions])

    def last_of_rows(self) -> Moments:
        """Return the last moment of every row."""
        return self.take(np.flatnonzero(np.append(self.rowids[1:] != self.rowids[:-1], True)[: len(self)]))

    def at(self, timestamp: int) -> Moments:
        """Return the same rows, all at one time."""
        return Moments(self.rowids, np.full(len(self), timestamp, np.int64))

    def earlier(self, steps: np.ndarray | int = 1) -> Moments:
        """Return the moments moved back by ``steps`` timestamps: 1 gives the state before a commit."""
        return Moments(self.rowids, self.timestamps - steps)


def moments_of(parts: Sequence[Stamps]) -> Moments:
    """Return the moments of deltas, each once, however many columns a commit changed in a row."""
    distinct: list[Stamps] = []
    for part in parts:
        # Commits mostly change the same columns in all their rows, so the stamps of columns repeat each other.
        if not any(_are_equal(part, known) for known in distinct[-1:]):
            distinct.append(part)
    if not distinct:
        return Moments(np.empty(0, np.int64), np.empty(0, np.int64))
    rowids = np.concatenate([part[0] for part in distinct]).astype(np.int64)
    timestamps = np.concatenate([part[1] for part in distinct])
    order = np.lexsort((timestamps, rowids))
    rowids, timestamps = rowids[order], timestamps[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (rowids[1:] != rowids[:-1]) | (timestamps[1:] != timestamps[:-1])
    return Moments(rowids[is_new], timestamps[is_new])


def within(rowids: np.ndarray, timestamps: np.ndarray, after: int, until: int) -> Stamps | None:
    """Return the deltas with ``after`` < timestamp <= ``until``; None when there are none."""
    hits = np.flatnonzero((timestamps > after) & (timestamps <= until))
    return (rowids[hits], timestamps[hits]) if len(hits) else None


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The history of one column in some rows, as far as its deltas tell; for one row, no two runs of a kind overlap in
    time."""

    undo: Sequence[DeltaRun]
    """The newest first."""
    redo: Sequence[DeltaRun]
    """The oldest first."""

    def at(self, base: Vector, moments: Moments) -> Vector:
        """Return the cell of every moment; ``base`` holds the base's cell for each of them."""
        for run in self.undo:
            base = _patched(base, run, *_before_next(run, moments))
        for run in self.redo:
            base = _patched(base, run, *_since_last(run, moments))
        return base


def _patched(base: Vector, run: DeltaRun, positions: np.ndarray, entries: np.ndarray) -> Vector:
    return patch(base, positions, run.values.take(entries)) if len(positions) else base


def _since_last(redo: DeltaRun, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments at or after an entry of their row, and the last such entry of each."""
    places = _places(redo, moments) - 1
    hits = np.flatnonzero((places >= 0) & (redo.rowids[places] == moments.rowids))
    return hits, places[hits]


def _before_next(undo: DeltaRun, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments before an entry of their row, and the first such entry of each."""
    places = _places(undo, moments)
    is_inside = places < len(undo)
    hits = np.flatnonzero(is_inside & (undo.rowids[np.where(is_inside, places, 0)] == moments.rowids))
    return hits, places[hits]


def _places(run: DeltaRun, moments: Moments) -> np.ndarray:
    """Return how many entries of ``run``, which is not empty, are at or before each moment.

    Row and timestamp are combined in one integer, with the rank of the timestamp in the run.
    """
    ranks = np.unique(run.timestamps)
    width = len(ranks) + 1
    entries = run.rowids.astype(np.int64) * width + np.searchsorted(ranks, run.timestamps, "right")
    asked = moments.rowids * width + np.searchsorted(ranks, moments.timestamps, "right")
    return np.searchsorted(entries, asked, "right")


def _are_equal(one: Stamps, other: Stamps) -> bool:
    return np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])
