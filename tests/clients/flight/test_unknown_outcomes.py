"""What a client says of a call that may have been carried out, whose answer is lost: in one line, with what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from tests.doubles.proxy import Proxy

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
UNKNOWN = "; it is unknown whether {} was carried out: check, and repeat it if it was not"
CHANGES: dict[str, Callable[[Database], Any]] = {
    "create_table": (lambda db: db.create_table("more", SCHEMA, ["id"])),
    "alter_table": (lambda db: db.table("rows").alter().add_column("w", pa.int64()).apply()),
    "drop_table": (lambda db: db.drop_table("rows")),
    "maintain": (lambda db: db.table("rows").maintain("flush")),
}
QUESTIONS: dict[str, Callable[[Database], Any]] = {"health": lambda db: db.health()}


class Stuck:
    """A server whose answers to one action come no sooner than it is told."""

    def __init__(self, store: Store) -> None:
        self.method = ""
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._store = store
        self.server = FlightServer(self, "grpc://127.0.0.1:0")  # pyright: ignore[reportArgumentType]
        self.proxy = Proxy(self.server.port)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self.method:
            return found

        def stuck(*of: Any, **named: Any) -> Any:
            self.has_begun.set()
            assert self.may_end.wait(60)
            return found(*of, **named)

        return stuck


@pytest.fixture
def stuck(store: Store) -> Iterator[Stuck]:
    Database(store).create_table("rows", SCHEMA, ["id"])
    found = Stuck(store)
    yield found
    found.may_end.set()
    found.proxy.close()
    found.server.shutdown()


def said(stuck: Stuck, name: str, end: Callable[[], None]) -> str:
    """Return the error of a change that is ended while it runs."""
    with nyala.connect(stuck.proxy.url) as db:
        table = db.table("rows")
        assert table.count() == 0
        stuck.method = name
        ending = threading.Thread(target=lambda: stuck.has_begun.wait(60) and end())
        ending.start()
        with pytest.raises(UnavailableError) as raised:
            (CHANGES | QUESTIONS)[name](db)
        ending.join(60)
    assert str(raised.value) == raised.value.message
    return raised.value.message


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_a_hand_over_ends_may_be_done(stuck: Stuck, name: str) -> None:
    message = said(stuck, name, lambda: stuck.server.calls.end_earlier(0.0))
    assert (
        message
        == "this process no longer has the store; the action `where` names the process that has it"
        + UNKNOWN.format(name)
    )


def test_a_change_whose_connection_breaks_may_be_done(stuck: Stuck) -> None:
    message = said(stuck, "create_table", stuck.proxy.cut)
    assert message.startswith("the server cannot be reached: ") and message.endswith(UNKNOWN.format("create_table"))


def test_a_change_that_was_never_sent_is_not_done(stuck: Stuck) -> None:
    with nyala.connect(stuck.proxy.url) as db:
        stuck.proxy.close()
        stuck.server.shutdown()
        with pytest.raises(UnavailableError, match="is it running") as raised:
            for _ in range(2):  # the first may find the connection as it breaks
                with pytest.raises(UnavailableError):
                    db.drop_table("none")
            db.drop_table("none")
    assert "unknown" not in raised.value.message


def test_a_question_has_no_outcome(stuck: Stuck) -> None:
    assert "unknown" not in said(stuck, "health", lambda: stuck.server.calls.end_earlier(0.0))
