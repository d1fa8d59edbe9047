"""A stopping server, or one whose store goes, lets sessions answer what they have begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.flight_server.admission.due_answers import AnswerCount, DueAnswers
from nyala.flight_server.serve import lifecycle
from nyala.flight_server.serve.lifecycle import drain
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import PendingResult
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.raw_session import Session
from tests.flight_server.served import SCHEMA, Served

pytestmark = pytest.mark.usefixtures("ended")


class Syncing:
    """A write that is applied, and durable once ``synced`` is set."""

    def __init__(self, store: LateStore, result: WriteResult) -> None:
        self._store, self._result = store, result

    def result(self) -> WriteResult:
        self._store.waits.set()
        assert self._store.synced.wait(60)
        return self._result


class LateStore(FakeStore):
    """Its log takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.synced = threading.Event(), threading.Event()

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        return Syncing(self, self.write(command, batch, seq))


@pytest.fixture
def late() -> Iterator[LateStore]:
    store = LateStore()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    yield store
    store.synced.set()


@pytest.fixture
def served(late: LateStore, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(lifecycle, "flush_within", lambda *_: None)
    return serve(late, ServerConfig(drain_seconds=60.0))


def answers_while(session: Session, served: Served, late: LateStore, work: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the answers to two writes of a pipeline that are not durable yet when some work begins, which would end
    the session, and has half a second for it."""
    for number in range(2):
        session.write(served.rows(1, number), number + 1, more=True, writer="w")
    assert late.waits.wait(30)
    until(lambda: served.ids() == [0, 1])
    working = threading.Thread(target=work)
    working.start()
    time.sleep(0.5)
    late.synced.set()
    answers = [session.answer()[0] for _ in range(2)]
    working.join(60)
    assert not working.is_alive()
    return answers


@pytest.mark.parametrize("how", ["the server stops", "the store goes"])
def test_writes_that_are_applied_are_answered(served: Served, late: LateStore, session: Session, how: str) -> None:
    work = {
        "the server stops": lambda: drain(served.server, late),
        "the store goes": lambda: served.server.calls.end_earlier(30.0),
    }
    answers = answers_while(session, served, late, work[how])
    assert [each.get("applied") for each in answers] == [1, 1], answers


def counted(begun: int, answered: int) -> AnswerCount:
    return AnswerCount(begun, answered)


def test_answers_are_waited_for_until_the_deadline() -> None:
    due, session = DueAnswers(), counted(begun=2, answered=1)
    assert due.wait(time.monotonic())
    due.add(session)
    assert not due.wait(time.monotonic() + 0.05)
    assert not due.wait(time.monotonic() + 60, lambda: True)
    threading.Timer(0.05, lambda: setattr(session, "answered", 2)).start()
    assert due.wait(time.monotonic() + 60)


def test_a_session_that_is_over_owes_nothing() -> None:
    due, session = DueAnswers(), counted(begun=2, answered=1)
    due.add(session)
    threading.Timer(0.05, due.remove, [session]).start()
    assert due.wait(time.monotonic() + 60)


def test_a_client_that_goes_on_sending_is_not_waited_for() -> None:
    due, session = DueAnswers(), counted(begun=1, answered=0)
    due.add(session)
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.001):
            session.begun += 1
            session.answered += 1

    going_on = threading.Thread(target=go_on)
    going_on.start()
    try:
        assert due.wait(time.monotonic() + 60)
    finally:
        is_over.set()
        going_on.join(60)
