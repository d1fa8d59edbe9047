"""Clients that follow a store never take another one for it, wherever they were led, and go on past such a place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight import server_wait
from nyala.clients.flight.holder_client import HolderClient
from nyala.engine.bucket import bucket_of
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.where import write_where
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from nyala.schemas.whereabouts import Holder, Whereabouts
from tests.doubles.pair import Pair

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


def client(db: Database) -> HolderClient:
    return db._store._client  # pyright: ignore[reportAttributeAccessIssue]


def test_another_store_is_never_taken_for_the_next_holder(
    pair: Pair, other: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    with nyala.connect(f"{pair.first.url},{other.first.url}") as db:
        table = db.table("rows")
        pair.first.die()
        with pytest.raises(InvalidArgumentError, match="another store"):
            table.insert([{"id": 9_000, "v": 0}])
    assert not inserted(other)


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

    with nyala.connect([*pair.url.split(","), third.url] if is_given else pair.url) as db:
        third.whereabouts = refuse  # pyright: ignore[reportAttributeAccessIssue]
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
