"""Delta Lake by ``deltalake`` (delta-rs), asked through its own engine, DataFusion."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake  # pyright: ignore[reportMissingImports]

from ..subject import row_filter
from ..workload import Aggregate, Filter, Workload, sql
from .files import sync_folder


class Delta:
    """A folder of Parquet files and a log. Nothing keeps keys unique; an upsert is a MERGE."""

    written: WriterProperties | None = None

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.key = folder, workload.key

    def load(self, table: pa.Table) -> None:
        write_deltalake(str(self.folder), table, writer_properties=self.written)
        sync_folder(self.folder)
        self._open()

    def _open(self) -> None:
        self.table = DeltaTable(str(self.folder))
        self.engine = QueryBuilder().register("rows", self.table)

    def settle(self) -> None:
        self.table.create_checkpoint()

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        condition = f" WHERE {sql(where)}" if where else ""
        return self._asked(f"SELECT {', '.join(columns or ['*'])} FROM rows{condition}")

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return self._asked(asked.query("rows"))

    def upsert(self, rows: pa.Table) -> None:
        same = " AND ".join(f"t.{name} = s.{name}" for name in self.key)
        merge = self.table.merge(rows, predicate=same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        sync_folder(self.folder)
        self._open()

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        rows = self.scan(where=row_filter(self.key, key)).to_pylist()
        return rows[0] if rows else None

    def close(self) -> None:
        """Nothing is open."""

    def _asked(self, query: str) -> pa.Table:
        return pa.table(self.engine.execute(query).read_all())


class TunedDelta(Delta):
    """With zstd, and files that are ordered by the key when the table settles: reads by key skip most of them."""

    written = WriterProperties(compression="ZSTD")

    def settle(self) -> None:
        self.table.optimize.z_order(list(self.key), writer_properties=self.written)
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        sync_folder(self.folder)
        self._open()
        super().settle()
