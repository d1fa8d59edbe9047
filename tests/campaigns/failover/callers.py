"""Calls of clients that find the server which has the store by themselves, and know who answered when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from typing import Any, TypeVar

import nyala
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.rows.write import WriteResult
from tests.campaigns.failover.history import Acknowledged, Life
from tests.campaigns.failover.member import Member
from tests.campaigns.model.oracle import Row

Answer = TypeVar("Answer")

ATTEMPT_SECONDS = 2.0
"""After so long without an answer the next server is asked; the question stays on its way."""
_PAUSE_SECONDS = 0.02
_CALLS_AT_ONCE = 64
_BROKEN = "the server cannot be reached", "the connection broke"


class Answers:
    """Who acknowledged writes, and when, by the machine's monotonic clock. Thread safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.first: dict[Life, float] = {}
        self.last: tuple[float, Life] = (0.0, (0, 0))
        self.count = 0

    def add(self, life: Life) -> None:
        """Take note of an acknowledged write."""
        with self._mutex:
            self.last = time.monotonic(), life
            self.first.setdefault(life, self.last[0])
            self.count += 1


class Connection:
    """One client's connection to one server, made anew when it breaks."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._database: nyala.Database | None = None

    def ask(self, work: Callable[[nyala.Database], Answer]) -> tuple[Answer, Life]:
        """Return an answer, and by which process. Raises UnavailableError."""
        return self.ask_as(lambda database, life: (work(database), life))

    def ask_as(self, work: Callable[[nyala.Database, Life], Answer]) -> Answer:
        """Do the same for work that wants to know the process."""
        life = self._member.life
        database = self._database = self._database or nyala.connect(self._member.location, retries=False)
        try:
            return work(database, life)
        except StoreError as error:
            if self._database is not database:  # a question that was on its way for long has closed it
                raise UnavailableError("the connection was closed") from error
            if isinstance(error, UnavailableError) and error.message.startswith(_BROKEN):
                self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        database, self._database = self._database, None
        if database is not None:
            database.close()


class Caller:
    """A client that asks until somebody answers. For one thread, but for ``close``."""

    def __init__(
        self, members: Sequence[Member], acknowledged: Acknowledged, fail: Callable[[BaseException], None]
    ) -> None:
        """``fail`` gets what is wrong with an answer that came too late for who asked."""
        self._fail = fail
        self._acknowledged = acknowledged
        self._connections = [Connection(member) for member in members]
        self._at = 0
        self._pool = ThreadPoolExecutor(_CALLS_AT_ONCE)
        self._is_over = False

    def ask(self, work: Callable[[nyala.Database], Answer]) -> tuple[Answer, Life]:
        """Return the answer of the server that has the store, and which process that is. Raises StoreError but for
        UnavailableError, which it gets only after ``close``."""
        return self._ask(lambda database, life: (work(database), life))

    def write(self, table: str, rows: Sequence[Row], op: str, writer: str, seq: int) -> tuple[WriteResult, Life]:
        """Write a batch under a number; all that ever answers must agree on when that was."""

        def work(database: nyala.Database, life: Life) -> tuple[WriteResult, Life]:
            result = database.table(table).write(rows, op, on_error="return", writer=writer, seq=seq)
            self._acknowledged.check(writer, seq, result.timestamp, life)
            return result, life

        return self._ask(work)

    def _ask(self, work: Callable[[nyala.Database, Life], Answer]) -> Answer:
        while not self._is_over:
            asked = self._pool.submit(self._connections[self._at].ask_as, work)
            asked.add_done_callback(self._look_at)
            try:
                return asked.result(ATTEMPT_SECONDS)
            except (UnavailableError, NoAnswerError):
                self._at = (self._at + 1) % len(self._connections)
                time.sleep(_PAUSE_SECONDS)
        raise UnavailableError("the campaign is over")

    def _look_at(self, asked: Future[Any]) -> None:
        if isinstance(error := asked.exception(), AssertionError):
            self._fail(error)

    def close(self) -> None:
        """Ask no more; wait for what is on its way when all servers have ended."""
        self._is_over = True
        with suppress(StoreError):
            self._pool.shutdown()
