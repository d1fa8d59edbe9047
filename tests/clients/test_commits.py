"""The commits of a table: when, by whom, how many rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, SnapshotTooOldError
from nyala.schemas.rows import commits as commits_schema

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])


@pytest.fixture
def table(db: Database) -> Table:
    return db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])


def counted(db: Database, since: Any = None) -> list[tuple[int, int, int]]:
    rows = db.commits("t", since).to_pylist()
    return [(row["inserted"], row["updated"], row["deleted"]) for row in rows]


def test_each_commit_has_its_counts(db: Database, table: Table) -> None:
    assert counted(db) == []
    first = table.insert({"id": list(range(10)), "x": [0] * 10})
    table.maintain("flush")
    second = table.upsert({"id": [9, 10], "x": [1, 1]})
    table.delete_ignore({"id": [0, 99]})
    table.delete_ignore({"id": [99]})  # changes nothing
    table.maintain("flush_deltas")
    assert counted(db) == [(10, 0, 0), (1, 1, 0), (0, 0, 1)]
    assert counted(db, first.timestamp) == counted(db)[1:]
    found = db.commits(table)
    assert found.schema == commits_schema.COMMITS_SCHEMA
    assert found["timestamp"].to_pylist()[:2] == [first.timestamp, second.timestamp]
    moment = found["at"][0].as_py()
    assert abs(dt.datetime.now(dt.UTC) - moment) < dt.timedelta(minutes=5)
    assert counted(db, moment) == counted(db)[1:]  # a moment stands for its last timestamp
    assert counted(db, db.now()) == []


def test_who_wrote(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        made = db.create_table("t", SCHEMA, ["id"])
        made.insert({"id": [1]}, writer="loader", seq=0)
        made.update_where({"x": "id"}, writer="nightly", seq=4)
        with db.transaction("load-7") as t:
            t.insert("t", {"id": [2, 3]})
        made.insert({"id": [4]})
        made.restore(made.last_change() - 1)
    with nyala.open(tmp_path / "store") as db:
        found = db.commits("t").select(["writer", "transaction", "inserted", "updated", "deleted"]).to_pydict()
    assert found == {
        "writer": ["loader", "nightly", None, None, None],
        "transaction": [None, None, "load-7", None, None],
        "inserted": [1, 0, 2, 1, 0],
        "updated": [0, 1, 0, 0, 0],
        "deleted": [0, 0, 0, 0, 1],
    }


def test_many_commits_come_in_pages(db: Database, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_schema, "_PAGE_COMMITS", 3)
    for number in range(10):
        table.insert({"id": [number]})
    assert counted(db) == [(1, 0, 0)] * 10
    monkeypatch.setattr("nyala.engine.scan.plan.commits.COMMITS_MAX", 5)
    with pytest.raises(InvalidArgumentError, match="give a later time"):
        db.commits("t")


def test_what_cannot_be(db: Database, table: Table) -> None:
    with pytest.raises(SnapshotTooOldError):
        db.commits("t", since=1)
    with pytest.raises(NotFoundError):
        db.commits("other")
    with pytest.raises(InvalidArgumentError):
        db.commits("t", since="soon")
