"""DuckDB in this process, with its defaults: a thread for each core, fsync at commit."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..subject import row_filter
from ..workload import Aggregate, Filter, Workload, sql


class DuckDb:
    """One database file; a statement is a transaction. With a primary key it refuses keys that exist."""

    keyed = True
    settings = ""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.key, self.names = workload.key, workload.table.column_names
        self.connection = duckdb.connect(str(folder / "rows.duckdb"))
        self.connection.execute(self.settings)
        self._with(workload.table.slice(0, 0), "CREATE TABLE rows AS SELECT * FROM given")
        if self.keyed:
            self.connection.execute(f"ALTER TABLE rows ADD PRIMARY KEY ({', '.join(self.key)})")

    def load(self, table: pa.Table) -> None:
        self._with(table, "INSERT INTO rows SELECT * FROM given")

    def settle(self) -> None:
        self.connection.execute("CHECKPOINT")

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        query = f"SELECT {', '.join(columns or ['*'])} FROM rows" + (f" WHERE {sql(where)}" if where else "")
        return self.connection.sql(query).to_arrow_table()

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return self.connection.sql(asked.query("rows")).to_arrow_table()

    def upsert(self, rows: pa.Table) -> None:
        self._with(rows, "INSERT OR REPLACE INTO rows SELECT * FROM given")

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        rows = self.connection.execute(f"SELECT * FROM rows WHERE {sql(row_filter(self.key, key))}").fetchall()
        return dict(zip(self.names, rows[0], strict=True)) if rows else None

    def close(self) -> None:
        self.connection.close()

    def _with(self, rows: pa.Table, statement: str) -> None:
        self.connection.register("given", rows)
        self.connection.execute(statement)
        self.connection.unregister("given")


class KeylessDuckDb(DuckDb):
    """The same without a primary key: nothing keeps keys unique, and an upsert is a MERGE."""

    keyed = False

    def upsert(self, rows: pa.Table) -> None:
        same = " AND ".join(f"rows.{name} = given.{name}" for name in self.key)
        self._with(
            rows,
            f"MERGE INTO rows USING given ON {same} WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT",
        )


class TunedDuckDb(DuckDb):
    """Rows in any order, which lets all threads insert, and one checkpoint after a load instead of many."""

    settings = "SET preserve_insertion_order = false; SET checkpoint_threshold = '4GB'; SET memory_limit = '16GB'"
