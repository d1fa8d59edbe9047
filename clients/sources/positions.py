"""The table of positions: how far the store has each source, written in the same commits as the rows.

A row's key has the number of the source's commits. A commit deletes the row of the one before it and inserts its own.
If another runner was first, the row to delete is not there, and the store refuses the whole commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pydantic import Field

from ...schemas.errors import ConflictError, InvalidArgumentError, RowErrors
from ...schemas.message import Message, new_list
from ..api.database import Database
from .source import SourceTable

POSITIONS = "nyala_sources"
_HISTORY_SECONDS = 3600
_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), False),
        pa.field("commit", pa.int64(), False),
        ("kind", pa.string()),
        ("state", pa.string()),
        ("position", pa.string()),
        ("source_time", pa.timestamp("us")),
        ("applied_at", pa.timestamp("us")),
        ("behind_bytes", pa.int64()),
        ("behind_messages", pa.int64()),
        ("tables", pa.string()),
        ("memo", pa.string()),
    ]
)
_KEY = ["source", "commit"]


class State(StrEnum):
    """What the store has of a source."""

    COPYING = "copying"
    """Nothing yet: a copy has begun, and commits all of its rows at once."""
    FOLLOWING = "following"


class Position(Message, frozen=True):
    """How far the store has a source: a row of the table ``nyala_sources``."""

    source: str
    kind: str
    commit: int = 0
    """Counts the commits of the source's runners."""
    state: State = State.COPYING
    position: str | None = None
    source_time: datetime | None = None
    """When the last applied transaction was committed in the source, in UTC."""
    applied_at: datetime | None = None
    behind_bytes: int | None = None
    behind_messages: int | None = None
    tables: list[SourceTable] = Field(default_factory=new_list)
    memo: str = ""

    def row(self) -> pa.RecordBatch:
        """Return the position as a row."""
        cells = self.model_dump(mode="python") | {
            "state": self.state.value,
            "source_time": _plain(self.source_time),
            "applied_at": _plain(self.applied_at),
            "tables": json.dumps([table.model_dump(mode="json") for table in self.tables]),
        }
        return pa.RecordBatch.from_pylist([{name: cells[name] for name in _SCHEMA.names}], schema=_SCHEMA)

    def key(self) -> pa.RecordBatch:
        """Return the key of its row."""
        return self.row().select(_KEY)


class Positions:
    """The positions of all sources of a database."""

    def __init__(self, database: Database) -> None:
        """Create the table if there is none."""
        self._table = database.create_table(
            POSITIONS,
            _SCHEMA,
            _KEY,
            if_not_exists=True,
            history_max_age_seconds=_HISTORY_SECONDS,
            comment="How far each source is mirrored: see docs/mirror.md",
        )
        self.about = database._store.describe_table(POSITIONS)

    def check_one_server(self) -> None:
        """Raise InvalidArgumentError if several servers share the tables: no commit is one over all of them."""
        if len(self.about.stores) > 1:
            raise InvalidArgumentError(
                "several servers share the tables of this store, and one commit cannot cover several servers: use a "
                "store with one server"
            )

    def read(self, source: str) -> Position | None:
        """Return the position of a source, None if the store has nothing of it."""
        rows = self._table.scan(where=[("source", "=", source)]).to_arrow().to_pylist()
        return _position(max(rows, key=lambda each: each["commit"])) if rows else None

    def read_kind(self, kind: str) -> dict[str, Position]:
        """Return the positions of all sources of a kind, by source."""
        rows = self._table.scan(where=[("kind", "=", kind)]).to_arrow().to_pylist()
        rows.sort(key=lambda each: each["commit"])
        return {row["source"]: _position(row) for row in rows}


def _position(row: dict[str, Any]) -> Position:
    times = {name: _in_utc(row[name]) for name in ("source_time", "applied_at")}
    return Position.model_validate(row | times | {"tables": json.loads(row["tables"])})


def lost_race(source: str, error: RowErrors) -> ConflictError | None:
    """Return the error of a source's runner whose commit was refused because another one was first; None if ``error``
    has another cause."""
    if not is_lost_race(error):
        return None
    return ConflictError(
        f"another process has mirrored the source {source!r} meanwhile, so this process stops; nothing was applied "
        "twice: let only one process run, or give each process another --source"
    )


def is_lost_race(error: RowErrors) -> bool:
    """Whether a commit was refused because another one had moved the position of a source before."""
    return any(getattr(each, "table", None) == POSITIONS for each in error.result.errors)


def listed(tables: Sequence[SourceTable]) -> str:
    """Return the tables of a source as a text for messages."""
    return ", ".join(f"{table.name} as {table.target}" for table in tables)


def _plain(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)
