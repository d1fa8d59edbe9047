"""What every store in the comparison must do."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
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
    size = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a store renames and removes files while it is measured
            about = file.stat()
            size += about.st_blocks * 512 if S_ISREG(about.st_mode) and (logs or not _is_log(file)) else 0
    return size


def _is_log(file: Path) -> bool:
    return file.parent.name == "wal" or file.name.endswith((".wal", "-wal"))
