"""The stores, as one client process uses them. Every write is durable when its method returns."""

import json
import sqlite3
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as fl

import nyala

from . import quack
from .bare import WRITE
from .mixes import FIELD_NAMES

TABLE = "usertable"
BUSY_SECONDS = 60
TUNED_SQLITE = (
    "PRAGMA page_size = 8192; PRAGMA cache_size = -16384; PRAGMA mmap_size = 8589934592;"
    "PRAGMA wal_autocheckpoint = 10000; PRAGMA temp_store = MEMORY"
)
"""The file mapped into memory, a cache of 16 MiB for each connection, a checkpoint each 80 MB."""


class Client(Protocol):
    """One connection. Keys are integers."""

    def read(self, key: int) -> Any:
        """Return all fields of a row, something false if there is none."""
        ...

    def update(self, key: int, field: str, value: str) -> None:
        """Set one field."""
        ...

    def insert(self, key: int, values: list[str]) -> None:
        """Add a row."""
        ...

    def scan(self, key: int, rows: int) -> int:
        """Read all fields of up to ``rows`` rows from ``key`` on, in its order; return how many."""
        ...


class NyalaClient:
    """Over Flight, to the server at a URI."""

    def __init__(self, address: str) -> None:
        self.table = nyala.connect(address).table(TABLE)

    def read(self, key: int) -> Any:
        return self.table.get(key)

    def update(self, key: int, field: str, value: str) -> None:
        self.table.update([{"key": key, field: value}])

    def insert(self, key: int, values: list[str]) -> None:
        self.table.insert([{"key": key, **dict(zip(FIELD_NAMES, values, strict=True))}])

    def scan(self, key: int, rows: int) -> int:
        return self.table.scan(where=[("key", ">=", key)], ordered=True, limit=rows).to_arrow().num_rows


class BareClient:
    """Over a DoExchange of pyarrow, to a server that keeps nothing: see ``bare``."""

    def __init__(self, address: str) -> None:
        self.writer, self.reader = fl.connect(address).do_exchange(fl.FlightDescriptor.for_command(b""))
        self.writer.begin(pa.schema([]))

    def _answer(self, request: bytes) -> bytes:
        self.writer.write_metadata(request)
        return self.reader.read_chunk().app_metadata.to_pybytes()

    def read(self, key: int) -> Any:
        return json.loads(self._answer(b"1"))

    def update(self, key: int, field: str, value: str) -> None:
        self._answer(WRITE + json.dumps({"key": key, field: value}).encode())

    def insert(self, key: int, values: list[str]) -> None:
        self._answer(WRITE + json.dumps([key, *values]).encode())

    def scan(self, key: int, rows: int) -> int:
        if rows == 1:
            return int(bool(self.read(key)))
        return pa.ipc.open_stream(self._answer(b"%d" % rows)).read_all().num_rows


class SqliteClient:
    """Its own connection to the one file, which all processes share: a log, and a sync at each commit."""

    def __init__(self, address: str) -> None:
        self.connection = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")

    def read(self, key: int) -> Any:
        return self.connection.execute(f"SELECT * FROM {TABLE} WHERE key = ?", [key]).fetchone()

    def update(self, key: int, field: str, value: str) -> None:
        self.connection.execute(f"UPDATE {TABLE} SET {field} = ? WHERE key = ?", [value, key])

    def insert(self, key: int, values: list[str]) -> None:
        marks = ", ".join("?" * (1 + len(values)))
        self.connection.execute(f"INSERT INTO {TABLE} VALUES ({marks})", [key, *values])

    def scan(self, key: int, rows: int) -> int:
        asked = f"SELECT * FROM {TABLE} WHERE key >= ? ORDER BY key LIMIT ?"
        return len(self.connection.execute(asked, [key, rows]).fetchall())


class TunedSqliteClient(SqliteClient):
    """The same with more memory and fewer checkpoints."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.connection.executescript(TUNED_SQLITE)


class DuckDbClient:
    """DuckDB in this process, which sends each statement to the server: its protocol takes no parameters apart."""

    def __init__(self, address: str) -> None:
        self.remote = quack.Remote(address)

    def read(self, key: int) -> Any:
        return self.remote.run(f"SELECT * FROM {TABLE} WHERE key = {key}")

    def update(self, key: int, field: str, value: str) -> None:
        self.remote.run(f"UPDATE {TABLE} SET {field} = {_quoted(value)} WHERE key = {key}")

    def insert(self, key: int, values: list[str]) -> None:
        self.remote.run(f"INSERT INTO {TABLE} VALUES ({key}, {', '.join(map(_quoted, values))})")

    def scan(self, key: int, rows: int) -> int:
        return len(self.remote.run(f"SELECT * FROM {TABLE} WHERE key >= {key} ORDER BY key LIMIT {rows}"))


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


class PostgresClient:
    """Over a socket of the machine, with statements prepared by the driver and a commit after each."""

    def __init__(self, address: str) -> None:
        import psycopg  # pyright: ignore[reportMissingImports]

        self.connection: Any = psycopg.connect(address, autocommit=True, prepare_threshold=1)

    def read(self, key: int) -> Any:
        return self.connection.execute(f"SELECT * FROM {TABLE} WHERE key = %s", [key]).fetchone()

    def update(self, key: int, field: str, value: str) -> None:
        self.connection.execute(f"UPDATE {TABLE} SET {field} = %s WHERE key = %s", [value, key])

    def insert(self, key: int, values: list[str]) -> None:
        marks = ", ".join(["%s"] * (1 + len(values)))
        self.connection.execute(f"INSERT INTO {TABLE} VALUES ({marks})", [key, *values])

    def scan(self, key: int, rows: int) -> int:
        asked = f"SELECT * FROM {TABLE} WHERE key >= %s ORDER BY key LIMIT %s"
        return len(self.connection.execute(asked, [key, rows]).fetchall())


CLIENTS: dict[str, type] = {
    "Nyala": NyalaClient,
    "Nyala, tuned": NyalaClient,
    "Bare Flight": BareClient,
    "SQLite": SqliteClient,
    "SQLite, tuned": TunedSqliteClient,
    "PostgreSQL": PostgresClient,
    "PostgreSQL, tuned": PostgresClient,
    "DuckDB, Quack": DuckDbClient,
}
