"""Parquet files written and read by pyarrow, with zstd: no store, but the measure of what columns cost in files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..subject import NotOffered, row_filter
from ..workload import Aggregate, Filter, Workload
from .files import sync_folder
from .grouping import aggregated


class Parquet:
    """One file, sorted by nothing. Changing a row means to write all of them again, so it is not measured."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.key = folder, workload.key
        self.file = folder / "rows.parquet"

    def load(self, table: pa.Table) -> None:
        pq.write_table(table, self.file, compression="zstd")
        sync_folder(self.folder)

    def settle(self) -> None:
        """A file is as it stays."""

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        return pq.read_table(self.file, columns=columns, filters=where or None)

    def aggregate(self, asked: Aggregate) -> pa.Table:
        return aggregated(asked, self.scan)

    def upsert(self, rows: pa.Table) -> None:
        raise NotOffered

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        rows = self.scan(where=row_filter(self.key, key)).to_pylist()
        return rows[0] if rows else None

    def close(self) -> None:
        """Nothing is open."""


class TunedParquet(Parquet):
    """Sorted by the key, with an index of its pages: a read by key skips all other row groups."""

    def load(self, table: pa.Table) -> None:
        rows = table.sort_by([(name, "ascending") for name in self.key])
        pq.write_table(rows, self.file, compression="zstd", row_group_size=131_072, write_page_index=True)
        sync_folder(self.folder)
