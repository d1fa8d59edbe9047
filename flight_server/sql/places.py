"""SqlPlaces: the child processes of a server, and who may have one now."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...schemas.errors import UnavailableError
from .channel import ChannelClosedError
from .statement_child import ChildHandle

_LOG = logging.getLogger("nyala.flight_server")
_LOOK_SECONDS = 0.05


@dataclass(eq=False, slots=True)
class _Waiter:
    user: str
    of_transaction: ChildHandle | None
    text: str
    came: threading.Event = field(default_factory=threading.Event)
    child: ChildHandle | None = None
    failure: UnavailableError | None = None
    """Why there can be no child now."""


class SqlPlaces:
    """The child processes of Flight SQL, at most ``places``. Statements that find none wait in a queue, in which no
    user stands before another for long: each may have ``user_share`` of the places. Thread safe."""

    def __init__(
        self, start: Callable[[], ChildHandle], places: int, user_share: float, waiting_max: int, seconds_max: float
    ) -> None:
        self._start = start
        self._places = places
        self._user_max = max(1, math.floor(places * user_share))
        self._waiting_max = waiting_max
        self._seconds_max = seconds_max
        self._lock = threading.RLock()
        self._idle: list[ChildHandle] = []
        self._busy: dict[ChildHandle, str] = {}
        self._waiters: deque[_Waiter] = deque()
        self._is_closed = False

    @contextmanager
    def taken(
        self, user: str, check: Callable[[], None], text: str = "", of_transaction: ChildHandle | None = None
    ) -> Iterator[ChildHandle]:
        """Let the body have a child; ``of_transaction`` is the one that holds its transaction. Of several that are idle
        it is the one that ran ``text`` last. ``check`` raises if nobody waits any more.

        Raises:
            UnavailableError: too many statements wait, or none has ended in time, or the child is gone.
        """
        child = self._take(user, check, text, of_transaction)
        try:
            yield child
        finally:
            self._give_back(child)

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._is_closed = True
            children = [*self._idle, *self._busy]
            self._idle.clear()
        for child in children:
            child.kill()

    def _take(self, user: str, check: Callable[[], None], text: str, of_transaction: ChildHandle | None) -> ChildHandle:
        waiter = _Waiter(user, of_transaction, text)
        end = time.monotonic() + self._seconds_max
        try:
            with self._lock:
                if len(self._waiters) >= self._waiting_max:
                    raise UnavailableError("too many statements wait for a place (sql_places): try again later", 1.0)
                self._waiters.append(waiter)
                self._serve()
            while not waiter.came.wait(_LOOK_SECONDS):
                check()
                if time.monotonic() > end:
                    raise UnavailableError("no place for the statement is free (sql_places): try again later", 1.0)
        except BaseException:
            self._leave(waiter)
            raise
        if waiter.failure is not None:
            raise waiter.failure
        if waiter.child is None:
            raise UnavailableError("the process that held the transaction is gone: begin another transaction")
        return waiter.child

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.child is not None:
                self._give_back(waiter.child)

    def _give_back(self, child: ChildHandle) -> None:
        with self._lock:
            self._busy.pop(child, None)
            if child.is_alive and not self._is_closed:
                self._idle.append(child)
            self._serve()

    def _serve(self) -> None:
        """Give places to waiters, the first ones first, but for users who have their share."""
        if self._is_closed:
            for waiter in self._waiters:
                waiter.failure = UnavailableError("the server is stopping; try again when it is back", 1.0)
                waiter.came.set()
            self._waiters.clear()
            return
        busy = Counter(self._busy.values())
        for waiter in list(self._waiters):
            if waiter.of_transaction is None and busy[waiter.user] >= self._user_max:
                continue
            if waiter.of_transaction is not None and waiter.of_transaction in self._busy:
                continue
            if waiter.of_transaction is not None and not waiter.of_transaction.is_alive:
                child = None
            else:
                child = waiter.of_transaction or self._idle_child(waiter)
                if child is None and waiter.failure is None:
                    continue
            self._waiters.remove(waiter)
            if child is not None:
                if child in self._idle:
                    self._idle.remove(child)
                self._busy[child] = waiter.user
                child.text = waiter.text or child.text
                busy[waiter.user] += 1
            waiter.child = child
            waiter.came.set()

    def _idle_child(self, waiter: _Waiter) -> ChildHandle | None:
        """Return a child for a waiter, which may be a new one. None: there is no place, or it cannot be started."""
        self._idle = [each for each in self._idle if each.is_alive]
        if self._idle:
            with_plan = [each for each in self._idle if each.text == waiter.text]
            return (with_plan or sorted(self._idle, key=lambda each: each.transactions))[0]
        if len(self._busy) >= self._places:
            return None
        try:
            return self._start()
        except (OSError, ChannelClosedError) as error:  # too many processes or files, or too little memory
            _LOG.warning("a process of statements cannot be started: %s", error)
            waiter.failure = UnavailableError("no process can be started for the statement: try again later", 1.0)
            return None

    def start_one(self) -> None:
        """Start a process before the first statement comes."""
        with self._lock:
            if not self._idle and not self._busy:
                self._idle.append(self._start())
