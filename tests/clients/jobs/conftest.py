"""Two databases for jobs to work between: one in this process, one behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from tests.clients.jobs.job_rows import SCHEMA, rows


def open_store() -> Store:
    return Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))


@pytest.fixture
def make_database() -> Iterator[Callable[[], Database]]:
    """Make embedded databases that are closed at the end."""
    made: list[Database] = []

    def make() -> Database:
        made.append(Database(open_store()))
        return made[-1]

    yield make
    for database in made:
        database.close()


@pytest.fixture
def source(make_database: Callable[[], Database]) -> Database:
    return make_database()


@pytest.fixture
def target() -> Iterator[Database]:
    """A database behind a server of this process."""
    store = open_store()
    server = FlightServer(store, "grpc://127.0.0.1:0")
    with connect(f"grpc://127.0.0.1:{server.port}") as database:
        yield database
    server.shutdown()
    store.close()


@pytest.fixture
def homes(source: Database) -> Table:
    """A table of three tablets with 500 rows."""
    table = source.create_table("homes", SCHEMA, ["id"], [nyala.hash("id", buckets=3)])
    table.insert(rows(range(500)))
    return table
