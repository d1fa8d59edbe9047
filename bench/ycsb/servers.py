"""The stores with their data: each in a folder of its own, loaded before anything is measured."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import nyala
from bench.compare.peers.nyala_subject import free_port, wait_until_open
from bench.postgres import Cluster, has_postgres

from .mixes import FIELD_BYTES, FIELD_NAMES, FIELDS
from .quack import has_quack
from .stores import TABLE, TUNED_SQLITE

SCHEMA = pa.schema([pa.field("key", pa.int64(), False), *(pa.field(name, pa.string()) for name in FIELD_NAMES)])
ROW_BYTES = FIELDS * FIELD_BYTES
LOADED_AT_ONCE = 50_000


class Server(Protocol):
    """A running store with ``records`` rows, their keys from 0 on."""

    address: str

    def close(self) -> None:
        """Stop it."""
        ...


def records(count: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows, ten fields of letters that hardly compress."""
    random = np.random.default_rng(0)
    for start in range(0, count, LOADED_AT_ONCE):
        rows = min(LOADED_AT_ONCE, count - start)
        offsets = np.arange(rows + 1, dtype=np.int32) * FIELD_BYTES
        fields = [
            pa.Array.from_buffers(
                pa.string(),
                rows,
                [None, pa.py_buffer(offsets), pa.py_buffer(random.integers(48, 112, rows * FIELD_BYTES, np.uint8))],
            )
            for _ in range(FIELDS)
        ]
        yield pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + rows)), *fields], schema=SCHEMA)


class NyalaServer:
    """``nyala serve`` with its defaults, or other options; ``row_column`` keeps whole rows in addition."""

    row_column = False
    options: tuple[str, ...] = ()

    def __init__(self, folder: Path, count: int) -> None:
        port = free_port()
        self.address = f"grpc://127.0.0.1:{port}"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(folder), "--listen", self.address]
        command += [f"--set={option.format(quarter=max(count * ROW_BYTES // 4, 1 << 20))}" for option in self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_open(port, self.process)
        with nyala.connect(self.address) as database:
            table = database.create_table(TABLE, SCHEMA, ["key"], row_column=self.row_column)
            table.insert(pa.RecordBatchReader.from_batches(SCHEMA, records(count)))
            table.maintain("flush")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


class SmallCache(NyalaServer):
    """With a page cache for a quarter of the records."""

    options = ("page_cache_bytes={quarter}",)


class TunedSmallCache(SmallCache):
    """The same with whole rows."""

    row_column = True


class BareFlight:
    """A server of pyarrow alone, which keeps nothing: see ``bare``."""

    def __init__(self, folder: Path, count: int) -> None:
        root = Path(__file__).parent.parent.parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.ycsb.bare"], stdout=subprocess.PIPE, cwd=root, text=True
        )
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


class SqliteFile:
    """No server: the file."""

    settings = ""

    def __init__(self, folder: Path, count: int) -> None:
        self.address = str(folder / "ycsb.sqlite")
        connection = sqlite3.connect(self.address)
        connection.executescript(self.settings)
        connection.execute("PRAGMA journal_mode = WAL")
        fields = ", ".join(f"{name} TEXT" for name in FIELD_NAMES)
        connection.execute(f"CREATE TABLE {TABLE} (key INTEGER PRIMARY KEY, {fields})")
        marks = ", ".join("?" * (1 + FIELDS))
        for batch in records(count):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            connection.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def close(self) -> None:
        """Nothing runs."""


class TunedSqliteFile(SqliteFile):
    """With larger pages, from its first page on; see ``TunedSqliteClient`` for the rest."""

    settings = TUNED_SQLITE


class DuckDbServer:
    """DuckDB 1.5.5 with its defaults, behind its own protocol: see ``quack``."""

    def __init__(self, folder: Path, count: int) -> None:
        root = Path(__file__).parent.parent.parent
        command = [sys.executable, "-m", "bench.ycsb.quack", str(folder / "ycsb.duckdb"), str(count)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True)
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.communicate(timeout=60)


class PostgresServer(Cluster):
    """A cluster of its own, with its defaults; of Debian's package ``postgresql``."""

    settings: tuple[str, ...] = ()
    fill = 100

    def __init__(self, folder: Path, count: int) -> None:
        import psycopg  # pyright: ignore[reportMissingImports]

        super().__init__(folder, [each.format(cache=self.cache(count)) for each in self.settings])
        loading: Any = psycopg.connect(self.address)
        with loading as connection:
            fields = ", ".join(f"{name} text" for name in FIELD_NAMES)
            connection.execute(
                f"CREATE TABLE {TABLE} (key bigint PRIMARY KEY, {fields}) WITH (fillfactor = {self.fill})"
            )
            with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
                for batch in records(count):
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        copy.write_row(row)
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"VACUUM ANALYZE {TABLE}")
            connection.execute("CHECKPOINT")

    def cache(self, count: int) -> str:
        """Return the buffers of the tuned ones: for all records."""
        return "4GB"


class TunedPostgres(PostgresServer):
    """With buffers for all records, rare checkpoints, room for updates in each page, and plans without a compiler."""

    settings = (
        "shared_buffers={cache}",
        "effective_cache_size=12GB",
        "max_wal_size=16GB",
        "checkpoint_timeout=30min",
        "wal_buffers=64MB",
        "random_page_cost=1.1",
        "jit=off",
    )
    fill = 80


class TunedSmallPostgres(TunedPostgres):
    """The same with buffers for a quarter of the records."""

    def cache(self, count: int) -> str:
        return f"{max(count * ROW_BYTES // 4 >> 20, 1)}MB"


# While the records fit into the cache, no option of Nyala makes gets faster.
SERVERS: dict[str, type] = {
    "Nyala": NyalaServer,
    "Bare Flight": BareFlight,
    "SQLite": SqliteFile,
    "SQLite, tuned": TunedSqliteFile,
    "PostgreSQL": PostgresServer,
    "PostgreSQL, tuned": TunedPostgres,
    "DuckDB, Quack": DuckDbServer,
}
LARGE: dict[str, type] = {
    "Nyala": SmallCache,
    "Nyala, tuned": TunedSmallCache,
    "PostgreSQL": PostgresServer,
    "PostgreSQL, tuned": TunedSmallPostgres,
}
"""For records that are four times the cache of Nyala, and that of PostgreSQL if it is tuned; by default PostgreSQL has
room for an eighth of them. The system keeps the files of all in memory."""


def available(servers: dict[str, type]) -> dict[str, type]:
    """Return the stores that this machine has."""

    def here(server: type) -> bool:
        if issubclass(server, PostgresServer):
            return has_postgres()
        return has_quack() if server is DuckDbServer else True

    return {name: server for name, server in servers.items() if here(server)}
