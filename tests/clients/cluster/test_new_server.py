"""A server that was added: it has none of the older tables, and changes to them go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.schemas.errors import NotFoundError, UnavailableError
from nyala.schemas.store.placement import Placement, ServerIdentity
from nyala.schemas.table.alter import Alteration, RenameTable
from tests.clients.cluster.cluster import Cluster, Member

COUNT = 30
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])


def make(db: Database, name: str) -> None:
    table = db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=6)])
    table.insert(rows(0))


def rows(v: int) -> pa.Table:
    return pa.table([pa.array(range(COUNT)), pa.array([v] * COUNT)], schema=SCHEMA)


@pytest.fixture
def db(cluster: Cluster) -> Iterator[Database]:
    """A database of three servers with a table of each age; the third server was added between them."""
    make(cluster.connect(), "old")
    folder = cluster.members["a"].location.rpartition("/")[0]
    placement = cluster.placement = Placement(servers={**cluster.placement.servers, "c": (f"{folder}/c",)})
    for name, member in cluster.members.items():
        member.stop()
        member.here = ServerIdentity(placement, name)
        member.start()
    cluster.members["c"] = Member(ServerIdentity(placement, "c"), MemoryFileSystem())
    database = cluster.connect()
    make(database, "new")
    assert cluster.members["c"].store.tables() == ["new"]
    yield database


def values(db: Database, table: str) -> set[int]:
    return set(db.table(table).scan().to_arrow()["v"].to_pylist())


@pytest.mark.parametrize("number", [{}, {"writer": "w", "seq": 1}])
def test_statements_change_older_tables(db: Database, number: dict[str, Any]) -> None:
    for _ in range(2 if number else 1):
        assert db.table("old").update_where({"v": "v + 1"}, **number).applied == COUNT
    assert values(db, "old") == {1}


@pytest.mark.parametrize("version", [{}, {"app_id": "loads", "app_version": 1}])
def test_transactions_change_tables_of_each_age(db: Database, version: dict[str, Any]) -> None:
    with db.transaction(**version) as changes:
        changes.upsert("old", rows(2))
        changes.upsert("new", rows(2))
    assert values(db, "old") == values(db, "new") == {2}
    with db.transaction() as changes:
        changes.upsert("old", rows(3))
    assert values(db, "old") == {3}


def test_a_part_of_a_table_that_was_dropped_is_an_error(db: Database) -> None:
    with pytest.raises(NotFoundError), db.transaction() as changes:
        changes.upsert("old", rows(2))
        changes.upsert("new", rows(2))
        db.drop_table("old")
    assert values(db, "new") == {0}


@pytest.mark.parametrize("way", ["statement", "transaction", "truncate"])
def test_a_table_that_some_servers_know_by_another_name_is_changed_nowhere(
    db: Database, cluster: Cluster, way: str
) -> None:
    rename(cluster, "a", "old", "renamed")
    with pytest.raises((UnavailableError, NotFoundError)):
        if way == "statement":
            db.table("old").update_where({"v": "v + 1"})
        else:
            with db.transaction() as changes:
                changes.upsert("new", rows(2))
                if way == "truncate":
                    changes.truncate("old")
                else:
                    changes.upsert("old", rows(2))
    assert values(db, "new") == {0}
    rename(cluster, "b", "old", "renamed")
    for name in "ab":
        rename(cluster, name, "renamed", "old")
    assert values(db, "old") == {0}


def rename(cluster: Cluster, server: str, table: str, name: str) -> None:
    cluster.members[server].store.alter_table(Alteration(table=table, steps=[RenameTable(to=name)]))
