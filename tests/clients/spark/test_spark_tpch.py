"""Queries of TPC-H at scale 0.1 beside DuckDB: with the shim, and after changes by MERGE also without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import nyala
from bench.tpch.answers import is_same
from bench.tpch.data import HASHED_BY, KEYS, generate, queries, table
from nyala.clients.api.database import Database
from nyala.engine.store import Store
from tests.dose import by_night, dose

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

SCALE = dose(0.02, 0.1)
BY_DAY = 1, 3, 13, 15, 18, 21, 22
"""Queries with groups, joins, an outer one too, a view, and subqueries of each kind."""
QUERIES = {number: text for number, text in queries(SCALE).items() if number in dose(BY_DAY, range(1, 23))}
SHARE = 0.01
"""Of the rows of a table, which a MERGE changes, and as many again, which it deletes."""
NEW_ROWS = 100
CHANGED = {
    "lineitem": ["l_quantity", "l_discount", "l_shipdate", "l_returnflag"],
    "orders": ["o_totalprice", "o_orderdate", "o_orderpriority", "o_comment"],
    "customer": ["c_acctbal", "c_phone"],
    "partsupp": ["ps_supplycost", "ps_availqty"],
}
"""What a MERGE assigns to, table by table."""


class Stores:
    """The same rows in the store and in DuckDB."""

    def __init__(self, store: Store, folder: Path) -> None:
        generate(SCALE, folder)
        self.db = Database(store)
        self.duck = duckdb.connect()
        self.random = np.random.default_rng(7)
        for name, key in KEYS.items():
            rows = table(folder, name)
            levels = [nyala.hash(HASHED_BY[name], buckets=4)] if name in HASHED_BY else []
            made = self.db.create_table(name, rows.schema, primary_key=list(key), partition_by=levels)
            made.insert(rows)
            made.maintain("flush")
            self.duck.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")

    def changes(self, name: str) -> pa.Table:
        """Return rows with cells of other rows, some with new keys, and what becomes of each in ``op``."""
        rows = self.duck.sql(f"SELECT * FROM {name}").to_arrow_table()
        some = self.random.permutation(rows.num_rows)[: 2 * int(SHARE * rows.num_rows) + NEW_ROWS]
        changed = rows.take(some)
        for column in CHANGED[name]:
            others = self.random.integers(0, rows.num_rows, len(some))
            changed = changed.set_column(changed.column_names.index(column), column, rows[column].take(others))
        first = rows.schema.field(0)
        keys = changed[first.name].to_numpy().copy()
        keys[:NEW_ROWS] = np.arange(NEW_ROWS) + int(rows[first.name].to_numpy().max()) + 1
        op = np.where(np.arange(len(some)) % 2 == 0, "delete", "update")
        return changed.set_column(0, first, pa.array(keys, first.type)).append_column("op", pa.array(op))

    def close(self) -> None:
        self.duck.close()
        for name in self.db.tables():
            self.db.drop_table(name)


@pytest.fixture(scope="module")
def stores(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    opened = Stores(store, tmp_path_factory.mktemp("tpch"))
    yield opened
    opened.close()


def ask_all(spark: SparkSession, stores: Stores, read: Callable[[str], DataFrame]) -> None:
    for name in KEYS:
        read(name).createOrReplaceTempView(name)
    try:
        wrong = {}
        for number, text in QUERIES.items():
            found, expected = spark.sql(text).collect(), stores.duck.execute(text).fetchall()
            if not is_same([tuple(row) for row in found], expected):
                wrong[number] = (found[:3], expected[:3])
        assert not wrong
    finally:
        for name in KEYS:
            spark.catalog.dropTempView(name)


def test_answers_are_those_of_duckdb(spark: SparkSession, stores: Stores, load: Callable[..., DataFrame]) -> None:
    ask_all(spark, stores, load)


@pytest.mark.parametrize("name", by_night(CHANGED, day=["lineitem", "customer"]))
def test_a_merge_leaves_the_rows_that_duckdb_has(spark: SparkSession, stores: Stores, name: str) -> None:
    changes = stores.changes(name)
    columns = [column for column in changes.column_names if column != "op"]
    statement = f"""
        MERGE INTO {{target}} AS t USING changes AS s ON {" AND ".join(f"t.{key} = s.{key}" for key in KEYS[name])}
        WHEN MATCHED AND s.op = 'delete' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"{column} = s.{column}" for column in CHANGED[name])}
        WHEN NOT MATCHED THEN INSERT ({", ".join(columns)}) VALUES ({", ".join(f"s.{column}" for column in columns)})
    """
    before = stores.duck.execute(f"SELECT count(*) FROM {name}").fetchall()
    stores.duck.register("changes", changes)
    stores.duck.execute(statement.format(target=name))
    spark.createDataFrame(changes).createOrReplaceTempView("changes")
    spark.sql(statement.format(target=f"nyala.default.{name}"))
    expected = stores.duck.sql(f"SELECT * FROM {name} ORDER BY {', '.join(KEYS[name])}").to_arrow_table()
    found = stores.db.table(name).scan(ordered=True).to_arrow()
    assert found.select(expected.column_names).cast(expected.schema).combine_chunks() == expected.combine_chunks()
    assert stores.duck.execute(f"SELECT count(*) FROM {name}").fetchall() != before


@pytest.mark.parametrize("source", ["load", pytest.param("plain", marks=pytest.mark.night)])
def test_answers_after_the_merges(
    spark: SparkSession, stores: Stores, request: pytest.FixtureRequest, source: str
) -> None:
    ask_all(spark, stores, request.getfixturevalue(source))
