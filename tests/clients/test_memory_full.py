"""Memory is full: whoever writes over Flight is told when to come again, and a client with retries does so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
MIB = 1 << 20


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in which nothing is flushed by itself."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", memory_bytes=MIB)) as opened:
        Database(opened).create_table("rows", SCHEMA, ["id"])
        yield opened


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    server = FlightServer(store, "grpc://127.0.0.1:0")
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()


def batch(number: int, count: int = 5_000) -> pa.RecordBatch:
    ids = pa.array(range(number * count, (number + 1) * count), pa.int64())
    return pa.record_batch([ids, ids], schema=SCHEMA)


def fill(table: nyala.Table) -> int:
    """Write until memory is full; return how many rows came in."""
    number = 0
    with pytest.raises(UnavailableError) as refused:
        while True:
            table.insert(batch(number))
            number += 1
    assert refused.value.retry_after_seconds and "retry in 1 s" in refused.value.message
    return number * 5_000


@pytest.mark.parametrize("over_flight", [False, True])
def test_a_full_store_says_when_to_come_again(store: Store, url: str, over_flight: bool) -> None:
    with nyala.connect(url, retries=False) as database:
        table = (database if over_flight else Database(store)).table("rows")
        rows = fill(table)
        memory = table.stats()["memory"]
        assert memory["limit_bytes"] == MIB and memory["refused_batches"] >= 1
        assert memory["stores_bytes"] >= MIB / 2 and memory["in_flight_bytes"] == 0
        assert table.scan().count() == rows
        table.maintain("flush")
        assert table.insert(batch(100)).applied == 5_000


@pytest.mark.parametrize("kind", ["one batch", "many batches", "one commit"])
def test_a_client_waits_and_comes_again(store: Store, url: str, kind: str) -> None:
    rows = fill(Database(store).table("rows"))
    flush = threading.Timer(1.5, lambda: store.maintain("rows", "flush"))
    flush.start()
    started = time.monotonic()
    batches = [batch(100)] if kind == "one batch" else [batch(100), batch(101)]
    with nyala.connect(url) as database:
        data = pa.RecordBatchReader.from_batches(SCHEMA, batches)
        result = database.table("rows").write(data, "insert", commit="stream" if kind == "one commit" else "batch")
    assert time.monotonic() - started >= 1
    assert result.applied == sum(len(one) for one in batches)
    assert Database(store).table("rows").scan().count() == rows + result.applied
    flush.join()


def test_the_patience_of_a_client_ends(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(Database(store).table("rows"))
    monkeypatch.setattr("nyala.clients.flight.server_wait._PATIENCE_SECONDS", 1.5)
    with nyala.connect(url) as database, pytest.raises(UnavailableError, match="memory_bytes"):
        database.table("rows").insert(batch(100))
    assert store.table_stats("rows").memory.refused_batches >= 3  # pyright: ignore[reportOptionalMemberAccess]
