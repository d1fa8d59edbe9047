"""A database in this process and the same over Flight: what users see must not differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a store on disk is, for tests that read its files; they give a ``store`` of their own."""
    return tmp_path / "store"


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    yield opened
    opened.close()


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    """A server over ``store``."""
    server = FlightServer(store, "grpc://127.0.0.1:0")
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()


@pytest.fixture
def embedded(store: Store) -> Database:
    return Database(store)


@pytest.fixture
def remote(url: str) -> Iterator[Database]:
    with connect(url) as database:
        yield database


@pytest.fixture(params=["embedded", "remote"])
def db(request: pytest.FixtureRequest) -> Database:
    return request.getfixturevalue(request.param)


@pytest.fixture
def make_store() -> Iterator[Callable[..., Database]]:
    """Opens stores in memory, in this process, with options."""
    opened: list[Database] = []

    def make(**options: Any) -> Database:
        opened.append(Database(Store.open(MemoryFileSystem(), StoreOptions(**{"maintenance": "off", **options}))))
        return opened[-1]

    yield make
    for database in opened:
        database.close()


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("cents", pa.decimal128(10, 2)),
        ("small", pa.int16()),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
    ]
)


@pytest.fixture
def make_table() -> Callable[[Database], Table]:
    return lambda database: database.create_table("homes", SCHEMA, ["id"])


@pytest.fixture
def homes(db: Database) -> Table:
    """An empty table with a column of most types."""
    return db.create_table("homes", SCHEMA, ["id"])
