"""Pace: how much can be put by one request, so that it arrives well within the time of a lease.

A slot is on its way alone, and no beat passes it. With few bytes in it a log is slow, since a request takes some 30 ms
however little it carries; with many a slow line loses the log. So it follows from how long the last requests took, and
begins with so little that a line of 16 KB a second keeps the log.
"""

from __future__ import annotations

BYTES_MIN, BYTES_MAX = 16 << 10, 8 << 20
_TELLING_BYTES = 8 << 10
"""How long less takes says nothing of the line."""
_PART_OF_LEASE = 0.2


class Pace:
    """How many ``bytes`` one request for a slot may carry. Any thread may note how long one took."""

    def __init__(self, ttl_seconds: float) -> None:
        self._seconds = _PART_OF_LEASE * ttl_seconds
        self.bytes = BYTES_MIN

    def note(self, size: int, seconds: float) -> None:
        """Take note of a request that carried ``size`` bytes."""
        if size < _TELLING_BYTES:
            return
        possible = size * self._seconds / 2 / max(seconds, 1e-6)
        if seconds > self._seconds:
            self.bytes = max(BYTES_MIN, min(self.bytes, int(possible)))
        elif seconds <= self._seconds / 2:
            self.bytes = min(BYTES_MAX, max(self.bytes, 4 * size, int(possible)))
