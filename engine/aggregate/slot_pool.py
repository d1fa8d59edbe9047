"""SlotPool: the states of a scan's groups, into which its pieces are folded one after the other, so that they become a
partial answer once, and not for each piece."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from .. import threads
from .plan import AggregatePlan
from .slots import Key, StateSlots

_ROWS_MAX = 1 << 30
"""Slots with more rows take no others, so that no sum overflows (`kernels.aggregate.add_integers`)."""
_IDLE_MAX = 16
_IDLE_BYTES_MAX = 8 << 20
"""The most slots to keep while no piece is folded into them; of others only the groups that occur."""


class SlotPool:
    """Slots for the states of an aggregate's groups that no piece of a scan is being folded into. Thread safe."""

    def __init__(self, plan: AggregatePlan) -> None:
        self.plan = plan
        self._idle: list[StateSlots] = []
        """Those given last are the last."""
        self._done: list[pa.Table] = []
        self._lock = threads.Lock()

    def take(self, keys: list[Key], numbers: Mapping[int, int], without_null: Collection[int]) -> StateSlots:
        """Return slots as `StateSlots` makes them, or with some more integers, with what was folded before; of all
        pieces the plan's columns have the same ``numbers``. Raises NoSlotsError."""
        with self._lock:
            for place in reversed(range(len(self._idle))):
                if self._idle[place].have(keys, without_null):
                    return self._idle.pop(place)
        return StateSlots(self.plan, keys, numbers, without_null)

    def give(self, slots: StateSlots) -> None:
        """Take slots back, for the next piece."""
        with self._lock:
            self._idle.append(slots)
            past = self._past()
        done = [one.partial() for one in past if one.row_count]
        with self._lock:
            self._done += done

    def _past(self) -> list[StateSlots]:
        """Take out what is full, and what was idle for longest if that is too much; under the lock."""
        past = [self._idle.pop()] if self._idle[-1].row_count >= _ROWS_MAX else []
        size_bytes = sum(slots.size_bytes for slots in self._idle)
        while len(self._idle) > _IDLE_MAX or size_bytes > _IDLE_BYTES_MAX:
            past.append(self._idle.pop(0))
            size_bytes -= past[-1].size_bytes
        return past

    def done(self) -> list[pa.Table]:
        """Take out the partial answers of slots that take no further piece, to be merged while the scan goes on."""
        with self._lock:
            done, self._done = self._done, []
        return done

    def partials(self) -> Iterator[pa.Table]:
        """Yield partial answers of all that is left; once the scan's pieces have ended."""
        yield from self.done()
        while self._idle:
            slots = self._idle.pop()
            if slots.row_count:
                yield slots.partial()
