"""Which DiskRowSets to merge: the most gain for a budget of bytes to rewrite. After Apache Kudu's budgeted policy.

The key space is laid out on [0, 1] by how much data lies where: a rowset's bytes are taken as spread evenly between
its first key and its last. Then the width of a rowset is the chance that a random row's key falls into its range, and
the sum of all widths, the average height, is the number of rowsets whose range holds it. Merging a set replaces the
sum of its widths by the width of their span. Two things are added to a width:

* small rowsets count a little more, so that they merge even where they do not overlap;
* what share of the tablet's bytes goes when rows that are past history, columns that were dropped, and cells that were
  rewritten in a file since are left out.

For each rowset that may be the first of the set and each that may end last, the span is known, and what to take in
between is a knapsack: exact, by dynamic programming over whole megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

MIN_GAIN = 0.01
"""What is worth less is not worth doing."""
_SMALL_BYTES = 32 << 20
_SMALL_BONUS = 0.009
"""Below ``MIN_GAIN``, so that a small rowset is not rewritten alone again and again."""
_COST = 1e-7
"""Taken off each rowset's worth, so that what gains nothing is not rewritten."""
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rowset that a compaction may merge."""

    rowset_id: int
    min_key: bytes
    max_key: bytes
    size_bytes: int
    dead_share: float = 0.0
    """Share of its bytes that a merge would leave out for good: of rows long dead, of columns that were dropped, and
    of cells that a major delta compaction has rewritten elsewhere."""

    @property
    def megabytes(self) -> int:
        """What it takes of the budget."""
        return max(1, -(-self.size_bytes // _MEGABYTE))


@dataclass(frozen=True, slots=True)
class Pick:
    """Rowsets that a compaction merges, and by how much the average height (and more: see the module) drops."""

    rowset_ids: frozenset[int]
    gain: float


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate for a merge on [0, 1]."""

    low: float
    high: float
    worth: float
    """Its width, and what is added to it."""
    megabytes: int
    rowset_id: int


@lru_cache(maxsize=256)
def pick(candidates: tuple[Candidate, ...], budget_megabytes: int) -> Pick | None:
    """Return the best set of rowsets to merge, of at most ``budget_megabytes``; None when none is worth it."""
    best: tuple[float, int, list[Placed]] = (MIN_GAIN, 0, [])
    placed = [one for one in place(candidates) if one.megabytes <= budget_megabytes]
    for first in placed:
        others = [one for one in placed if one is not first and one.low >= first.low]
        others.sort(key=lambda one: one.high)
        gain, count = _best_end(first, others, budget_megabytes - first.megabytes)
        if gain > best[0]:
            best = (gain, count, [first, *others])
    gain, count, items = best
    if not items:
        return None
    chosen = _chosen(items[1 : count + 1], budget_megabytes - items[0].megabytes)
    return Pick(frozenset(one.rowset_id for one in [items[0], *chosen]), float(gain))


def place(candidates: Sequence[Candidate]) -> list[Placed]:
    """Lay candidates for a merge out on [0, 1] by how much data lies below their keys."""
    if not candidates:
        return []
    lows, highs = _numbers(candidates)
    sizes = np.array([one.size_bytes for one in candidates], np.float64)
    points = np.array(sorted({*lows.tolist(), *highs.tolist()}))  # np.unique would import numpy.ma at each start
    density = np.zeros(len(points))
    firsts, lasts = np.searchsorted(points, lows), np.searchsorted(points, highs)
    for first, last, size in zip(firsts, lasts, sizes / (highs - lows), strict=True):
        density[first:last] += size
    below = np.concatenate([[0.0], np.cumsum(density[:-1] * np.diff(points))])
    below /= below[-1]
    total = sizes.sum()
    return [
        Placed(
            float(below[first]),
            float(below[last]),
            float(below[last] - below[first])
            + _SMALL_BONUS * max(0.0, 1 - one.size_bytes / _SMALL_BYTES)
            + one.dead_share * one.size_bytes / float(total)
            - _COST,
            one.megabytes,
            one.rowset_id,
        )
        for one, first, last in zip(candidates, firsts.tolist(), lasts.tolist(), strict=True)
    ]


def _numbers(candidates: Sequence[Candidate]) -> tuple[np.ndarray, np.ndarray]:
    """Return first and last keys as numbers: the 8 bytes after the prefix that all share. Last ones are exclusive."""
    lowest, highest = min(one.min_key for one in candidates), max(one.max_key for one in candidates)
    shared = next((at for at, (a, b) in enumerate(zip(lowest, highest, strict=False)) if a != b), len(lowest))

    def number(key: bytes) -> float:
        return float(int.from_bytes(key[shared : shared + 8].ljust(8, b"\0"), "big"))

    lows = np.array([number(one.min_key) for one in candidates])
    # A float has 53 bits: the next number is far enough away to be another.
    highs = np.array([number(one.max_key) for one in candidates])
    return lows, np.maximum(highs, np.nextafter(lows + 1, np.inf))


def _best_end(first: Placed, others: Sequence[Placed], budget: int) -> tuple[float, int]:
    """Return the best gain of sets that begin with ``first``, and how many of ``others`` to choose from for it."""
    best, count = first.worth - (first.high - first.low), 0
    value = np.zeros(budget + 1)
    for number, other in enumerate(others, 1):
        _add(value, other)
        span = max(first.high, other.high) - first.low
        gain = first.worth + float(value[-1]) - span
        if gain > best + 1e-12:
            best, count = gain, number
    return best, count


def _add(value: np.ndarray, item: Placed) -> np.ndarray:
    """Let an item be taken into the knapsacks of 0, 1, 2 ... megabytes; return which take it."""
    room = len(value) - item.megabytes
    takes = np.zeros(len(value), np.bool_)
    if room > 0:
        with_item = value[:room] + item.worth
        takes[item.megabytes :] = with_item > value[item.megabytes :]
        value[item.megabytes :] = np.maximum(value[item.megabytes :], with_item)
    return takes


def _chosen(items: Sequence[Placed], budget: int) -> list[Placed]:
    """Return the items of the fullest knapsack."""
    value = np.zeros(budget + 1)
    takes = [_add(value, item) for item in items]
    chosen: list[Placed] = []
    for item, taken in zip(reversed(items), reversed(takes), strict=True):
        if taken[budget]:
            chosen.append(item)
            budget -= item.megabytes
    return chosen
