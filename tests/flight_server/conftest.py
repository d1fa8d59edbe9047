"""Servers over a store of dicts and over the engine."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.http.console.visit import Surroundings
from nyala.flight_server.security.security import Security
from nyala.flight_server.serve.port import HttpPort
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.guarded import Guarded
from tests.flight_server.http_client import Port
from tests.flight_server.raw_session import Session
from tests.flight_server.served import SCHEMA, Served

if TYPE_CHECKING:
    from nyala.flight_server.requests.traces import Traces


def open_real() -> Store:
    return Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))


STORES: dict[str, Callable[[], StoreService]] = {"fake": FakeStore, "engine": open_real}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[StoreService]:
    opened = STORES[request.param]()
    opened.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    yield opened
    opened.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start servers that are shut down at the end."""
    running: list[Served] = []

    def start(
        store: StoreService,
        config: ServerConfig | None = None,
        security: Security | None = None,
        traces: Traces | None = None,
    ) -> Served:
        running.append(Served(store, config, security, traces))
        return running[-1]

    yield start
    for served in running:
        served.client.close()
        served.server.shutdown()


@pytest.fixture
def served(store: StoreService, serve: Callable[..., Served]) -> Served:
    return serve(store)


@pytest.fixture
def fake(serve: Callable[..., Served]) -> Served:
    """A server over the store of dicts, with the empty table ``homes``."""
    store = FakeStore()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    return serve(store)


@pytest.fixture
def ended(serve: Callable[..., Served]) -> Iterator[None]:
    """End what sessions are left before their servers wait for them."""
    yield
    for session in Session.begun:
        with suppress(pa.ArrowException, OSError):
            session.writer.close()
    Session.begun.clear()


@pytest.fixture
def session(served: Served) -> Session:
    return Session(served.client)


@pytest.fixture
def port(serve: Callable[..., Served]) -> Iterator[Callable[..., Port]]:
    """Start servers with an HTTP port."""
    started: list[tuple[HttpPort, Any]] = []

    def start(
        options: ServeOptions | None = None,
        context: ssl.SSLContext | None = None,
        traces: Traces | None = None,
        around: Surroundings | None = None,
    ) -> Port:
        security = Security(options) if options else None
        http = HttpPort("127.0.0.1", 0, security, around=around)
        store = open_real()
        started.append((http, store))
        store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        served = serve(store, None, security, traces)
        http.state.serves(served.server)
        return Port(served, http, context)

    yield start
    for http, store in started:
        http.stop()
        store.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """A server with grants and a table ``t``."""
    made = Guarded(tmp_path)
    made.make_table()
    yield made
    made.close()
