"""A store in a directory that one database writes, and another one reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from nyala.clients.api.database import Database

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("name", pa.string())])
SMALL: dict[str, Any] = {"maintenance": "off", "wal_segment_bytes": 64 << 10, "direct_load_bytes": 4_000}


def put(database: Database, *ids: int, v: int = 1, table: str = "t") -> None:
    database.table(table).upsert([{"id": each, "v": v, "name": f"row {each}"} for each in ids])


def rows(database: Database, table: str = "t", **how: Any) -> list[dict[str, Any]]:
    return sorted(database.table(table).scan(**how).to_arrow().to_pylist(), key=lambda row: row["id"])


def tree(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Return what can be told of all files: their bytes, and when they and their names were changed."""
    files: dict[str, tuple[Any, ...]] = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        state = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        files[str(path)] = state.st_ino, state.st_mode, state.st_mtime_ns, state.st_ctime_ns, content
    return files
