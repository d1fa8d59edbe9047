"""A server that answers Flight SQL, in this process, and connections to it by ADBC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow.flight as fl

from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.sql.front import SqlFront


class SqlServer:
    """A store in memory and its server."""

    def __init__(self, security: Security | None = None, **config: Any) -> None:
        self.store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
        self.db = Database(self.store)
        self.server = FlightServer(
            self.store, "grpc://127.0.0.1:0", ServerConfig(sql=True, **config), security, sql=SqlFront
        )
        self.url = f"grpc://127.0.0.1:{self.server.port}"
        self.client = fl.connect(self.url)

    @contextmanager
    def connected(self, autocommit: bool = True, token: str | None = None, **options: str) -> Iterator[adbc.Connection]:
        """A connection by ADBC."""
        known = options if token is None else {"adbc.flight.sql.authorization_header": f"Bearer {token}", **options}
        with adbc.connect(self.url, db_kwargs=known, autocommit=autocommit) as connection:
            yield connection

    def processes(self) -> list[int]:
        """The process ids of its children."""
        places = self.server.sql._statements._places  # pyright: ignore
        return [child._process.pid for child in (*places._idle, *places._busy)]

    def busy_processes(self) -> list[int]:
        """The process ids of its children that have started and run a statement."""
        places = self.server.sql._statements._places  # pyright: ignore
        return [child._process.pid for child in list(places._busy) if child._is_ready]

    def close(self) -> None:
        self.client.close()
        self.server.shutdown()
        self.store.close()
