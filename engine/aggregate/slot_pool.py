"""SlotPool: the states of a scan's groups, into which its pieces are folded one after the other, so that they become a
partial answer once, and not for each piece."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from .plan import AggregatePlan
from .slots import Key, StateSlots

_ROWS_MAX = 1 << 30
"""Slots with more rows take no others, so that no sum overflows (`kernels.aggregate.add_integers`)."""
_FREE_MAX = 64
"""The most slots to keep; of others only the groups that occur."""


class SlotPool:
    """Slots that no piece is being folded into. Thread safe."""

    def __init__(self, plan: AggregatePlan) -> None:
        self.plan = plan
        self._free: dict[Any, list[StateSlots]] = {}
        self._free_count = 0
        self._done: list[pa.Table] = []
        self._lock = threading.Lock()

    def take(self, keys: list[Key], numbers: Mapping[int, int], without_null: Collection[int]) -> StateSlots:
        """Return slots as `StateSlots` makes them, with what was folded before; of all pieces the plan's columns have
        the same ``numbers``. Raises NoSlotsError."""
        kind = _kind(keys, without_null)
        with self._lock:
            free = self._free.get(kind)
            if free:
                self._free_count -= 1
                return free.pop()
        return StateSlots(self.plan, keys, numbers, without_null)

    def give(self, slots: StateSlots) -> None:
        """Take slots back, for the next piece."""
        with self._lock:
            is_kept = self._free_count < _FREE_MAX and slots.row_count < _ROWS_MAX
            if is_kept:
                self._free_count += 1
                self._free.setdefault(_kind(slots.keys, slots.without_null), []).append(slots)
        if not is_kept and slots.row_count:
            self._done.append(slots.partial())

    def partials(self) -> Iterator[pa.Table]:
        """Yield partial answers of all that was folded; once the scan's pieces have ended."""
        yield from self._done
        for free in self._free.values():
            yield from (slots.partial() for slots in free if slots.row_count)


def _kind(keys: list[Key], without_null: Collection[int]) -> tuple[Any, ...]:
    """Return what slots have in common if rows of one piece and of another have the same numbers of groups. Slots keep
    the dictionaries of their keys, so that no other gets the same identity."""
    numbers = [(key.column_number, key.has_null, id(key.values), key.low, key.high) for key in keys]
    return (frozenset(without_null), *numbers)
