"""A thread's wait for others in a queue, in a chain of which each wakes the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise


class Turn:
    """A wait for the log position ``lsn``: until the record is on the disk, or until its thread shall lead.

    Those whose wait ends together are linked into a chain. Each wakes the next when it runs: woken at once, they would
    all wait for the interpreter, and be woken again and again to find it taken.
    """

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.has_come = False
        """Whether the wait ended, and not its time."""
        self._next: Turn | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self, seconds: float) -> None:
        """Wait for the turn, or for so long."""
        self.has_come = self._lock.acquire(timeout=seconds)

    def come(self) -> None:
        """End the wait."""
        self._lock.release()

    def pass_on(self) -> None:
        """End the wait of the next one in the chain. Whoever is in a chain owes it once it waits no more."""
        following, self._next = self._next, None
        if following is not None:
            following.come()


def link(turns: Sequence[Turn]) -> None:
    """Make a chain of turns that have not come; the first one begins it."""
    for turn, following in pairwise(turns):
        turn._next = following
