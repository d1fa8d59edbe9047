"""Threads that wait for the log: one of them leads, and those whose wait is over wake one another in a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

from .. import threads

UNLOGGED = 1 << 62
"""The log position of what is not in the log yet."""


class Awaited(Protocol):
    """What a thread waits for at the log: until the record at a log position is on the disk."""

    @property
    def lsn(self) -> int: ...


class Position:
    """The position of a record in the log."""

    __slots__ = ("lsn",)

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn


class Turn:
    """A thread's wait for the log: until what is ``awaited`` is on the disk, or until the thread shall lead.

    Those whose wait ends together are linked into a chain. Each wakes the next when it runs: woken at once, they would
    all wait for the interpreter, and be woken again and again to find it taken.
    """

    __slots__ = ("_lock", "_next", "awaited", "has_come")

    def __init__(self, awaited: Awaited) -> None:
        self.awaited = awaited
        self.has_come = False
        """Whether the wait ended, and not its time."""
        self._next: Turn | None = None
        self._lock = threads.Lock()
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


class Turns:
    """Whose turn it is to lead the writes of the log, and who waits. The caller holds a lock but where the methods say
    otherwise."""

    def __init__(self) -> None:
        self.leader: Turn | None = None
        self.waiting: list[Turn] = []

    def enter(self, turn: Turn) -> bool:
        """Make a thread the leader, or let it wait."""
        if self.leader is None:
            self.leader = turn
            return True
        self.waiting.append(turn)
        return False

    def leave(self, turn: Turn) -> None:
        """Let a thread wait no more."""
        if turn in self.waiting:
            self.waiting.remove(turn)

    def served(self, lsn: int) -> list[Turn]:
        """Take out and link those whose wait is over, since the log is on the disk up to ``lsn``, with the next leader
        before them: it writes while the others run. Who begins the chain is to be woken."""
        found: list[Turn] = []
        waiting, self.waiting = self.waiting, []
        for turn in waiting:
            (found if turn.awaited.lsn <= lsn else self.waiting).append(turn)
        if self.waiting:
            found.insert(0, self.waiting.pop(0))
        link(found)
        return found


def link(turns: list[Turn]) -> None:
    """Make a chain of turns of threads that wait for the log and have not come; the first one begins it."""
    for turn, following in pairwise(turns):
        turn._next = following


@contextmanager
def held(lock: threads.Lock, seconds: float, check: Callable[[], None]) -> Iterator[None]:
    """Have a lock of the log during the body. ``check``, which may raise, is called after each so many ``seconds`` of
    waiting."""
    while not lock.acquire(timeout=seconds):
        check()
    try:
        yield
    finally:
        lock.release()
