"""Hybrid time: the order of events in one integer, close to the time of day.

    63                    12 11          0
    +-----------------------+-------------+
    | microseconds of 1970  |   logical   |
    +-----------------------+-------------+

The logical part tells apart what happens within a microsecond, and carries over into the microseconds when 4,096
events share one; so a timestamp may run ahead of the wall, but it never repeats and never goes back, whatever an
operator or NTP does to the clock.  (Kulkarni et al., "Logical Physical Clocks", 2014; Kudu's ``HybridClock``.)

The only module of the engine that reads a clock.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

LOGICAL_BITS = 12


def timestamp_of(microseconds: int) -> int:
    """Return the first timestamp of a microsecond."""
    return microseconds << LOGICAL_BITS


def microseconds_of(timestamp: int) -> int:
    """Return the microsecond in which a timestamp lies."""
    return timestamp >> LOGICAL_BITS


class Clock(Protocol):
    """Hands out timestamps; all methods may be called by many threads at once."""

    def now(self) -> int:
        """Return a timestamp greater than any that ``now`` returned and any that ``update`` was given."""
        ...

    def update(self, timestamp: int) -> None:
        """Make every later ``now`` greater than ``timestamp``: after a restart, or when another clock is ahead.

        The caller decides how far into the future it believes others.
        """
        ...

    def physical_microseconds(self) -> int:
        """Return the time of day, microseconds since 1970 UTC; it may jump."""
        ...


class _HybridClock:
    """``now`` and ``update`` over a time of day that a subclass supplies."""

    def __init__(self) -> None:
        self._last = 0
        self._mutex = threading.Lock()

    def physical_microseconds(self) -> int:
        raise AssertionError("a subclass tells the time")

    def now(self) -> int:
        with self._mutex:
            self._last = max(self._last + 1, timestamp_of(self.physical_microseconds()))
            return self._last

    def update(self, timestamp: int) -> None:
        with self._mutex:
            self._last = max(self._last, timestamp)


class SystemClock(_HybridClock):
    """The machine's time of day."""

    def physical_microseconds(self) -> int:
        return time.time_ns() // 1000


class ManualClock(_HybridClock):
    """A time of day that moves only by ``advance``, so that a test owns it."""

    def __init__(self, microseconds: int = 1_000_000) -> None:
        super().__init__()
        self._microseconds = microseconds

    def physical_microseconds(self) -> int:
        return self._microseconds

    def advance(self, microseconds: int) -> None:
        """Move the time of day; a negative distance is a clock that was set back."""
        self._microseconds += microseconds
