"""A server that answers nothing for long: a caller who cannot wait does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.flight.deadline import answered_within
from nyala.clients.flight.store import FlightStore
from nyala.clients.sources.positions import POSITIONS
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.requests.source_metrics import source_families
from nyala.flight_server.security import rights
from nyala.flight_server.security.rights import GrantBook
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)])
PATIENCE_SECONDS = 8.0
"""Below that of any heartbeat."""


class Hanging:
    """A store that does not answer some methods until ``over``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.methods: frozenset[str] = frozenset()
        self.over = threading.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self.methods:
            return found

        def waits(*given: Any, **named: Any) -> Any:
            self.over.wait(12)
            return found(*given, **named)

        return waits


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    store.create_table(TableDefinition.from_arrow(POSITIONS, SCHEMA, ["k"]))
    hanging = Hanging(store)
    yield hanging
    hanging.over.set()
    store.close()


@pytest.fixture
def client(hanging: Hanging) -> Iterator[FlightStore]:
    asked: Any = hanging
    server = FlightServer(asked, "grpc://127.0.0.1:0")
    client = FlightStore(f"grpc://127.0.0.1:{server.port}")
    yield client
    hanging.over.set()
    client.close()
    server.shutdown()


@pytest.mark.parametrize(
    ("method", "spec"),
    [
        ("scan", ScanSpec(table=POSITIONS)),
        ("plan", ScanSpec(table=POSITIONS)),
        ("scan", ScanSpec(table=POSITIONS, aggregate={"n": ("*", "count")})),
    ],
    ids=["scan", "plan", "aggregate"],
)
def test_a_scan_that_cannot_wait_ends_in_time(
    hanging: Hanging, client: FlightStore, method: str, spec: ScanSpec
) -> None:
    hanging.methods = frozenset({method})
    began = time.monotonic()
    with answered_within(0.5), pytest.raises(UnavailableError):
        client.scan(spec.checked()).to_table()
    assert time.monotonic() - began < PATIENCE_SECONDS


@pytest.mark.parametrize("method", ["tables", "scan", "plan"])
def test_metrics_do_not_wait_for_sources(hanging: Hanging, client: FlightStore, method: str) -> None:
    hanging.methods = frozenset({method})
    began = time.monotonic()
    assert all(not family.samples for family in source_families(client))
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_requests_go_on_by_the_grants_that_are_known(
    hanging: Hanging, client: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several processes, the first keeps the grants of all."""
    monkeypatch.setattr(rights, "_LOOK_SECONDS", 0.1)
    book = GrantBook(client)
    before = book.version()
    hanging.methods = frozenset({"grants"})
    time.sleep(0.2)
    began = time.monotonic()
    with ThreadPoolExecutor(6) as users:
        assert {*users.map(lambda _: book.version(), range(6))} == {before}
    assert time.monotonic() - began < PATIENCE_SECONDS
    hanging.methods = frozenset()
    client.grant(GrantChange(user="alice", table=POSITIONS, privileges=[Privilege.READ]))
    time.sleep(0.2)
    assert book.version() != before


def test_grants_are_waited_for_while_none_are_known(hanging: Hanging, client: FlightStore) -> None:
    hanging.methods = frozenset({"grants"})
    threading.Timer(3.0, hanging.over.set).start()
    assert GrantBook(client).version()
