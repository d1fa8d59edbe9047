"""Lease: the time for which a holder may believe that it still has the log.

Whoever wants the log claims it after TTL without a new slot, counted from when it SAW the last one. The holder counts
from before it first SENT its last slot that landed, which is earlier, and stops at 80 % of TTL: two clocks that run at
somewhat different speeds do no harm. Never from the answer: it may have been on its way for long.

A lease guards reads of "now". It never guards a write: what keeps a second holder from writing is the slot itself.
"""

from __future__ import annotations

from collections.abc import Callable

from ....schemas.errors import UnavailableError

_SAFE_PART = 0.8


class Lease:
    """The time for which a holder may believe that it has a log of slots. Any thread may ask; the thread that writes
    the log renews it."""

    def __init__(self, ttl_seconds: float, boot_seconds: Callable[[], float]) -> None:
        self._seconds = _SAFE_PART * ttl_seconds
        self._boot_seconds = boot_seconds
        self._until = float("-inf")
        self._is_lost = False

    def renew(self, sent: float) -> None:
        """Count from ``sent``: a slot landed that was first sent then, in seconds since the machine started."""
        self._until = max(self._until, sent + self._seconds)

    def lose(self) -> None:
        """End the lease for good: somebody else has the log."""
        self._is_lost = True

    def covers(self, sent: float) -> bool:
        """Whether nobody can claim the log yet after a slot that was first sent at ``sent``, if that has landed."""
        return self._boot_seconds() < sent + self._seconds

    @property
    def holds(self) -> bool:
        """Whether nobody else can have the log now."""
        return not self._is_lost and self._boot_seconds() < self._until

    @property
    def seconds_left(self) -> float:
        """Until when it holds, from now on; 0 if it does not."""
        return 0.0 if self._is_lost else max(0.0, self._until - self._boot_seconds())

    def check(self) -> None:
        """Raise UnavailableError unless the lease holds."""
        if not self.holds:
            why = "another process has the store" if self._is_lost else "the log has not answered for a while"
            raise UnavailableError(
                f"this process does not know the current state: {why}; try again, or read as of an earlier time"
            )
