"""ClickHouse's engine in this process, by chDB: a ReplacingMergeTree in the order of the key."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from chdb import session  # pyright: ignore[reportMissingImports]

from ..subject import row_filter
from ..workload import Aggregate, Filter, Workload, literal, sql
from .files import sync_folder

TYPES = {"int64": "Int64", "int32": "Int32", "double": "Float64", "string": "String", "date32[day]": "Date32"}


class Chdb:
    """An upsert is an insert: the newest row of a key wins, at each read (FINAL) until a merge drops the others."""

    settings = ""
    inserting = ""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.key = folder, workload.key
        columns = [f"{field.name} {_type(field)}" for field in workload.table.schema]
        self.session = session.Session(str(folder))
        self.session.query("CREATE DATABASE bench")
        engine = f"ENGINE = ReplacingMergeTree ORDER BY ({', '.join(self.key)}){self.settings}"
        self.session.query(f"CREATE TABLE bench.rows ({', '.join(columns)}) {engine}")

    def load(self, table: pa.Table) -> None:
        given = table  # the engine finds it by its name
        self.session.query(
            f"INSERT INTO bench.rows SELECT * FROM Python(given){self.inserting} -- {given.num_rows} rows"
        )
        sync_folder(self.folder)

    upsert = load

    def settle(self) -> None:
        self.session.query("OPTIMIZE TABLE bench.rows FINAL")
        sync_folder(self.folder)

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        condition = f" WHERE {_written(where)}" if where else ""
        return self._asked(f"SELECT {', '.join(columns or ['*'])} FROM bench.rows FINAL{condition}")

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return self._asked(asked.query("bench.rows FINAL", _written))

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        rows = self.scan(where=row_filter(self.key, key)).to_pylist()
        return rows[0] if rows else None

    def close(self) -> None:
        self.session.close()

    def _asked(self, query: str) -> pa.Table:
        return self.session.query(query, "ArrowTable")


class TunedChdb(Chdb):
    """With smaller steps of the key's index, zstd, and inserts that make few large parts."""

    settings = " SETTINGS index_granularity = 1024, default_compression_codec = 'ZSTD(1)'"
    inserting = (
        " SETTINGS max_insert_threads = 2, min_insert_block_size_rows = 8000000,"
        " min_insert_block_size_bytes = 2000000000"
    )


def _written(where: Filter) -> str:
    return sql(where, lambda value: f"toDate32('{value}')" if isinstance(value, date) else literal(value))


def _type(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type):
        return "DateTime64(6, 'UTC')"
    if pa.types.is_decimal(field.type):
        return f"Decimal({field.type.precision}, {field.type.scale})"
    return TYPES[str(field.type)]
