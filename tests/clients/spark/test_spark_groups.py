"""Groups: few, which the store completes, and many, which Spark combines. The same rows as those without the shim."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan import facade as reads
from nyala.engine.scan.plan import few_groups
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.spark import read_table
from tests.dose import by_night

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Load = Callable[..., DataFrame]
ROWS = 3_000
SCHEMA = pa.schema([
    pa.field("id", pa.int64(), False),
    pa.field("k", pa.int32(), False),
    pa.field("small", pa.int8()),
    pa.field("ok", pa.bool_()),
    pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us")),
    pa.field("cents", pa.decimal128(9, 2)),
    pa.field("wide", pa.decimal128(28, 3)),
    pa.field("city", pa.string()),
    pa.field("raw", pa.binary()),
    pa.field("price", pa.float64()),
])  # fmt: skip
GROUPS = [("k",), ("small",), ("ok",), ("day",), ("at",), ("cents",), ("city",), ("raw",), ("k", "city"), ("ok", "day")]
EPOCH = dt.datetime(1970, 1, 1)


@pytest.fixture
def sales(db: Database) -> Table:
    """Rows in files and in memory, some of them changed, with nine cells a column, one of them NULL."""
    return fill(db)


def fill(db: Database) -> Table:
    table = db.create_table("sales", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    table.insert(rows(range(ROWS)))
    table.maintain("flush")
    table.upsert(rows(range(ROWS - 50, ROWS + 200), shift=4))
    table.delete({"id": range(0, 90, 3)})
    table.update({"id": [1], "cents": [None], "city": ["new"]})
    return table


def rows(ids: range, shift: int = 0) -> pa.Table:
    numbers = [(shift + number) % 9 for number in ids]
    columns: list[list[Any]] = [
        numbers,
        [n % 2 == 0 for n in numbers],
        [EPOCH.date() + dt.timedelta(n - 4) for n in numbers],
        [EPOCH + dt.timedelta(hours=n - 4) for n in numbers],
        [Decimal(n * 111 - 400).scaleb(-2) for n in numbers],
        [Decimal(10**27 - n).scaleb(-3) for n in numbers],
        [f"city {n}" * (n % 3) for n in numbers],
        [bytes([n] * (n % 4)) for n in numbers],
        [n / 4 for n in numbers],
    ]
    nullable = [[None if n == 5 else cell for n, cell in zip(numbers, column, strict=True)] for column in columns]
    return pa.table([list(ids), [n - 4 for n in numbers], *nullable], schema=SCHEMA)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups are many."""
    monkeypatch.setattr(few_groups, "FEW", 0)


def plan_of(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()  # pyright: ignore[reportCallIssue, reportOptionalCall]


def is_complete(frame: DataFrame) -> bool:
    """Whether the store does all, in one task: Spark neither combines nor shuffles."""
    plan = plan_of(frame)
    assert "aggregate: " in plan, plan
    found = "Exchange" not in plan and "HashAggregate" not in plan
    assert found == ("Aggregate" not in plan)
    assert not found or frame._jdf.queryExecution().toRdd().getNumPartitions() == 1  # pyright: ignore
    return found


def measures() -> list[Column]:
    return [
        f.count("*").alias("n"),
        f.count("cents").alias("known"),
        f.sum("small").alias("small_sum"),
        f.sum("price").alias("price_sum"),
        f.avg("price").alias("price_avg"),
        f.avg("k").alias("k_avg"),
        f.min("day").alias("first_day"),
        f.max("at").alias("last_at"),
        f.max("city").alias("last_city"),
        f.min("wide").alias("least"),
    ]


def of_decimals() -> list[Column]:
    return [f.sum("cents").alias("sum"), f.avg("cents").alias("avg"), f.sum("wide").alias("wide"), f.avg("wide")]


def same(one: DataFrame, other: DataFrame) -> int:
    """Return how many rows two queries have, which are the same, of the same types."""
    found, expected = one.toArrow(), other.toArrow()
    assert found.schema.types == expected.schema.types and one.columns == other.columns
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
    return found.num_rows


@pytest.mark.parametrize("keys", by_night(GROUPS, day=[("cents",), ("k", "city"), ("ok", "day")]), ids="-".join)
def test_few_groups_are_completed_by_the_store(sales: Table, load: Load, plain: Load, keys: tuple[str, ...]) -> None:
    found = load("sales").groupBy(*keys).agg(*measures(), *of_decimals())
    assert is_complete(found)
    assert same(found, plain("sales").groupBy(*keys).agg(*measures(), *of_decimals())) > 2
    assert same(load("sales").select(*keys).distinct(), plain("sales").select(*keys).distinct()) > 2


@pytest.mark.parametrize("keys", by_night([("k",), ("city", "day")], day=[("city", "day")]), ids="-".join)
def test_many_groups_are_combined_by_spark(
    sales: Table, load: Load, plain: Load, many: None, keys: tuple[str, ...]
) -> None:
    found = load("sales").groupBy(*keys).agg(*measures())
    assert not is_complete(found)
    assert same(found, plain("sales").groupBy(*keys).agg(*measures())) > 2
    decimals = load("sales").groupBy(*keys).agg(*of_decimals())
    assert "aggregate: " not in plan_of(decimals), "Spark would combine them in the type of the cells"
    assert same(decimals, plain("sales").groupBy(*keys).agg(*of_decimals())) > 2


@pytest.mark.parametrize("lie", [1, None])
def test_what_the_plan_says_of_groups_changes_no_answer(
    sales: Table, load: Load, plain: Load, monkeypatch: pytest.MonkeyPatch, lie: int | None
) -> None:
    monkeypatch.setattr(reads, "groups_at_most", lambda *_: lie)
    found = load("sales").groupBy("id").agg(f.count("*"), f.sum("small"))
    assert is_complete(found) == (lie is not None)
    assert same(found, plain("sales").groupBy("id").agg(f.count("*"), f.sum("small"))) == sales.scan().count()


CONDITIONS = ["id < 100", "k = 1 AND id > 7", "day IS NULL OR city = 'new'", "id < 0", "abs(k) < 2"]


@pytest.mark.parametrize("where", by_night(CONDITIONS, day=CONDITIONS[2:4]))
def test_groups_of_some_rows(sales: Table, load: Load, plain: Load, where: str) -> None:
    def query(frame: DataFrame) -> DataFrame:
        return frame.where(where).groupBy("city").agg(*measures(), *of_decimals())

    found = query(load("sales"))
    assert where == "abs(k) < 2" or is_complete(found), "Spark evaluates that condition"
    assert (same(found, query(plain("sales"))) == 0) == (where == "id < 0")
    assert same(query(load("sales", where="id > 50 -- a comment")), query(plain("sales", "id > 50"))) >= 0


QUERIES = [
    "SELECT k, sum(price) AS s FROM {} GROUP BY k HAVING s > 300",
    "SELECT k AS a, city AS b, count(*) FROM {} GROUP BY 1, 2 ORDER BY a, b LIMIT 5",
    "SELECT k, count(*) FROM {} GROUP BY k ORDER BY k DESC LIMIT 3 OFFSET 1",
    "SELECT n, count(*) FROM (SELECT day, count(*) AS n FROM {} GROUP BY day) GROUP BY n",
    "SELECT count(*), sum(c) FROM (SELECT city, sum(cents) AS c FROM {} GROUP BY city)",
    "SELECT k, count(DISTINCT city), sum(DISTINCT small) FROM {} GROUP BY k",
    "SELECT k, sum(small) FILTER (WHERE ok), max(price) FROM {} GROUP BY k",
    "SELECT k, city, count(*) FROM {} GROUP BY ROLLUP (k, city)",
    "SELECT a.k, a.n, b.d FROM (SELECT k, count(*) AS n FROM {} GROUP BY k) a "
    "JOIN (SELECT k, max(day) AS d FROM {} GROUP BY k) b ON a.k = b.k",
    "SELECT id, k FROM {} WHERE k = (SELECT max(k) FROM {} GROUP BY ok HAVING ok)",
    "SELECT k, count(*) FROM (SELECT * FROM {} UNION ALL SELECT * FROM {}) GROUP BY k",
    "SELECT k + 0 AS b, sum(cents) FROM {} GROUP BY k, k + 0",
    "SELECT 7, count(*) FROM {} GROUP BY k",
]  # fmt: skip


@pytest.mark.parametrize("query", by_night(QUERIES, day=QUERIES[::4]))
def test_queries_with_groups(sales: Table, load: Load, plain: Load, spark: SparkSession, query: str) -> None:
    for number, where in enumerate(["id >= 0", "id < 20"]):
        load("sales").where(where).createOrReplaceTempView(f"ours{number}")
        plain("sales").where(where).createOrReplaceTempView(f"theirs{number}")
        ours, theirs = (spark.sql(query.replace("{}", f"{name}{number}")) for name in ("ours", "theirs"))
        assert same(ours, theirs) >= 0
    assert "aggregate: " in plan_of(spark.sql("SELECT k, count(*) FROM ours0 GROUP BY k"))


def test_groups_in_the_catalog(sales: Table, plain: Load, spark: SparkSession) -> None:
    found = spark.sql("SELECT k, sum(cents) AS s FROM nyala.default.sales WHERE id > 9 GROUP BY k")
    assert is_complete(found)
    assert same(found, plain("sales").where("id > 9").groupBy("k").agg(f.sum("cents").alias("s"))) == 9
    earlier = sales.delete({"id": [10]}).timestamp - 1
    then = spark.sql(f"SELECT k, count(*) AS n FROM nyala.default.sales VERSION AS OF {earlier} GROUP BY k")
    assert is_complete(then) and then.agg(f.sum("n")).collect()[0][0] == sales.scan().count() + 1


def test_an_empty_table_has_no_groups(db: Database, load: Load, plain: Load) -> None:
    db.create_table("sales", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    found = load("sales").groupBy("city", "k").agg(*measures(), *of_decimals())
    assert is_complete(found)
    assert same(found, plain("sales").groupBy("city", "k").agg(*measures(), *of_decimals())) == 0


def test_few_groups_of_many_rows_are_known_to_be_small(sales: Table, load: Load) -> None:
    """So that Spark broadcasts them."""
    found = load("sales").groupBy("k").agg(f.count("*").alias("n"))
    statistics = found._jdf.queryExecution().optimizedPlan().stats().toString()  # pyright: ignore
    assert re.search(r"sizeInBytes=\d+\.0 B\b", statistics)


@pytest.fixture
def apart() -> Iterator[tuple[str, Database, Callable[[], None]]]:
    """The address of a store of its own, the store, and what restarts it."""
    files, options = MemoryFileSystem(), StoreOptions(maintenance="off")
    store = Store.open(files, options)
    server = FlightServer(store, "grpc://127.0.0.1:0")
    uri = f"grpc://127.0.0.1:{server.port}"

    def restart() -> None:
        nonlocal store, server
        server.shutdown()
        store.close()
        store = Store.open(files, options)
        server = FlightServer(store, uri)

    yield uri, Database(store), restart
    server.shutdown()
    store.close()


def test_a_restart_between_the_plan_and_its_task(
    spark: SparkSession, apart: tuple[str, Database, Callable[[], None]]
) -> None:
    """The same snapshot is read, though its lease is lost."""
    uri, db, restart = apart
    table = fill(db)
    expected = table.scan().aggregate({"n": ("*", "count")}, ["k"]).sort_by("k").to_pylist()
    frame = read_table(spark, "sales", uri).groupBy("k").agg(f.count("*").alias("n"))
    tasks = frame._jdf.queryExecution()  # pyright: ignore[reportCallIssue, reportOptionalCall]
    assert is_complete(frame)
    table.delete({"id": range(500, 600)})
    restart()
    assert frame.orderBy("k").toArrow().to_pylist() != expected, "planned anew"
    found = {row.getInt(0): row.getLong(1) for row in tasks.executedPlan().executeCollectPublic()}
    assert found == {row["k"]: row["n"] for row in expected}
