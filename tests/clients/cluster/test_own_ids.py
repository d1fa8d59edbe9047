"""Servers that share a table give it numbers of their own: no request of a client may mean the table by one of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.sources.staging import StagedCommit
from nyala.schemas.rows.operation import Operation
from tests.clients.cluster.pair import Pair

ROWS = pa.table({"id": range(40), "v": ["a"] * 40})


@pytest.fixture
def table(pair: Pair) -> Table:
    for _ in range(3):  # one server has counted further
        only_there = Database(pair.stores["b"])
        only_there.create_table("other", ROWS.schema, ["id"])
        only_there.drop_table("other")
    made = pair.db.create_table("t", ROWS.schema, ["id"], partition_by=[nyala.hash("id", buckets=8)])
    assert len({each.describe_table("t").table_id for each in pair.stores.values()}) == 2
    return made


def test_transactions_replace_the_rows_of_all_servers(pair: Pair, table: Table) -> None:
    for _ in range(2):
        with pair.db.transaction() as work:
            work.truncate(table)
            work.insert(table, ROWS)
    assert table.count() == 40


def test_sql_changes_the_rows_of_all_servers(pair: Pair, table: Table) -> None:
    insert = "INSERT INTO t (id, v) VALUES " + ", ".join(f"({i}, 'a')" for i in range(40))
    pair.db.sql(insert)
    assert table.count() == 40
    pair.db.sql("TRUNCATE TABLE t")
    assert table.count() == 0


def test_sources_replace_the_rows_of_all_servers(pair: Pair, table: Table) -> None:
    store = pair.db._store
    for _ in range(2):
        changes = StagedCommit(store)
        changes.truncate(store.describe_table("t"))
        changes.write(store.describe_table("t"), ROWS, Operation.INSERT)
        changes.commit()
    assert table.count() == 40
