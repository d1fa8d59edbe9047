"""``nyala server``: what it asks of a bucket and of servers, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import NoReturn, cast

import pytest
from typer.testing import CliRunner

from nyala.engine.bucket.memory import MemoryBucket
from nyala.engine.bucket.opening import bucket_of
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.where import write_where
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.commands import server_commands
from nyala.flight_server.commands.server_commands import app
from nyala.flight_server.server import FlightServer
from nyala.flight_server.stores.fixed_whereabouts import OwnStore
from nyala.schemas.errors import NotFoundError, UnavailableError
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.pair import Pair

NOBODY = "grpc://127.0.0.1:1"


@pytest.fixture
def pair() -> Iterator[Pair]:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    one = Pair(store, "a")
    yield one
    one.close()
    store.close()


def exit_code(*command: str) -> int:
    return CliRunner().invoke(app, command, catch_exceptions=False).exit_code


def bucket_with(name: str, **locations: str) -> str:
    """Return the URL of a bucket with the hint where each store is."""
    url = f"memory://{name}"
    for each, location in locations.items():
        told = Whereabouts(name=each, state="holder", holder=Holder(locations=[location], epoch=1))
        write_where(bucket_of(url), each, told)
    return url


def test_a_store_in_a_bucket_that_nobody_has_is_told(pair: Pair) -> None:
    assert exit_code("status", "--data", bucket_with("one-store", a=pair.first.url)) == 0
    both = bucket_with("two-stores", a=pair.first.url, b=NOBODY)
    assert exit_code("status", "--data", both) == 1
    assert exit_code("status", "--data", both, "--name", "a") == 0


def test_servers_of_directories_have_the_stores_of_their_names(pair: Pair, tmp_path: Path) -> None:
    own = OwnStore(name="x")
    server = FlightServer(cast(StoreService, pair.store), "grpc://127.0.0.1:0", process=own)
    placement = tmp_path / "servers.json"
    try:
        for name, expected in (("x", 0), ("y", 1)):
            placement.write_text(json.dumps({"servers": {name: [f"grpc://127.0.0.1:{server.port}"]}}))
            assert exit_code("status", "--placement", str(placement)) == expected
    finally:
        server.shutdown()


def test_a_release_is_done_when_the_process_says_that_it_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    holder, standby = Whereabouts(name="a", state="holder"), Whereabouts(name="a", state="standby")
    busy = UnavailableError("busy for longer than a call waits")
    other = standby.model_copy(update={"holder": Holder(locations=["grpc://m2:8815"])})
    answers = [holder, busy, busy, standby, busy, standby, other]
    monkeypatch.setattr(server_commands, "_where", lambda _: answers.pop(0))
    monkeypatch.setattr(server_commands, "_tell", lambda *_: None)
    done = CliRunner().invoke(app, ["release", "a", "--url", NOBODY], catch_exceptions=False)
    assert "released the store a; grpc://m2:8815 has it" in done.output
    assert not answers, "it waited until then"


def test_a_release_that_nobody_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Whereabouts(name="a", state="holder")]
    alone = Whereabouts(name="a", state="standby")
    monkeypatch.setattr(server_commands, "_where", lambda _: answers.pop() if answers else alone)
    monkeypatch.setattr(server_commands, "_tell", lambda *_: None)
    monkeypatch.setattr(server_commands, "_TAKEN_SECONDS", 0.0)
    done = CliRunner().invoke(app, ["release", "a", "--url", NOBODY], catch_exceptions=False)
    assert "released the store a; no process has taken the store yet: this process takes the store back" in done.output


def test_a_take_from_a_holder_that_lives_says_who_has_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Whereabouts(name="a", state="standby", holder=Holder(locations=["grpc://m1:8815"]))
    monkeypatch.setattr(server_commands, "_where", lambda _: told)
    monkeypatch.setattr(server_commands, "_tell", lambda *_: None)
    command = ["take", "a", "--url", "grpc://m2:8815", "--seconds", "0"]
    with pytest.raises(
        UnavailableError, match=r"^grpc://m1:8815 still has the store a; grpc://m2:8815 takes it as soon"
    ):
        CliRunner().invoke(app, command, catch_exceptions=False)
    with pytest.raises(
        UnavailableError, match=r"^grpc://m2:8815 accepted the request, but has not completed it after 0 s"
    ):
        CliRunner().invoke(app, [*command, "--force"], catch_exceptions=False)


def test_who_has_no_store_to_release_says_why(pair: Pair) -> None:
    with pytest.raises(UnavailableError, match=f"{NOBODY} does not answer"):
        exit_code("release", "a", "--url", NOBODY)
    server = FlightServer(cast(StoreService, pair.store), "grpc://127.0.0.1:0", process=OwnStore())
    try:
        with pytest.raises(
            NotFoundError, match=r"serves a store in a directory, which has no name; .*:1 does not answer"
        ):
            exit_code("release", "a", "--url", f"grpc://127.0.0.1:{server.port},{NOBODY}")
    finally:
        server.shutdown()


def test_the_status_says_why_a_server_is_away() -> None:
    done = CliRunner().invoke(app, ["status", "--url", NOBODY], catch_exceptions=False)
    assert done.exit_code == 1 and f"{NOBODY} does not answer: the server cannot be reached" in done.output


def test_with_a_name_no_objects_are_listed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise AssertionError("every object of every store is listed")

    url = bucket_with("named", a=pair.first.url)
    monkeypatch.setattr(MemoryBucket, "list", fail)
    assert exit_code("status", "--data", url, "--name", "a") == 0
    with pytest.raises(NotFoundError, match="no server has recorded its location"):
        exit_code("status", "--data", url, "--name", "b")


def test_all_locations_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, told = Barrier(3), Whereabouts(name="a", state="holder")

    def slow(_: str) -> Whereabouts:
        asked.wait(30)
        return told

    monkeypatch.setattr(server_commands, "_where", slow)
    locations = ["grpc://a:1", "grpc://b:1", "grpc://c:1"]
    assert list(server_commands._asked(locations)) == [(each, told) for each in locations]
