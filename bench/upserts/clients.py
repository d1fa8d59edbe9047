"""Each store as its documentation tells a user of Python to use it, every write durable when it returns."""

import fcntl
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as csv

import nyala
from bench.data import KEY, SCHEMA

from .synced import NewFiles

TABLE = "rows"
OTHERS = [name for name in SCHEMA.names if name != KEY]
SQL_TYPES = {"int64": "bigint", "int32": "integer", "double": "double precision", "string": "text"}
COLUMNS = ", ".join(f"{field.name} {SQL_TYPES.get(str(field.type), 'timestamp')}" for field in SCHEMA)
KEYED = f"{COLUMNS}, PRIMARY KEY ({KEY})"
REPLACE = f"ON CONFLICT ({KEY}) DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in OTHERS)}"


class Client(Protocol):
    """One process's use of the table in a folder, or of a server at an address."""

    conflicts: tuple[type[Exception], ...]
    """What an upsert raises if another process was faster, and nothing was written: try again."""

    def load(self, table: pa.Table) -> None:
        """Make the table, and leave it as somebody who means to upsert into it would: with an index, settled."""
        ...

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace whole rows by their key; return when they are durable."""
        ...

    def scan(self) -> pa.Table:
        """Return all rows."""
        ...

    def close(self) -> None:
        """Stop cleanly."""
        ...


class NyalaClient:
    """Over Flight, to ``nyala serve``. ``atomic`` makes one commit of a large call too, as in the other stores."""

    conflicts: tuple[type[Exception], ...] = ()

    def __init__(self, address: str) -> None:
        self.database: Any = self.opened(address)
        self.table: Any = self.database.table(TABLE) if TABLE in self.database.tables() else None

    def opened(self, address: str) -> Any:
        return nyala.connect(address)

    def load(self, table: pa.Table) -> None:
        self.table = self.database.create_table(TABLE, table.schema, primary_key=[KEY])
        self.table.insert(table)
        self.table.maintain("flush")

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows, atomic=True)

    def scan(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def close(self) -> None:
        self.database.close()


class EmbeddedNyala(NyalaClient):
    """The engine in this process."""

    def opened(self, address: str) -> Any:
        return nyala.open(address)


class Iceberg:
    """``pyiceberg`` with a catalog in SQLite. It tries a commit again four times by itself."""

    def __init__(self, address: str) -> None:
        from pyiceberg.catalog.sql import SqlCatalog  # pyright: ignore[reportMissingImports]
        from pyiceberg.exceptions import (  # pyright: ignore[reportMissingImports]
            CommitFailedException,
            ValidationException,
        )
        from sqlalchemy.exc import OperationalError  # pyright: ignore[reportMissingImports]

        self.conflicts: tuple[type[Exception], ...] = (CommitFailedException, ValidationException, OperationalError)
        self.catalog: Any = SqlCatalog(
            "bench", uri=f"sqlite:///{address}/catalog.db", warehouse=f"file://{address}/data"
        )
        self.files = NewFiles(Path(address))

    def load(self, table: pa.Table) -> None:
        self.catalog.create_namespace("bench")
        rows = self.catalog.create_table(f"bench.{TABLE}", schema=table.schema)
        with rows.update_schema() as update:
            update.set_identifier_fields(KEY)
        rows.append(table)
        self.files.sync()

    def upsert(self, rows: pa.Table) -> None:
        self.catalog.load_table(f"bench.{TABLE}").upsert(rows)
        self.files.sync()

    def scan(self) -> pa.Table:
        return self.catalog.load_table(f"bench.{TABLE}").scan().to_arrow()

    def close(self) -> None:
        self.catalog.close()


class Delta:
    """``deltalake``: an upsert is a MERGE. It tries a commit again by itself where files do not conflict."""

    def __init__(self, address: str) -> None:
        from deltalake.exceptions import CommitFailedError  # pyright: ignore[reportMissingImports]

        self.conflicts: tuple[type[Exception], ...] = (CommitFailedError,)
        self.address, self.files = address, NewFiles(Path(address))

    def load(self, table: pa.Table) -> None:
        from deltalake import write_deltalake  # pyright: ignore[reportMissingImports]

        write_deltalake(self.address, table)
        self.files.sync()

    def upsert(self, rows: pa.Table) -> None:
        merge = self._table().merge(rows, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.files.sync()

    def scan(self) -> pa.Table:
        from deltalake import QueryBuilder  # pyright: ignore[reportMissingImports]

        engine = QueryBuilder().register(TABLE, self._table())
        return pa.table(engine.execute(f"SELECT * FROM {TABLE}").read_all())

    def close(self) -> None:
        """Nothing is open."""

    def _table(self) -> Any:
        from deltalake import DeltaTable  # pyright: ignore[reportMissingImports]

        return DeltaTable(self.address)


class Lance:
    """``lancedb`` with a B-tree over the key: an upsert is a merge insert, which tries again by itself for 30 s."""

    conflicts: tuple[type[Exception], ...] = (RuntimeError,)

    def __init__(self, address: str) -> None:
        import lancedb  # pyright: ignore[reportMissingImports]

        self.database: Any = lancedb.connect(address)
        self.files = NewFiles(Path(address))
        self.table: Any = None

    def load(self, table: pa.Table) -> None:
        from lancedb.index import BTree  # pyright: ignore[reportMissingImports]

        self.table = self.database.create_table(TABLE, table)
        self.table.set_unenforced_primary_key(KEY)
        self.table.create_index(KEY, config=BTree())
        self.files.sync()

    def upsert(self, rows: pa.Table) -> None:
        table = self._newest()
        table.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self.files.sync()

    def scan(self) -> pa.Table:
        return self._newest().to_arrow()

    def close(self) -> None:
        """Nothing is open."""

    def _newest(self) -> Any:
        if self.table is None:
            self.table = self.database.open_table(TABLE)
        self.table.checkout_latest()
        return self.table


class DuckDb:
    """One file, which one process has at a time: each call waits for a lock, opens the file, and closes it.

    DuckDB's documentation also offers to open the file again and again until it works. Then acknowledged rows get lost.
    """

    conflicts: tuple[type[Exception], ...] = ()

    def __init__(self, address: str) -> None:
        self.path = Path(address) / "rows.duckdb"

    def load(self, table: pa.Table) -> None:
        with self._connected() as connection:
            connection.execute(f"CREATE TABLE {TABLE} ({KEYED})")
            connection.register("given", table)
            connection.execute(f"INSERT INTO {TABLE} SELECT * FROM given")
            connection.execute("CHECKPOINT")

    def upsert(self, rows: pa.Table) -> None:
        with self._connected() as connection:
            connection.register("given", rows)
            connection.execute(f"INSERT INTO {TABLE} SELECT * FROM given {REPLACE}")

    def scan(self) -> pa.Table:
        with self._connected() as connection:
            return connection.sql(f"SELECT * FROM {TABLE}").to_arrow_table()

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import duckdb

        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with duckdb.connect(str(self.path)) as connection:
                yield connection


class SharedDuckDb(DuckDb):
    """The file stays open in one process, whose threads have cursors: they try again after a conflict."""

    def __init__(self, address: str) -> None:
        import duckdb

        super().__init__(address)
        self.conflicts = (duckdb.TransactionException, duckdb.ConstraintException)
        self.shared = duckdb.connect(str(self.path))

    def close(self) -> None:
        self.shared.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self.shared.cursor() as connection:
            yield connection


class Postgres:
    """psycopg: many rows go through a temporary table by COPY, few by ``executemany``."""

    few = 1_000

    def __init__(self, address: str) -> None:
        import psycopg  # pyright: ignore[reportMissingImports]

        self.conflicts: tuple[type[Exception], ...] = (psycopg.errors.DeadlockDetected,)
        self.connection: Any = psycopg.connect(address, autocommit=True)

    def load(self, table: pa.Table) -> None:
        self.connection.execute(f"CREATE TABLE {TABLE} ({KEYED})")
        with self.connection.cursor() as cursor:
            self._copied(cursor, TABLE, table)
        self.connection.execute(f"VACUUM ANALYZE {TABLE}")
        self.connection.execute("CHECKPOINT")

    def upsert(self, rows: pa.Table) -> None:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if rows.num_rows > self.few:
                cursor.execute(f"CREATE TEMPORARY TABLE given (LIKE {TABLE}) ON COMMIT DROP")
                self._copied(cursor, "given", rows)
                cursor.execute(f"INSERT INTO {TABLE} SELECT * FROM given {REPLACE}")
            else:
                values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
                marks = ", ".join(["%s"] * len(SCHEMA))
                cursor.executemany(f"INSERT INTO {TABLE} VALUES ({marks}) {REPLACE}", values)

    def scan(self) -> pa.Table:
        text = io.BytesIO()
        with self.connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} TO STDOUT (FORMAT csv)") as copy:
            for piece in copy:
                text.write(piece)
        text.seek(0)
        types = csv.ConvertOptions(column_types=SCHEMA)
        return csv.read_csv(text, csv.ReadOptions(column_names=SCHEMA.names), convert_options=types)

    def close(self) -> None:
        self.connection.close()

    @staticmethod
    def _copied(cursor: Any, table: str, rows: pa.Table) -> None:
        with cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            for batch in rows.to_batches(max_chunksize=65_536):
                text = pa.BufferOutputStream()
                csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
                copy.write(text.getvalue().to_pybytes())
