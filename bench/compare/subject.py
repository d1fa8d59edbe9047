"""What every store in the comparison must do."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from .workload import Aggregate, Filter


class Subject(Protocol):
    """An empty store in a folder of its own, holding one table.

    A method that a store cannot offer raises ``NotOffered``: its cell of the table stays empty.
    """

    def load(self, table: pa.Table) -> None:
        """Insert all rows; return when they are durable."""
        ...

    def settle(self) -> None:
        """Bring what was written into the form that it is kept in: a flush, a checkpoint."""
        ...

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        """Return the rows as Arrow, strings as strings."""
        ...

    def aggregate(self, asked: Aggregate) -> pa.Table:
        """Return the measures for each group."""
        ...

    def upsert(self, rows: pa.Table) -> None:
        """Insert or replace whole rows by their key in one call; return when they are durable."""
        ...

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        """Return one row by its key."""
        ...

    def close(self) -> None:
        """Stop cleanly."""
        ...


class NotOffered(Exception):
    """The store has no such operation, or none that anybody would use."""


def row_filter(key: Iterable[str], values: Iterable[int]) -> Filter:
    """Return the filter that names one row by its key."""
    return [(name, "=", value) for name, value in zip(key, values, strict=True)]


def folder_bytes(folder: Path, logs: bool) -> int:
    """Return what the files under ``folder`` take on disk, with or without the write-ahead logs.

    Logs are what one setting makes them: Nyala reserves theirs ahead in whole segments.
    """
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files if logs or not _is_log(file))


def _is_log(file: Path) -> bool:
    return file.parent.name == "wal" or file.name.endswith((".wal", "-wal"))
