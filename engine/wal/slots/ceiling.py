"""CeilingClock: a clock that gives out no timestamp above what the log says it may.

The next holder starts its clock above the ceiling, so above every timestamp that was ever given out, whatever its
machine's time of day is. A snapshot that somebody got from an earlier holder stays one. The ceiling lies a while in the
future: whoever releases the log freezes its clock first, and releases with the last timestamp as the ceiling. Else the
next holder, who need not wait, would begin in the future, and each restart would lead further into it.
"""

from __future__ import annotations

from ....schemas.errors import UnavailableError
from ... import threads
from ...mvcc.clock import Clock, timestamp_of


class CeilingClock:
    """The ``Clock`` of a log's holder, on another one's time of day, below the ceiling in its slots. When that time
    leaps past the ceiling, it follows with the next slots."""

    def __init__(self, inner: Clock, floor: int) -> None:
        """``floor``: every timestamp will be greater."""
        self._inner = inner
        self._last = self._ceiling = self._foreseen = floor
        self._is_frozen = False
        self._mutex = threads.Lock()

    def physical_microseconds(self) -> int:
        return self._inner.physical_microseconds()

    def steady_microseconds(self) -> int:
        return self._inner.steady_microseconds()

    def now(self) -> int:
        """See ``Clock``. Raises UnavailableError if the log must answer first."""
        with self._mutex:
            now = self._next()
            if self._is_frozen or now > self._ceiling:
                raise UnavailableError(
                    "the bucket has not confirmed the log for too long; writes resume when it answers"
                )
            self._last = now
            return now

    def update(self, timestamp: int) -> None:
        """See ``Clock``. Raises UnavailableError if the next holder may give out what is above a frozen clock."""
        with self._mutex:
            if self._is_frozen and timestamp > self._last:
                raise UnavailableError("this process has released the log, and its next holder assigns timestamps")
            self._last = max(self._last, timestamp)

    def settle(self) -> int:
        """Return a timestamp that is not less than any given out, and less than all to come."""
        with self._mutex:
            if not self._is_frozen:
                self._last = max(self._last, min(self._next(), self._ceiling))
            return self._last

    def freeze(self) -> int:
        """Settle for good: nothing is given out any more above what this returns."""
        self.settle()
        with self._mutex:
            self._is_frozen = True
            return self._last

    def raise_ceiling(self, ceiling: int) -> None:
        """Allow timestamps up to ``ceiling``: a slot that says so has landed."""
        with self._mutex:
            self._ceiling = max(self._ceiling, ceiling)

    def foresee(self, timestamp: int) -> None:
        """Let the next ceiling be above ``timestamp``, which another clock has reached: then ``update`` may follow."""
        with self._mutex:
            self._foreseen = max(self._foreseen, timestamp)

    def ceiling_for(self, seconds: float) -> int:
        """Return a ceiling that suffices for so many seconds, if the time of day goes on evenly."""
        with self._mutex:
            newest = max(self._last, self._foreseen, timestamp_of(self._inner.physical_microseconds()))
        return newest + timestamp_of(round(seconds * 1e6))

    def _next(self) -> int:
        physical = timestamp_of(self._inner.physical_microseconds())
        return physical if self._last < physical <= self._ceiling else self._last + 1
