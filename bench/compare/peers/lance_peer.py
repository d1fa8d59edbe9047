"""Lance: versioned columnar files with random access; a B-tree over the first key column serves its point reads."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance  # pyright: ignore[reportMissingImports]
import pyarrow as pa

from ..subject import row_filter
from ..workload import Aggregate, Filter, Workload, literal, sql
from .files import sync_folder
from .grouping import aggregated

INDEXED = (("price", "BTREE"), ("quantity", "BTREE"), ("status", "BITMAP"))
"""The columns of filters over the orders, with the index that suits each."""


class Lance:
    """A folder of data files. Nothing keeps keys unique; an upsert is a merge insert."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.key = folder, workload.key

    def load(self, table: pa.Table) -> None:
        self.rows = lance.write_dataset(table, str(self.folder))
        sync_folder(self.folder)

    def settle(self) -> None:
        self.rows.create_scalar_index(self.key[0], "BTREE", replace=True)
        sync_folder(self.folder)

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        return self.rows.to_table(columns=columns, filter=sql(where, _literal) if where else None)

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return aggregated(asked, self.scan)

    def upsert(self, rows: pa.Table) -> None:
        self.rows.merge_insert(list(self.key)).when_matched_update_all().when_not_matched_insert_all().execute(rows)
        sync_folder(self.folder)

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        rows = self.scan(where=row_filter(self.key, key)).to_pylist()
        return rows[0] if rows else None

    def close(self) -> None:
        """Nothing is open."""


class TunedLance(Lance):
    """With files merged, versions dropped and columns of filters indexed when the table settles."""

    def settle(self) -> None:
        self.rows.optimize.compact_files()
        self.rows.cleanup_old_versions(timedelta(0))
        for column, kind in (self.key[0], "BTREE"), *INDEXED:
            if column in self.rows.schema.names:
                self.rows.create_scalar_index(column, kind, replace=True)
        sync_folder(self.folder)


def _literal(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"decimal(12, 2) '{value}'"
    return f"date '{value}'" if isinstance(value, date) else literal(value)
