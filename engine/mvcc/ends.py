"""Ends of what is kept until a time of day, which may jump."""

from __future__ import annotations

from collections.abc import Hashable

from .clock import Clock


class Ends:
    """Whether kept things are over: by the time of day, and by the time that has passed since their end was first
    looked at. So a time of day that jumps ahead ends nothing before its time. Thread safe."""

    def __init__(self) -> None:
        self._ends: dict[Hashable, tuple[int, int]] = {}
        """Ends on the clock that may jump, and on the one that never does."""

    def is_over(self, kept: Hashable, until: int, clock: Clock) -> bool:
        """Look at the end of a thing, in microseconds since 1970."""
        today, now = clock.physical_microseconds(), clock.steady_microseconds()
        seen_until, end = self._ends.get(kept, (None, 0))
        if seen_until != until:
            end = now + max(until - today, 0)
            self._ends[kept] = until, end
        return until <= today and end <= now

    def forget(self, kept: Hashable) -> None:
        """Note that a thing is gone."""
        self._ends.pop(kept, None)
