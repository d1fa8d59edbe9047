"""The order of the changes of a row, in tables where a column says it (``order_by``): which rows of a batch are stale.

A row is stale if its value is below that of the row in the tablet, or of an earlier row of the batch that applied. NULL
is below every value, and a key without a row has NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ..vectors.arrow import from_arrow
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import FixedVector

_LOWEST = np.iinfo(np.int64).min


def ranks_of(parts: Sequence[pa.Array]) -> list[np.ndarray]:
    """For a tablet that orders the changes of a row, return numbers (int64) that compare as the cells of arrays of one
    type do."""
    cells = pa.concat_arrays(parts)
    numbers, is_null = _numbers(cells), cells.is_null().to_numpy(zero_copy_only=False)
    if numbers is None or (cells.null_count and (numbers[~is_null] == _LOWEST).any()):
        numbers = pc.rank(cells, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if cells.null_count:
        numbers[is_null] = _LOWEST
    return np.split(numbers, np.cumsum([len(part) for part in parts[:-1]]))


def _numbers(cells: pa.Array) -> np.ndarray | None:
    """Return integers of at most 64 bits as such, a copy; None for other cells."""
    physical = physical_of(cells.type)
    if physical in (PhysicalType.BYTES, PhysicalType.INT128):
        return None
    vector = from_arrow(cells, physical)
    assert isinstance(vector, FixedVector), "a column that orders changes has integers"
    return vector.values.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RowsInTime:
    """Which rows of a batch come in time, in a tablet whose rows have an order. Rows of one key have the number of the
    key."""

    stale: np.ndarray
    """bool for each row."""
    first: np.ndarray
    """For each key, its first row that is not stale; -1 if all are."""
    last: np.ndarray
    """For each key, its last row that is not stale; -1 if all are."""


def rows_in_time(ranks: np.ndarray, stored: np.ndarray, keys: np.ndarray, acts: np.ndarray, meets: bool) -> RowsInTime:
    """Return which rows of a batch are stale, in a tablet whose rows have an order.

    Args:
        ranks: of the batch's rows.
        stored: of the row that each key has.
        keys: the number of each row's key.
        acts: for each key, whether its rows that come in time change anything.
        meets: only the first of these applies.
    """
    if len(stored) == len(ranks):
        stale = ranks < stored[keys]
        place = np.full(len(stored), -1, np.int64)
        place[keys] = np.where(stale, -1, np.arange(len(keys)))
        return RowsInTime(stale, place, place)
    order = np.argsort(keys, kind="stable")
    of = keys[order]
    _, dense = np.unique(np.concatenate([ranks, stored]), return_inverse=True)
    mine, theirs = dense[: len(ranks)][order], dense[len(ranks) :][of]
    base = of * (int(dense.max()) + 1)  # keys ascend, so that each begins anew
    highest = np.maximum.accumulate(np.maximum(mine, theirs) + base) - base
    first = _first_of(of, mine >= theirs, len(stored))
    late = mine < theirs
    if meets:
        late |= acts[of] & (first[of] >= 0) & (mine < mine[first[of]])
    else:
        late |= acts[of] & (mine < highest)
    stale = np.empty(len(keys), np.bool_)
    stale[order] = late
    last = np.full(len(stored), -1, np.int64)
    in_time = np.flatnonzero(~late)
    last[of[in_time]] = order[in_time]  # of repeated keys, numpy keeps the last
    return RowsInTime(stale, np.where(first >= 0, order[first], -1), last)


def _first_of(keys: np.ndarray, chosen: np.ndarray, count: int) -> np.ndarray:
    """Return the first chosen place of each key, -1 if there is none."""
    first = np.full(count, -1, np.int64)
    places = np.flatnonzero(chosen)[::-1]
    first[keys[places]] = places
    return first
