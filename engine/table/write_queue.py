"""WriteQueue: small writes to one table that wait for one another, so that they can be applied together.

While one thread applies writes, those of others wait in the queue. Then the first of them leads: it takes all that
wait, applies those that go together, and lets the other threads apply theirs themselves. So a write that meets no other
is applied by its own thread at once. Syncing is not part of it: while one group becomes durable, the next is applied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pyarrow as pa

from ...schemas.rows.write import Durability, WriteCommand
from ..commit.commit_authors import Origin
from ..commit.numbered_writes import Ticket
from .pending_write import PendingWrite

_WRITES_MAX = 256
"""In one group."""
_RECHECK_SECONDS = 1.0
"""A leader that is interrupted while it hands over may wake nobody."""


@dataclass(slots=True, eq=False)
class QueuedWrite:
    """A small write, and what became of it: an answer to come, an error, or that its own thread shall apply it."""

    command: WriteCommand
    batch: pa.RecordBatch
    durability: Durability
    ticket: Ticket | None
    origin: Origin
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Released when the write is settled, or when its thread shall lead."""
    pending: PendingWrite | None = None
    error: Exception | None = None
    is_alone: bool = False

    @property
    def is_settled(self) -> bool:
        return self.is_alone or self.pending is not None or self.error is not None

    def goes_with(self, other: QueuedWrite) -> bool:
        """Whether both may be rows of one batch, if they have no key in common."""
        return (
            self.command.op is other.command.op
            and self.durability is other.durability
            and self.batch.schema.equals(other.batch.schema)
        )

    def keys(self, names: list[str]) -> set[Hashable] | None:
        """Return the values of the key columns that the data has; None if the data is malformed, or hard to compare."""
        try:
            self.batch.validate(full=True)
            columns = [self.batch.column(name).to_pylist() for name in names if name in self.batch.schema.names]
            return set(zip(*columns, strict=True))
        except (LookupError, ValueError, OverflowError, TypeError, pa.ArrowException):
            return None


class WriteQueue:
    """The waiting writes to one table. Thread safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._leader: QueuedWrite | None = None
        self._queue: list[QueuedWrite] = []

    def begin(
        self,
        write: QueuedWrite,
        names: list[str],
        together: Callable[[list[QueuedWrite]], None],
        alone: Callable[[], PendingWrite],
    ) -> PendingWrite:
        """Apply a write, with those that wait or ``alone``; raises its error.

        ``names`` are the key columns. ``together`` applies two or more writes that have no key in common; it settles
        each, whatever it raises.
        """
        write.turn.acquire()
        try:
            with self._mutex:
                self._queue.append(write)
            while not write.is_settled:
                if self._leads(write):
                    self._lead(write, names, together)
                else:
                    write.turn.acquire(timeout=_RECHECK_SECONDS)
            if write.error is not None:
                raise write.error
            return write.pending or alone()
        except BaseException:
            self._withdraw(write)
            raise
        finally:
            if self._leader is write:
                self._leader = None
                self._hand_over()

    def _leads(self, write: QueuedWrite) -> bool:
        with self._mutex:
            if self._leader is None and write in self._queue:
                self._leader = write
            return self._leader is write

    def _lead(self, mine: QueuedWrite, names: list[str], together: Callable[[list[QueuedWrite]], None]) -> None:
        with self._mutex:
            taken, self._queue = self._queue, []
        try:
            for group in _groups(taken, names) if len(taken) > 1 else []:
                together(group)
                _release(group, mine)
        finally:
            left = [write for write in taken if not write.is_settled]
            for write in left:
                write.is_alone = True
            _release(left, mine)

    def _hand_over(self) -> None:
        with self._mutex:
            if self._leader is None and self._queue:
                self._leader = self._queue[0]
                self._leader.turn.release()

    def _withdraw(self, write: QueuedWrite) -> None:
        """Leave the queue; if a leader has taken the write, wait for what becomes of it."""
        with self._mutex:
            if write in self._queue:
                self._queue.remove(write)
                return
        while self._leader is not write and not write.is_settled:
            write.turn.acquire(timeout=_RECHECK_SECONDS)


def _groups(taken: list[QueuedWrite], names: list[str]) -> list[list[QueuedWrite]]:
    """Return the groups of two or more writes that go together and have no key in common."""
    groups: list[tuple[list[QueuedWrite], set[Hashable]]] = []
    for write in taken:
        keys = write.keys(names)
        if keys is None:
            continue
        for group, known in groups:
            if len(group) < _WRITES_MAX and write.goes_with(group[0]) and (known.isdisjoint(keys) or keys == {()}):
                group.append(write)
                known |= keys
                break
        else:
            groups.append(([write], keys))
    return [group for group, _ in groups if len(group) > 1]


def _release(writes: list[QueuedWrite], mine: QueuedWrite) -> None:
    for write in writes:
        if write is not mine:
            write.turn.release()
