"""Rows of PostgreSQL and of a store in one form, to be compared."""

from __future__ import annotations

import json
from typing import Any

from nyala.clients.api.database import Database

from .postgres_server import PostgresServer


def of_postgres(server: PostgresServer, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a table, sorted."""
    with server.connection() as connection, connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute(f"SELECT {columns} FROM {table}")
        return sorted((tuple(map(plain, row)) for row in cursor.fetchall()), key=repr)


def of_store(database: Database, table: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a table, sorted."""
    rows = database.table(table).scan(columns=columns).to_arrow().to_pylist()
    return sorted((tuple(map(plain, row.values())) for row in rows), key=repr)


def plain(cell: Any) -> Any:
    """Return a cell in the form that both sides share."""
    if isinstance(cell, memoryview):
        return bytes(cell)
    if hasattr(cell, "tzinfo") and hasattr(cell, "replace") and hasattr(cell, "date"):
        return cell.replace(tzinfo=None)
    if isinstance(cell, float):
        return repr(cell)
    return json.dumps(cell, sort_keys=True) if isinstance(cell, dict) else cell
