"""The shim in Java: what it takes over from Spark, what it leaves there, and the catalog."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.aggregate import merge
from nyala.engine.scan.plan import few_groups
from nyala.engine.store import Store
from nyala.schemas.cells.timestamp import datetime_of
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.spark.cells import CONDITIONS, STORED_SCHEMA, random_condition, random_rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Load = Callable[..., DataFrame]
ROWS = 800


@pytest.fixture
def homes(db: Database) -> Table:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("price", pa.float64()), ("rooms", pa.int8())])
    table = db.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    price = [None if n % 10 == 0 else n / 2 for n in range(ROWS)]
    cities = [f"c{n % 7}" for n in range(ROWS)]
    table.insert({"id": range(ROWS), "city": cities, "price": price, "rooms": [n % 100 for n in range(ROWS)]})
    return table


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ScanSpec]:
    """What the server is asked to plan, each with the snapshot that it answers."""
    specs: list[ScanSpec] = []
    plan = Store.plan

    def recorded(self: Store, spec: ScanSpec) -> Any:
        planned = plan(self, spec)
        specs.append(spec.model_copy(update={"as_of": planned.snapshot}))
        return planned

    monkeypatch.setattr(Store, "plan", recorded)
    return specs


def city_of(homes: Table, key: int) -> str:
    row = homes.get({"id": key})
    assert row
    return row["city"]


def plan_of(frame: DataFrame) -> str:
    return planned(frame).executedPlan().toString()


def planned(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution()  # pyright: ignore[reportCallIssue, reportOptionalCall]


def scan_of(frame: DataFrame) -> str:
    """The line about the scan in the plan of a frame."""
    return next(line for line in plan_of(frame).splitlines() if "nyala" in line)


def pushed(frame: DataFrame) -> str:
    """The filter that goes to the store."""
    found = re.search(r"filter: \[(.*)\] RuntimeFilters", scan_of(frame))
    assert found
    return found[1]


def test_only_columns_that_a_query_needs_are_asked_for(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    frame = load()
    assert len(frame.select("city").toArrow()) == ROWS
    assert len(frame.groupBy("rooms").agg(f.max("price")).collect()) == 100
    assert frame.where("abs(id) < 10").groupBy().agg(f.max("city")).collect()[0][0] == "c6"
    assert [sorted(spec.columns or ()) for spec in asked] == [["city"], ["price", "rooms"], ["city", "id"]]
    assert len(load(columns=["city", "id"]).select("id").toArrow()) == ROWS and asked[-1].columns == ["id"]


def test_aggregates_of_some_columns_go_to_the_store(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    frame = load(columns=["city", "rooms"], where="id < 100")
    assert frame.count() == 100 and asked[-1].aggregate
    assert len(frame.groupBy("city").agg(f.max("rooms")).collect()) > 1 and asked[-1].group_by == ["city"]


def test_a_query_without_columns_reads_rows_without_cells(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    assert load().select(f.lit(1)).toArrow().num_rows == ROWS and asked[-1].columns == []


PUSHED = {
    "id < 10": '"id" < 10',
    "10 > id": '"id" < 10',
    "id = 5 OR city = 'it''s'": """("id" = 5 OR "city" = 'it''s')""",
    "startswith(city, 'c_')": """"city" IS NOT NULL AND "city" LIKE 'c\\_%'""",
    "id IN (1, 2, 3)": '"id" IN (1, 2, 3)',
    "price > 1.5": '"price" IS NOT NULL AND NOT ("price" <= 1.5)',
    "NOT (price <= 1.5D)": '"price" IS NOT NULL AND NOT ("price" <= 1.5)',
    "price <=> 2D": '("price" = 2.0 AND "price" IS NOT NULL)',
}
LEFT = ["price = double('NaN')", "id + 1 < 10", "lower(city) = 'c1'", "price < double('Infinity')", "city LIKE 'c_'"]


@pytest.mark.parametrize("condition", PUSHED)
def test_filters_are_pushed(homes: Table, load: Load, condition: str) -> None:
    frame = load().where(condition)
    assert pushed(frame) == PUSHED[condition]
    assert " Filter " not in plan_of(frame)


@pytest.mark.parametrize("condition", LEFT)
def test_filters_that_mean_something_else_are_left_to_spark(homes: Table, load: Load, condition: str) -> None:
    frame = load().where(condition)
    assert re.fullmatch(r'("\w+" IS NOT NULL)?', pushed(frame))
    assert " Filter " in plan_of(frame)


def test_a_filter_of_the_load_counts_too(homes: Table, load: Load) -> None:
    frame = load(where="id < 10 OR id >= 790 -- a comment")
    assert frame.where("id > 5 AND price IS NULL").toArrow()["id"].to_pylist() == [790]
    assert frame.where("id > 5").count() == 14


def test_random_filters_select_what_spark_selects(
    spark: SparkSession, db: Database, load: Load, asked: list[ScanSpec]
) -> None:
    """All types with NULL, NaN, both zeros, extremes and unicode; the same rows without a store are the oracle."""
    rng = random.Random(5)
    rows = random_rows(rng, 120)
    db.create_table("cells", STORED_SCHEMA, ["id"]).insert(rows.cast(STORED_SCHEMA))
    conditions = [*CONDITIONS, *(random_condition(rng) for _ in range(30))]
    spark.createDataFrame(rows).cache().createOrReplaceTempView("memory")
    load("cells").createOrReplaceTempView("cells")
    ours = " UNION ALL ".join(f"SELECT {n} AS n, id FROM cells WHERE {text}" for n, text in enumerate(conditions))
    selected: dict[int, set[int]] = {n: set() for n in range(len(conditions))}
    for row in spark.sql(ours).collect():
        selected[row["n"]].add(row["id"])
    oracle = spark.sql(f"SELECT id, {', '.join(f'({text}) AS c{n}' for n, text in enumerate(conditions))} FROM memory")
    expected = oracle.toArrow().to_pylist()
    for n, text in enumerate(conditions):
        assert selected[n] == {row["id"] for row in expected if row[f"c{n}"]}, text
    assert sum(spec.where is not None for spec in asked) > len(conditions) * 0.9, "most of them reached the store"
    spark.catalog.uncacheTable("memory")


def test_aggregates_of_all_rows_are_worked_out_in_the_store(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    frame = load()
    assert frame.count() == ROWS and frame.where("id < 10").count() == 10
    found = frame.where("id >= 700").selectExpr(
        "count(price) AS n", "sum(price) AS total", "sum(rooms) AS rooms", "min(id) AS low", "max(city) AS high"
    )
    assert found.collect()[0].asDict() == {
        "n": 90, "total": sum(n / 2 for n in range(700, 800) if n % 10), "rooms": 4950, "low": 700, "high": "c6",
    }  # fmt: skip
    assert all(spec.aggregate for spec in asked) and len(asked) == 3
    empty = frame.where("id < 0").selectExpr("count(*) AS n", "sum(rooms) AS s", "min(city) AS c").collect()[0]
    assert tuple(empty) == (0, None, None)


def test_aggregates_that_mean_something_else_are_left_to_spark(homes: Table, load: Load) -> None:
    homes.upsert({"id": [0], "price": [float("nan")]})
    frame = load()
    row = frame.selectExpr("max(price) AS m", "count(DISTINCT city) AS n", "avg(rooms) AS a", "sum(id) AS s").collect()[
        0
    ]
    assert str(row["m"]) == "nan" and (row["n"], row["s"]) == (7, sum(range(ROWS)))
    assert "aggregate" not in scan_of(frame.selectExpr("max(price)"))


def test_groups_are_worked_out_in_the_store(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    homes.update({"id": [1, 8], "city": [None, None]})
    found = load().groupBy("city").agg(f.count("*"), f.sum("rooms"), f.avg("price"), f.min("id"), f.max("city"))
    rows = homes.scan().to_arrow().to_pylist()
    expected = []
    for city in {row["city"] for row in rows}:
        some = [row for row in rows if row["city"] == city]
        prices = [row["price"] for row in some if row["price"] is not None]
        mean = pytest.approx(sum(prices) / len(prices))
        expected.append((city, len(some), sum(row["rooms"] for row in some), mean, min(x["id"] for x in some), city))
    assert sorted(map(tuple, found.collect()), key=str) == sorted(expected, key=str)
    assert [(spec.group_by, spec.partial) for spec in asked if spec.aggregate is not None] == [(["city"], True)]
    filtered = load().where("id < 100").groupBy("city", "rooms").agg(f.sum("price").alias("total")).where("total > 10")
    assert filtered.count() == sum(1 for row in rows if row["id"] < 100 and (row["price"] or 0) > 10)
    assert load().select("city").distinct().count() == 8
    assert asked[-1].group_by == ["city"] and asked[-1].aggregate == {}


def test_as_many_groups_as_rows(homes: Table, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_MERGE_ROWS", 50)
    monkeypatch.setattr(few_groups, "FEW", 100)
    found = load().groupBy("id").agg(f.count("price"), f.sum("rooms"))
    assert "by: id" in scan_of(found)
    assert sorted(map(tuple, found.collect())) == [(n, int(n % 10 > 0), n % 100) for n in range(ROWS)]


def test_groups_that_mean_something_else_are_left_to_spark(db: Database, load: Load) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("paid", pa.decimal128(4, 2))])
    table = db.create_table("sales", schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    prices = [0.0, -0.0, float("nan"), 1.5] * 2
    table.insert({"id": range(8), "price": prices, "paid": [99] * 8})
    frame = load("sales")
    by_price, paid = frame.groupBy("price").count(), frame.groupBy((f.col("id") % 2).alias("odd")).agg(f.sum("paid"))
    assert sorted((str(row[0]), row[1]) for row in by_price.collect()) == [("0.0", 4), ("1.5", 2), ("nan", 2)]
    assert sorted(map(tuple, paid.collect())) == [(0, 396), (1, 396)]
    twice = frame.selectExpr("paid", "paid AS same").distinct()
    assert list(map(tuple, twice.collect())) == [(99, 99)]
    assert not any("aggregate" in scan_of(each) for each in (by_price, paid, twice))


def test_names_of_groups_may_differ_in_case(homes: Table, load: Load, spark: SparkSession, uri: str) -> None:
    frame = spark.read.schema("ID long, CITY string, ROOMS byte").format("nyala").option("uri", uri).load("homes")
    found = frame.groupBy("CITY").agg(f.sum("ROOMS").alias("n"))
    assert "by: CITY" in scan_of(found)
    assert {row["CITY"]: row["n"] for row in found.collect()}["c0"] == sum(n % 100 for n in range(0, ROWS, 7))


def test_names_of_filters_may_differ_in_case(homes: Table, spark: SparkSession, uri: str) -> None:
    """In what Spark adds; the store reads the user's filter as it is."""
    homes.upsert({"id": [9], "city": ['''it's "ID"''']})
    reader = spark.read.schema("ID long, City string").format("nyala").option("uri", uri)
    frame = reader.option("filter", "id < 30 -- few").load("homes")
    found = frame.where("""City IN ('c1', 'it\\'s "ID"') AND ID > 1""")
    assert '"City" IN (' in pushed(found) and '"ID" > 1' in pushed(found)
    assert sorted(row["ID"] for row in found.collect()) == [8, 9, 15, 22, 29]
    assert frame.where("ID > 20").count() == 9
    assert [row[0] for row in frame.where("City = 'c1'").orderBy(f.desc("ID")).limit(2).collect()] == [29, 22]
    numbers = f.broadcast(spark.range(3, 50).toDF("number").where("number % 7 = 4"))
    assert sorted(row["ID"] for row in frame.join(numbers, f.col("ID") == f.col("number")).collect()) == [4, 11, 18, 25]
    with pytest.raises(Exception, match="there is no column 'ID'"):
        reader.option("filter", "ID < 30").load("homes").count()


def test_the_first_rows_of_an_order_come_from_the_store(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    homes.update({"id": [3, 4], "city": [None, None]})
    rows = homes.scan().to_arrow().to_pylist()
    newest = load().where("rooms < 50").orderBy(f.desc("id")).select("id").limit(5)
    assert [row["id"] for row in newest.collect()] == [749, 748, 747, 746, 745]
    first = load().orderBy("city", f.desc("rooms"), "id").limit(4).select("city", "id")
    expected = sorted(rows, key=lambda row: (row["city"] or "", -row["rooms"], row["id"]))[:4]
    assert [(row["city"], row["id"]) for row in first.collect()] == [(row["city"], row["id"]) for row in expected]
    last = load().orderBy(f.desc_nulls_last("city"), "id").offset(3).limit(2).select("id")
    assert [row["id"] for row in last.collect()] == [27, 34]
    assert [spec.limit for spec in asked] == [5, 4, 5] and "first: 5 by [id DESC]" in scan_of(newest)


def test_orders_that_mean_something_else_are_left_to_spark(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    homes.upsert({"id": [0], "price": [float("nan")]})
    assert str(load().orderBy(f.desc("price")).limit(1).collect()[0]["price"]) == "nan"
    assert load().where("abs(id) > 5").orderBy("id").limit(1).collect()[0]["id"] == 6
    assert load().orderBy(f.col("id") % 7, "id").limit(2).collect()[1]["id"] == 7
    assert load().orderBy("id").limit(200_000).count() == ROWS
    assert all(spec.order_by is None for spec in asked)


PART = pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.fixture
def nested(db: Database) -> str:
    kinds = [
        ("many", pa.list_(pa.int64())),
        ("part", PART),
        ("parts", pa.list_(PART)),
        ("more", pa.struct([("p", PART)])),
    ]
    first, second = {"a": 2, "b": "x"}, {"a": 1, "b": "y"}
    rows = {"id": [1, 2], "many": [[2], [1, 5]], "part": [first, second], "parts": [[first, second], None]}
    db.create_table("nested", pa.schema([("id", pa.int64()), *kinds]), ["id"]).insert(
        {**rows, "more": [{"p": first}, None]}
    )
    return "nested"


def test_lists_and_structs_are_put_in_order_by_spark(nested: str, load: Load) -> None:
    """The store has no order for them, and refuses to sort by them."""
    for name in ("many", "part"):
        assert [row["id"] for row in load(nested).orderBy(name).limit(1).collect()] == [2]


def test_some_fields_of_structs_can_be_selected(nested: str, load: Load) -> None:
    """Spark asks for a struct without the others."""
    found = load(nested).orderBy("id").select("part.b", "parts.a", "more.p.b").collect()
    assert [tuple(row) for row in found] == [("x", [2, 1], "x"), ("y", None, None)]
    assert load(nested).where("part.a = 1").select("id").collect()[0]["id"] == 2
    assert load(nested).groupBy("part.b").count().where("b = 'x'").collect()[0]["count"] == 1


def test_some_rows_are_read_without_the_rest(
    homes: Table, load: Load, asked: list[ScanSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets: list[ScanSpec] = []
    scan = Store.scan
    monkeypatch.setattr(Store, "scan", lambda self, spec: tickets.append(spec) or scan(self, spec))
    few = load().limit(10)
    assert "first: 10" in scan_of(few) and len(set(few.collect())) == 10
    assert load().select(f.upper("city")).head() and len(load().select("id").offset(3).limit(4).collect()) == 4
    load().show(2)
    assert [ticket.limit for ticket in tickets] == [10, 1, 7, 3] == [spec.limit for spec in asked]
    tickets.clear()
    some = load().where("city = 'c3'").limit(20)
    assert {row["city"] for row in some.collect()} == {"c3"} and {ticket.limit for ticket in tickets} == {20}
    assert asked[-1].limit is None, "each part looks for them"
    assert load().where("rooms = 77").limit(20).count() == 8 and load(where="rooms = 77").limit(5).count() == 5
    assert load().where("abs(id) < 5").limit(2).count() == 2 and load().limit(200_000).count() == ROWS
    for left in (load().where("abs(id) < 5").limit(2), load().limit(200_000)):
        assert "first:" not in scan_of(left)
    assert load().groupBy("rooms").count().limit(7).count() == 7


def test_the_keys_of_a_join_prune_the_other_side(
    homes: Table, db: Database, load: Load, spark: SparkSession, asked: list[ScanSpec]
) -> None:
    cities = db.create_table("cities", pa.schema([("city", pa.string()), ("land", pa.string())]), ["city"])
    cities.insert({"city": [f"c{n}" for n in range(7)], "land": ["north", "south"] * 3 + ["west"]})
    found = load().join(f.broadcast(load("cities").where("upper(land) = 'NORTH'")), "city").select("id", "land")
    assert {row["id"] for row in found.collect()} == {n for n in range(ROWS) if n % 7 in (0, 2, 4)}
    wheres = [spec.where for spec in asked if spec.table == "homes"]
    assert wheres[1:] == ["\"city\" IS NOT NULL AND \"city\" IN ('c0', 'c2', 'c4')"]
    assert len({spec.as_of for spec in asked}) == 1, "all at one moment"


def test_every_query_sees_what_is_new_and_one_moment(
    homes: Table, db: Database, load: Load, asked: list[ScanSpec]
) -> None:
    before = db.now()
    frame = load()
    assert frame.count() == ROWS
    homes.insert({"id": [ROWS]})
    assert frame.count() == ROWS + 1
    asked.clear()
    frame.select("id", "city").exceptAll(frame.where("id < 10").select("id", "city")).count()
    assert len(asked) == 2 and len({spec.as_of for spec in asked}) == 1
    assert load(as_of=before).count() == ROWS


def test_small_tables_are_broadcast(homes: Table, load: Load) -> None:
    """Rows and bytes as the store estimates them, of the columns and rows that are read."""
    statistics = planned(load().where("id = 3").select("id")).optimizedPlan().stats()
    assert 8 <= int(str(statistics.sizeInBytes())) <= 8 * ROWS
    joined = load().alias("a").join(load().alias("b"), f.col("a.id") == f.col("b.id"))
    assert "BroadcastHashJoin" in plan_of(joined)


def test_changes_are_pruned_and_filtered_by_spark(homes: Table, load: Load, asked: list[ScanSpec]) -> None:
    since = homes.upsert({"id": [1, 2], "city": ["x", "y"]}).timestamp
    homes.upsert({"id": [1], "city": ["z"]})
    homes.delete({"id": [2, 3]})
    frame = load(since=since)
    assert sorted(tuple(row) for row in frame.where("id < 3").select("_op", "id").collect()) == [
        ("delete", 2),
        ("update", 1),
    ]
    assert asked[-1].columns == ["id"] and asked[-1].where is None
    assert frame.where("_op = 'delete'").count() == 2


def test_the_catalog(homes: Table, db: Database, spark: SparkSession) -> None:
    before = homes.insert({"id": [1000], "city": ["Oslo"]}).timestamp
    homes.delete({"id": [1000]})

    def count(rest: str) -> int:
        return spark.sql(f"SELECT count(*) FROM nyala.default.homes {rest}").collect()[0][0]

    assert (count(""), count(f"VERSION AS OF {before}"), count("WHERE id < 5")) == (ROWS, ROWS + 1, 5)
    assert count(f"TIMESTAMP AS OF '{datetime_of(before).isoformat()}'") == ROWS + 1
    spark.sql("INSERT INTO nyala.default.homes VALUES (2000, 'Rome', 1.5, 3)")
    assert city_of(homes, 2000) == "Rome"
    copy = db.create_table("copy", pa.schema([("id", pa.int64()), ("city", pa.string())]), ["id"])
    copy.insert({"id": [-1], "city": ["gone"]})
    spark.sql("INSERT OVERWRITE nyala.default.copy SELECT id, city FROM nyala.default.homes WHERE id < 3")
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    spark.table("nyala.default.homes").where("id >= 2000").select("id", "city").writeTo("nyala.default.copy").append()
    assert copy.scan().count() == 4
    assert [row["tableName"] for row in spark.sql("SHOW TABLES IN nyala.default").collect()] == ["copy", "homes"]
    assert [row[0] for row in spark.sql("SHOW NAMESPACES IN nyala").collect()] == ["default"]
    described = {row["col_name"]: row["data_type"] for row in spark.sql("DESCRIBE nyala.default.homes").collect()}
    assert described["id"] == "bigint" and described["rooms"] == "tinyint"


WRONG_SQL = {
    "SELECT * FROM nyala.default.barns": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT * FROM nyala.other.homes": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT * FROM nyala.default.homes VERSION AS OF 'yesterday'": "versionAsOf is 'yesterday'",
    "SELECT * FROM nyala.default.homes.changes": "set startTimestamp too",
    "SELECT * FROM nyala.default.homes WITH (startTimestamp = '1')": r"read nyala\.default\.homes\.changes",
    "DROP TABLE nyala.default.homes.changes": r"nyala\.default\.homes\.changes is dropped with its table: drop homes",
    "DROP TABLE nyala.default.homes.history": "is dropped with its table: drop homes",
    "ALTER TABLE nyala.default.homes.changes ADD COLUMN x int": "NOT_FOUND",
    "ALTER TABLE nyala.default.homes.changes RENAME TO barns": "NOT_FOUND",
    "CREATE NAMESPACE nyala.x": "does not create namespaces",
}


@pytest.mark.parametrize("statement", WRONG_SQL)
def test_what_a_catalog_does_not_do_is_said(homes: Table, spark: SparkSession, statement: str) -> None:
    with pytest.raises(PySparkException, match=WRONG_SQL[statement]):
        spark.sql(statement).collect()
    assert homes.scan().count() == ROWS


@pytest.mark.night
def test_streams_of_the_catalog(homes: Table, db: Database, spark: SparkSession, tmp_path: Any) -> None:
    db.create_table("ids", pa.schema([("id", pa.int64())]), ["id"])
    feed = spark.readStream.table("nyala.default.homes.changes")
    assert feed.columns == ["_op", "_timestamp", "id", "city", "price", "rooms"]
    query = feed.select("_op", "id").writeStream.option("operationColumn", "_op").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).toTable("nyala.default.ids").awaitTermination(300)
    assert db.table("ids").scan().count() == ROWS
    with pytest.raises(PySparkException, match=r"read nyala\.default\.homes\.changes"):
        rows = spark.readStream.table("nyala.default.homes").writeStream.format("noop")
        rows.option("checkpointLocation", str(tmp_path / "other")).start().awaitTermination(300)


def test_a_table_of_spark_keeps_its_options(homes: Table, spark: SparkSession, uri: str) -> None:
    spark.sql(f"CREATE TABLE kept USING nyala OPTIONS (uri '{uri}', table 'homes') TBLPROPERTIES ('color' = 'red')")
    try:
        assert spark.table("kept").where("id < 7").count() == 7
        spark.sql("INSERT INTO kept VALUES (3000, 'Bern', 2, 2)")
        assert city_of(homes, 3000) == "Bern"
    finally:
        spark.sql("DROP TABLE kept")
    assert homes.scan().count() == ROWS + 1
