"""Clients that follow a store never take another one for it, wherever they were led, and go on past such a place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight import heartbeat, holder_client, server_wait
from nyala.clients.flight.holder_client import HolderClient
from nyala.engine.bucket import bucket_of
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.where import write_where
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.pair import Pair
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@contextmanager
def opened(name: str) -> Iterator[Pair]:
    """Two processes of a store with an empty table."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    Database(store).create_table("rows", SCHEMA, ["id"])
    pair = Pair(store, name)
    yield pair
    pair.close()
    store.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with opened("a") as found:
        yield found


@pytest.fixture
def other() -> Iterator[Pair]:
    with opened("b") as found:
        yield found


def inserted(pair: Pair) -> list[int]:
    """The keys of all changes, each as often as it was made."""
    changes = Database(pair.store).table("rows").changes(since=pair.began, every=True)
    return changes.to_arrow()["id"].to_pylist()


def note(url: str, *locations: str) -> None:
    found = Whereabouts(name="a", state="holder", holder=Holder(locations=[*locations], epoch=1))
    write_where(bucket_of(url), "a", found)


def unanswered(*_: object) -> NoReturn:
    raise UnavailableError("no answer in time")


def client(db: Database) -> HolderClient:
    return db._store._client  # pyright: ignore[reportAttributeAccessIssue]


def test_another_store_is_never_taken_for_the_next_holder(
    pair: Pair, other: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    other.name = "a"  # as that in another bucket may be called
    with nyala.connect(f"{pair.first.url},{other.first.url}") as db:
        table = db.table("rows")
        pair.first.die()
        with pytest.raises(InvalidArgumentError, match="another store"):
            table.insert([{"id": 9_000, "v": 0}])
    assert not inserted(other)


def test_locations_of_two_stores_are_refused(pair: Pair, other: Pair) -> None:
    with pytest.raises(InvalidArgumentError, match=r"serves the store a, .* serves the store b: give only"):
        nyala.connect(f"{pair.first.url},{other.first.url}")


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_process_that_comes_back_with_another_store_is_asked_nothing(
    pair: Pair, other: Pair, name: str, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    with nyala.connect(pair.first.url if is_alone else pair.url) as db:
        table = db.table("rows")
        table.insert([{"id": 1_500, "v": 0}])  # a session is open
        pair.first._store, pair.name = other.store, name
        pair.first.cut()
        with pytest.raises(InvalidArgumentError, match="another store"):
            table.insert([{"id": 1_501, "v": 0}])
        with pytest.raises(InvalidArgumentError, match="another store"):
            pair.first.cut()
            table.insert({"id": [1_502, 1_503], "v": [0, 0]})
        if not is_alone:
            pair.name = "a"
            pair.give_to(pair.second)
            table.insert([{"id": 1_504, "v": 0}])
            assert inserted(pair) == [1_500, 1_504]
    assert not inserted(other)


def idle(pair: Pair, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client do nothing for so long that it is not sure any more; only its heartbeats go on, if it has any."""
    found = client(db)
    if found.is_alone:
        monkeypatch.setattr(found, "_sure_until", 0.0)
    else:
        before = pair.first.asked
        until(lambda: pair.first.asked > before + 2 or isinstance(found.here, holder_client._Nowhere))
    until(lambda: not db._store._sessions._idle._idle)  # pyright: ignore[reportAttributeAccessIssue]


SILENT: dict[str, Callable[[Database], Any]] = {
    "insert": lambda db: db.table("rows").insert([{"id": 1_501, "v": 0}]),
    "load": lambda db: db.table("rows").insert(pa.table({"id": [1_502], "v": [0]}, SCHEMA).to_reader()),
    "get": lambda db: db.table("rows").get(1_500),
    "scan": lambda db: db.table("rows").scan().to_arrow(),
    "create": lambda db: db.create_table("more", SCHEMA, ["id"]),
}


@pytest.mark.parametrize("call", SILENT)
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_process_that_was_replaced_while_its_client_was_idle_is_asked_nothing(
    pair: Pair, other: Pair, call: str, name: str, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC connects again by itself: no call fails."""
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.05)
    with nyala.connect(pair.first.url if is_alone else pair.url) as db:
        db.table("rows").insert([{"id": 1_500, "v": 0}])
        pair.name = name
        pair.first.become(other.store)
        idle(pair, db, monkeypatch)
        with pytest.raises(InvalidArgumentError, match="another store"):
            SILENT[call](db)
        if not is_alone:
            pair.name = "a"
            pair.give_to(pair.second)
            db.table("rows").insert([{"id": 1_504, "v": 0}])
            assert inserted(pair) == [1_500, 1_504]
    assert not inserted(other) and Database(other.store).tables() == ["rows"]


def test_a_process_that_comes_back_right_after_a_heartbeat_that_failed_is_asked_which_store_it_has(
    pair: Pair, other: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nyala.connect(pair.url) as db:
        db.table("rows").insert([{"id": 1_500, "v": 0}])
        until(lambda: not db._store._sessions._idle._idle)  # pyright: ignore[reportAttributeAccessIssue]
        with monkeypatch.context() as patched:
            patched.setattr(holder_client, "_answer", unanswered)
            client(db).beat()
        pair.first.become(other.store)
        pair.give_to(pair.second)
        pair.first.is_holder = True
        db.table("rows").insert([{"id": 1_501, "v": 0}])
    assert inserted(pair) == [1_500, 1_501] and not inserted(other)


def test_a_busy_client_asks_once_in_a_while_and_only_a_new_process_for_its_store(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nyala.connect(pair.first.url) as db:
        asked, checked = pair.first.asked, pair.first.checked
        for _ in range(20):
            db.tables()
        assert (pair.first.asked, pair.first.checked) == (asked, checked)
        for is_new in (True, False, False, True):
            if is_new:
                pair.first.become(pair.store)
            monkeypatch.setattr(client(db), "_sure_until", 0.0)
            asked, checked = pair.first.asked, pair.first.checked
            assert db.tables() == ["rows"]
            assert pair.first.asked > asked and (pair.first.checked > checked) == is_new
            asked = pair.first.asked
            db.tables()
            assert pair.first.asked == asked


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_location_that_was_only_named_stops_nobody_when_another_store_is_there(
    pair: Pair, other: Pair, name: str
) -> None:
    """Claims of different stores do not compare: the other one's may have the greater number."""
    third = other.second
    with nyala.connect(pair.url) as db:
        pair.give_to(None)
        third._store, third._pair, third.is_holder, third.epoch = pair.store, pair, True, 5
        pair._told = Holder(locations=[third.url], epoch=5)
        table = db.table("rows")
        table.insert([{"id": 1_600, "v": 0}])
        assert client(db).location == third.url
        pair.give_to(pair.first)
        third.is_holder = False
        table.insert([{"id": 1_601, "v": 0}])
        third._store, third._pair, third.is_holder, third.epoch, other.name = other.store, other, True, 900, name
        pair.give_to(pair.second)
        table.insert([{"id": 1_602, "v": 0}])
        assert client(db).location == pair.second.url and third.url not in client(db).locations
    assert inserted(pair) == [1_600, 1_601, 1_602] and not inserted(other)


@pytest.mark.parametrize("is_given", [True, False])
def test_a_location_that_refuses_to_answer_does_not_end_the_search(
    pair: Pair, other: Pair, is_given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = other.first

    def refuse() -> Whereabouts:
        raise UnauthenticatedError("show a token of the store z")

    third.whereabouts = refuse  # pyright: ignore[reportAttributeAccessIssue]
    with nyala.connect([*pair.url.split(","), third.url] if is_given else pair.url) as db:
        pair.give_to(None)
        pair._told = Holder(locations=[third.url], epoch=5)
        threading.Timer(0.7, pair.give_to, (pair.second,)).start()
        assert db.tables() == ["rows"]
        monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
        pair.give_to(None)
        pair._told = Holder(locations=[third.url], epoch=9)
        with pytest.raises(UnauthenticatedError if is_given else UnavailableError, match="token of the store z"):
            db.tables()
    if is_given:
        pair.first.die()
        pair.second.die()
        with pytest.raises(UnauthenticatedError):
            nyala.connect([*pair.url.split(","), third.url])


@pytest.mark.parametrize("retries", [True, False])
def test_a_note_in_a_bucket_leads_to_no_store_of_another_name(
    pair: Pair, other: Pair, tmp_path: Path, retries: bool
) -> None:
    url = f"file://{tmp_path}"
    note(url, other.first.url)
    with pytest.raises(InvalidArgumentError, match="another store: b, not a"):
        nyala.connect(url, name="a", retries=retries)
    other.give_to(None)  # it stands by, but for another store
    with pytest.raises(InvalidArgumentError, match="another store: b, not a"):
        nyala.connect(url, name="a", retries=retries)
    note(url, other.first.url, pair.first.url)
    with nyala.connect(url, name="a", retries=retries) as db:
        assert db.table("rows").count() == 0
