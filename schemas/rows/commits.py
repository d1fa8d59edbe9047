"""The commits in a table's history: when, by whom, by which operation, how many rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pydantic import Field

from ..cells.timestamp import parse_moment
from ..message import Message, new_list

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.int64(), False),
        pa.field("at", pa.timestamp("us", "UTC"), False),
        pa.field("writer", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("inserted", pa.int64(), False),
        pa.field("updated", pa.int64(), False),
        pa.field("deleted", pa.int64(), False),
        pa.field("operation", pa.string()),
        pa.field("user", pa.string()),
    ]
)
COUNTS = ("inserted", "updated", "deleted")
"""The counts of rows, in the order of ``changes.BY_COMMITS``."""
COMMITS_MAX = 1_000_000
"""Commits in one answer; ask for more with a later ``since``."""
_PAGE_COMMITS = 10_000


class CommitsBody(Message, frozen=True, extra="forbid"):
    """The body of ``commits``, which lists those of a table's rows."""

    table: str
    since: int | str | None = None
    """Commits after this moment; None: all in the history."""


class CommitsPage(Message):
    """One result of ``commits``, a page of them: parallel columns, ascending in ``timestamp``."""

    timestamp: list[int]
    writer: list[str | None]
    transaction: list[str | None]
    inserted: list[int]
    updated: list[int]
    deleted: list[int]
    operation: list[str | None] = Field(default_factory=new_list)
    user: list[str | None] = Field(default_factory=new_list)
    """Both are empty in the pages of earlier servers, which keep neither."""


def commits_table(columns: dict[str, list]) -> pa.Table:
    """Return the commits of a table's history as an Arrow table, given all columns but ``at``."""
    moments = pa.array([timestamp >> 12 for timestamp in columns["timestamp"]], pa.int64())
    named = {**columns, "at": moments.cast(COMMITS_SCHEMA.field("at").type)}
    unknown = pa.nulls(len(moments), pa.string())
    named |= {name: unknown for name in ("operation", "user") if not columns.get(name)}
    return pa.table([named[name] for name in COMMITS_SCHEMA.names], schema=COMMITS_SCHEMA)


def pages_of(commits: pa.Table) -> Iterator[bytes]:
    """Yield the commits of a table's history as JSON pages, at least one."""
    for first in range(0, max(commits.num_rows, 1), _PAGE_COMMITS):
        page = commits.slice(first, _PAGE_COMMITS).drop_columns(["at"]).to_pydict()
        yield CommitsPage.model_validate(page).model_dump_json().encode()


def commits_of(pages: Iterable[bytes]) -> pa.Table:
    """Return the commits of a table's history that are in pages."""
    return pa.concat_tables([commits_table(CommitsPage.model_validate_json(page).model_dump()) for page in pages])


def since_of(since: int | str | None, oldest: int) -> int:
    """Return the moment after which the commits of a table are wanted; None means the oldest possible."""
    return oldest if since is None else parse_moment(since, "since")
