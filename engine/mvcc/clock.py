"""Hybrid time: the order of events in one integer, close to the time of day.

    63                    12 11          0
    +-----------------------+-------------+
    | microseconds of 1970  |   logical   |
    +-----------------------+-------------+

The logical part orders events within a microsecond, and carries over into the microseconds when 4,096 events share one.
So a timestamp may run ahead of the wall clock, but it never repeats and never goes back, whatever an operator or NTP
does to the clock.  (Kulkarni et al., "Logical Physical Clocks", 2014; Kudu's ``HybridClock``.)

The only module of the engine that reads a clock.
"""

from __future__ import annotations

import time
from typing import Protocol

from .. import threads

LOGICAL_BITS = 12


def timestamp_of(microseconds: int) -> int:
    """Return the first hybrid timestamp of a microsecond."""
    return microseconds << LOGICAL_BITS


def microseconds_of(timestamp: int) -> int:
    """Return the microsecond of a hybrid timestamp."""
    return timestamp >> LOGICAL_BITS


def elapsed_seconds() -> float:
    """Return the time since some moment in the past, to measure how long work takes. No test sets it."""
    return time.perf_counter()


def boot_seconds() -> float:
    """Return the time since this machine started, with the time that it was suspended. No operator changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock(Protocol):
    """Generates hybrid timestamps for commits. Thread safe."""

    def now(self) -> int:
        """Return a timestamp greater than all results of ``now`` and all arguments of ``update``."""
        ...

    def update(self, timestamp: int) -> None:
        """Make every later ``now`` greater than ``timestamp``: after a restart, or if another clock is ahead.

        The caller limits how far ahead it accepts other clocks.
        """
        ...

    def physical_microseconds(self) -> int:
        """Return the time of day, microseconds since 1970 UTC; it may jump."""
        ...

    def steady_microseconds(self) -> int:
        """Return the microseconds since some moment in the past; they never jump, whatever is done to the time of
        day. Another process counts from another moment."""
        ...


class SystemClock:
    """Hybrid timestamps over the machine's time of day."""

    def __init__(self) -> None:
        self._last = 0
        self._mutex = threads.Lock()

    def physical_microseconds(self) -> int:
        return time.time_ns() // 1000

    def steady_microseconds(self) -> int:
        return int(threads.monotonic() * 1_000_000)

    def now(self) -> int:
        with self._mutex:
            now = self.physical_microseconds() << LOGICAL_BITS
            self._last = now if now > self._last else self._last + 1
            return self._last

    def update(self, timestamp: int) -> None:
        with self._mutex:
            self._last = max(self._last, timestamp)
