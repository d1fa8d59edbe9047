"""RowRun: consecutive rows in key order, of which a scan of a short range reads some; and the runs of a MemRowSet.

A DiskRowSet is one run. The rows of a MemRowSet are in the order of arrival; `KeyRuns` keeps them in a few sorted
runs of different sizes, the way of a log-structured merge (O'Neil et al., 1996): rows that came since become a run,
which is merged with those before it that are not much larger. So a row is sorted a few times, whenever it comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..vectors.keys.keys import KeyVector, U64Keys, argsort_keys, key_bytes, slice_keys, take_keys
from .key_search import SortedRows

_FACTOR = 8
"""How many times larger a run is at least than the one after it."""


PLACES = np.arange(256)
"""The first places. To make them anew gives up the GIL, and costs more than to add to them."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRun:
    """The rows [``first``, ``last``) of a rowset, or of an ``order`` of its rows (int64), in key order."""

    stored: SortedRows
    """The keys of the rowset's rows."""
    first: int
    last: int
    least: bytes
    """No key of the run is below it."""
    order: np.ndarray | None = None
    above: Callable[[int], bytes] | None = None
    """Returns a key above those at all places before one, if that is known without reading them."""

    def __len__(self) -> int:
        return self.last - self.first

    def rows(self, first: int, last: int) -> np.ndarray:
        """Return the row numbers (int64) at the places [first, last)."""
        if self.order is not None:
            return self.order[first:last]
        return PLACES[: last - first] + first if last - first <= len(PLACES) else np.arange(first, last)

    def end(self, place: int) -> bytes:
        """Return a key above those at all places before ``place``, of which there is one."""
        return self.above(place) if self.above else key_bytes(self.keys(place - 1, place), 0) + b"\0"

    def keys(self, first: int, last: int) -> KeyVector:
        """Return the encoded keys at the places [first, last)."""
        return self.stored.keys_in(first, last) if self.order is None else self.stored.keys_at(self.order[first:last])


class KeyRuns:
    """The rows of a MemRowSet in key order, as a few runs. Threads may use it at once."""

    def __init__(self) -> None:
        self._runs: tuple[np.ndarray, ...] = ()

    def of(self, keys: KeyVector) -> tuple[np.ndarray, ...]:
        """Return row numbers (int64) in runs, each in key order: those of all ``keys``, and perhaps of more that came
        meanwhile."""
        runs = self._runs
        covered = sum(map(len, runs))
        if covered < len(keys):
            new = covered + argsort_keys(slice_keys(keys, covered, len(keys)))
            while runs and len(runs[-1]) < _FACTOR * len(new):
                rows = np.concatenate((runs[-1], new))
                new, runs = rows[argsort_keys(take_keys(keys, rows))], runs[:-1]
            runs = self._runs = (*runs, new)
        return runs

    def whole(self, keys: KeyVector) -> np.ndarray:
        """Return the numbers of all rows with these keys in key order; they are one run from now on."""
        runs = self._runs
        if len(runs) != 1 or len(runs[0]) != len(keys):
            runs = self._runs = (argsort_keys(keys),)
        return runs[0]


def place_of_key(keys: KeyVector, order: np.ndarray, bound: bytes) -> int:
    """Return how many of the ``keys``, which ascend in this ``order`` (int64), sort before ``bound``."""
    if not isinstance(keys, U64Keys):
        return bisect_left(order, bound, key=lambda row: key_bytes(keys, row))
    word = int.from_bytes(bound[: keys.width].ljust(keys.width, b"\0"), "big")
    find = bisect_right if len(bound) > keys.width else bisect_left  # then an equal key is its prefix, and so smaller
    return find(order, word, key=keys.values.item)
