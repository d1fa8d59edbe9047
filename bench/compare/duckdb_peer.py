"""DuckDB with a primary key, in this process, with its defaults: a thread for each core, fsync at commit."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

CREATE = """
CREATE TABLE orders (
    key BIGINT PRIMARY KEY, placed_at TIMESTAMP, status VARCHAR, city VARCHAR,
    price DOUBLE, reading DOUBLE, quantity INTEGER, reference VARCHAR
)"""


class DuckDb:
    """One database file; a statement is a transaction."""

    def __init__(self, folder: Path) -> None:
        self.connection = duckdb.connect(str(folder / "orders.duckdb"))
        self.connection.execute(CREATE)

    def load(self, table: pa.Table) -> None:
        self._apply("INSERT INTO orders SELECT * FROM given", table)

    def settle(self) -> None:
        self.connection.execute("CHECKPOINT")

    def scan(self, columns: list[str] | None = None, where: str | None = None) -> pa.Table:
        query = f"SELECT {', '.join(columns or ['*'])} FROM orders" + (f" WHERE {where}" if where else "")
        return self.connection.sql(query).to_arrow_table()

    def upsert(self, rows: pa.Table) -> None:
        self._apply("INSERT OR REPLACE INTO orders SELECT * FROM given", rows)

    def get(self, key: int) -> dict[str, Any] | None:
        found = self.connection.execute("SELECT * FROM orders WHERE key = ?", [key])
        names = [column[0] for column in found.description]
        row = found.fetchone()
        return None if row is None else dict(zip(names, row, strict=True))

    def close(self) -> None:
        self.connection.close()

    def _apply(self, statement: str, rows: pa.Table) -> None:
        self.connection.register("given", rows)
        self.connection.execute(statement)
        self.connection.unregister("given")
