"""SQLite in this process: a log, and a sync at each commit. Whole tables go in and out through its ADBC driver."""

import sqlite3
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_sqlite import dbapi  # pyright: ignore[reportMissingImports]

from ..subject import row_filter
from ..workload import Aggregate, Filter, Workload, literal, sql

EPOCH = date(1970, 1, 1).toordinal()
DURABLE = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
TUNED = (
    "PRAGMA page_size = 8192; PRAGMA cache_size = -1048576; PRAGMA mmap_size = 8589934592;"
    "PRAGMA wal_autocheckpoint = 100000; PRAGMA temp_store = MEMORY; "
)


class Sqlite:
    """One file, rows in the order of the key (``WITHOUT ROWID``). It has no dates and decimals: integers and floats."""

    settings = DURABLE

    def __init__(self, folder: Path, workload: Workload) -> None:
        file, self.key = str(folder / "rows.sqlite"), workload.key
        self.connection = sqlite3.connect(file, isolation_level=None)
        self.connection.executescript(self.settings)
        self.connection.row_factory = sqlite3.Row
        columns = [f"{field.name} {_type(field.type)}" for field in workload.table.schema]
        key = f"PRIMARY KEY ({', '.join(self.key)})"
        self.connection.execute(f"CREATE TABLE rows ({', '.join([*columns, key])}) WITHOUT ROWID")
        self.names = ", ".join(workload.table.column_names)
        self.arrow = dbapi.connect(file, autocommit=True)
        with self.arrow.cursor() as cursor:
            cursor.executescript(self.settings)

    def load(self, table: pa.Table) -> None:
        self._apply("INSERT", table)

    def settle(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        condition = f" WHERE {_days(where)}" if where else ""
        return self._asked(f"SELECT {', '.join(columns or ['*'])} FROM rows{condition}")

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return self._asked(asked.query("rows", _days))

    def upsert(self, rows: pa.Table) -> None:
        self._apply("INSERT OR REPLACE", rows)

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        row = self.connection.execute(f"SELECT * FROM rows WHERE {sql(row_filter(self.key, key))}").fetchone()
        return None if row is None else dict(row)

    def close(self) -> None:
        self.arrow.close()
        self.connection.close()

    def _apply(self, verb: str, rows: pa.Table) -> None:
        marks = ", ".join("?" * rows.num_columns)
        plain = pa.table([_numbers(column) for column in rows.columns], rows.column_names)
        with self.arrow.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(f"{verb} INTO rows ({self.names}) VALUES ({marks})", plain)
            cursor.execute("COMMIT")

    def _asked(self, query: str) -> pa.Table:
        with self.arrow.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()


class TunedSqlite(Sqlite):
    """With a cache of a gigabyte, the file mapped into memory, and rare checkpoints."""

    settings = TUNED + DURABLE


def _type(kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return "TEXT"
    return "REAL" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else "INTEGER"


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates as days and timestamps as their unit, both integers, and decimals as floats."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return pc.cast(column, pa.float64()) if pa.types.is_decimal(column.type) else column


def _days(where: Filter) -> str:
    return sql(where, lambda value: str(value.toordinal() - EPOCH) if isinstance(value, date) else literal(value))
