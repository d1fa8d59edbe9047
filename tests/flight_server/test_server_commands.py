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
from nyala.flight_server import server_commands
from nyala.flight_server.own_store import OwnStore
from nyala.flight_server.server import FlightServer
from nyala.flight_server.server_commands import app
from nyala.schemas.errors import NotFoundError
from nyala.schemas.service import StoreService
from nyala.schemas.whereabouts import Holder, Whereabouts
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
    answers = [holder, None, None, standby]  # None: busy for longer than a call waits
    monkeypatch.setattr(server_commands, "_where", lambda _: answers.pop(0))
    monkeypatch.setattr(server_commands, "_tell", lambda *_: None)
    assert exit_code("release", "a", "--url", NOBODY) == 0
    assert not answers, "it waited until then"


def test_with_a_name_no_objects_are_listed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise AssertionError("every object of every store is listed")

    url = bucket_with("named", a=pair.first.url)
    monkeypatch.setattr(MemoryBucket, "list", fail)
    assert exit_code("status", "--data", url, "--name", "a") == 0
    with pytest.raises(NotFoundError, match="has told where it is"):
        exit_code("status", "--data", url, "--name", "b")


def test_all_locations_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Barrier(3)

    def slow(_: str) -> None:
        asked.wait(30)

    monkeypatch.setattr(server_commands, "_where", slow)
    locations = ["grpc://a:1", "grpc://b:1", "grpc://c:1"]
    assert list(server_commands._asked(locations)) == [(each, None) for each in locations]
