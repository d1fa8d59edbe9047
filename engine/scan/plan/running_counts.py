"""RunningCounts: what all scans of a store have read and skipped, those that run included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....schemas.rows.prune_count import PruneCount
from ... import threads


class RunningCounts:
    """What all scans of a store have read and skipped, those that run included. Thread safe."""

    def __init__(self) -> None:
        self._ended = PruneCount()
        self._running: dict[int, PruneCount] = {}
        self._lock = threads.RLock()  # the garbage collector may end a scan on a thread that holds it

    @contextmanager
    def counting(self, count: PruneCount) -> Iterator[None]:
        """Add up what a scan counts, during the body and after it."""
        with self._lock:
            self._running[id(count)] = count
        try:
            yield
        finally:
            with self._lock:
                del self._running[id(count)]
                self._ended.add(count)

    def add(self, count: PruneCount) -> None:
        """Add what a scan has counted that has ended."""
        with self._lock:
            self._ended.add(count)

    def now(self) -> PruneCount:
        """Return the sums. No number is smaller than before."""
        with self._lock:
            found = PruneCount()
            for count in (self._ended, *self._running.values()):
                found.add(count)
            return found
