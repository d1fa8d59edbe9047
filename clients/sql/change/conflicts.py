"""Tries of a statement that other writers interrupt, and turns, so that each statement comes to its end.

A statement that reads rows, and writes them only if they have not changed since, may be refused for ever where many do
the same. After two refusals it waits for its turn on the table: statements that have a turn run one after another, in
the order in which they asked. A new statement asks at once where others wait. Turns hold within one process.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ....schemas.errors import ConflictError
from ....schemas.protocol.request import check
from ....schemas.store.description import TableDescription

TRIES = 10
"""How often a statement is tried."""
_FREE_TRIES = 2
"""How many of the tries need no turn."""
_CHECK_SECONDS = 0.1
_PAUSE_SECONDS = 0.002
_Found = TypeVar("_Found")


class Turns:
    """The turns of SQL statements that change one table: one after another, first come, first served. For many
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[threading.Event]] = {}

    def is_awaited(self, table: Hashable) -> bool:
        """Return whether somebody has the turn on a table, or waits for it."""
        return table in self._queues

    def awaited(self) -> list[Hashable]:
        """Return the tables on which somebody has the turn."""
        with self._lock:
            return list(self._queues)

    @contextmanager
    def turn(self, table: Hashable) -> Iterator[None]:
        """Wait for the turn on a table, and have it during the body.

        Raises:
            UnavailableError: the request that this thread serves ended meanwhile.
        """
        mine = threading.Event()
        with self._lock:
            queue = self._queues.setdefault(table, deque())
            queue.append(mine)
            queue[0].set()
        try:
            while not mine.wait(_CHECK_SECONDS):
                check()
            yield
        finally:
            with self._lock:
                queue.remove(mine)
                if queue:
                    queue[0].set()
                else:
                    del self._queues[table]


TURNS = Turns()
"""The turns of this process, on the tables of all stores."""


def tried(turns: Turns, table: TableDescription, attempt: Callable[[], _Found]) -> _Found:
    """Return what ``attempt`` returns, a try of an SQL statement, which is called again after a conflict.

    Raises:
        ConflictError: all tries met a conflict; the message names the key of the last.
        StoreError: what else ``attempt`` raises.
    """
    identity = _identity(table)
    for number in range(_FREE_TRIES):
        if turns.is_awaited(identity):
            break
        try:
            return attempt()
        except ConflictError:
            _pause(number)
    with turns.turn(identity):
        for number in range(_FREE_TRIES, TRIES):
            try:
                return attempt()
            except ConflictError as error:
                if number == TRIES - 1:
                    raise ConflictError(
                        f"{error.message}; {TRIES} tries conflicted with other changes: try again later"
                    ) from None
                _pause(number)
    raise AssertionError("the last try returns or raises")


def _pause(number: int) -> None:
    check()
    time.sleep(random.random() * _PAUSE_SECONDS * 2 ** min(number, 5))


def _identity(table: TableDescription) -> str:
    return " ".join(f"{each.store_uuid}:{each.table_id}" for each in table.stores) or table.name
