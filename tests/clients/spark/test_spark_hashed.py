"""Joins and groups of tables by what they are hashed by, which need no shuffle: the same rows as with one."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.scan.plan import few_groups
from nyala.engine.store import Store
from nyala.schemas.rows.scan import ScanSpec
from tests.dose import by_night, dose

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim", "no_broadcasts", "many_groups")]

Load = Callable[..., DataFrame]
Query = Callable[[], DataFrame]
BUCKETING = "spark.sql.sources.v2.bucketing"
SPLIT_BYTES = 2_000


UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For queries of which each is run once, on a few rows: to compile one takes longer than to run it."""


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture
def no_broadcasts(spark: SparkSession) -> Iterator[None]:
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        yield


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store leaves all groups to Spark."""
    monkeypatch.setattr(few_groups, "FEW", 0)


@pytest.fixture
def uncompiled(spark: SparkSession) -> Iterator[None]:
    with settings(spark, UNCOMPILED):
        yield


@contextmanager
def cores(spark: SparkSession, count: int) -> Iterator[None]:
    conf: Any = spark.sparkContext._jsc.sc().conf()  # pyright: ignore[reportOptionalMemberAccess, reportOptionalCall]
    conf.set("spark.default.parallelism", str(count))
    try:
        yield
    finally:
        conf.set("spark.default.parallelism", "2")


def plan_of(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()  # pyright: ignore[reportCallIssue, reportOptionalCall]


def shuffles(frame: DataFrame) -> int:
    return len(re.findall(r"\bExchange\b", plan_of(frame)))


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.toArrow().to_pylist()))


def same_as_shuffled(spark: SparkSession, query: Query, least: int = 1) -> int:
    """Return how many rows a query has, after comparing those that it returns with shuffles and without."""
    frame = query()
    assert shuffles(frame) == 0, plan_of(frame)
    found = rows_of(frame)
    plainly = {f"{BUCKETING}.enabled": "false", "spark.sql.adaptive.enabled": "false"}
    with settings(spark, UNCOMPILED | plainly):
        shuffled = query()
        assert shuffles(shuffled) >= least
        assert found == rows_of(shuffled)
    return len(found)


def cells(kind: pa.DataType, count: int) -> list[Any]:
    """Return distinct values of a type, some of them negative or empty."""
    numbers = [number - 5 for number in range(count)]
    if pa.types.is_decimal(kind):
        return [Decimal(number * 10_007).scaleb(-kind.scale) for number in numbers]
    if kind == pa.date32():
        return [dt.date(1970, 1, 1) + dt.timedelta(number) for number in numbers]
    if pa.types.is_timestamp(kind):
        return [dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=number * 86_399_999_999) for number in numbers]
    if kind == pa.string():
        return ["\u00e9" * (number % 40) + "x" * (number // 40) for number in range(count)]
    return (
        [bytes([number % 256] * (number % 40)) + b"\0" * (number // 40) for number in range(count)]
        if kind == pa.binary()
        else numbers
    )


HASHED = {
    "bigint": (pa.int64(), [nyala.hash("k", buckets=4)]),
    "int": (pa.int32(), [nyala.hash("k", buckets=7)]),
    "smallint": (pa.int16(), [nyala.hash("k", buckets=3, seed=5)]),
    "string": (pa.string(), [nyala.hash("k", buckets=3)]),
    "binary": (pa.binary(), [nyala.hash("k", buckets=5)]),
    "date": (pa.date32(), [nyala.hash("k", buckets=2)]),
    "timestamp": (pa.timestamp("us"), [nyala.hash("k", buckets=4, seed=1)]),
    "decimal": (pa.decimal128(9, 2), [nyala.hash("k", buckets=4)]),
    "wide decimal": (pa.decimal128(30, 4), [nyala.hash("k", buckets=4, seed=(1 << 31) - 1)]),
    "and by range": (pa.int64(), [nyala.hash("k", buckets=3), nyala.partition.range("n", splits=[2])]),
    "range of the key": (pa.int64(), [nyala.hash("k", buckets=3), nyala.partition.range("k", splits=[7, 50])]),
    "two columns": (pa.int64(), [nyala.hash("k", buckets=3), nyala.hash("n", buckets=2)]),
    "a level tells nothing": (
        pa.int64(), [nyala.hash("n", "m", buckets=3), nyala.hash("k", buckets=3)],
    ),
}  # fmt: skip
JOINS = ["inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"]
FILTERS = ["TRUE", "v < 40", "n = 1", "n = 1 AND v > 20", "v < 0"]


def hashed(db: Database, name: str, kind: pa.DataType, levels: list[Any], rng: random.Random, most: int) -> Table:
    """Make a table with keys of (k, n, m); some of the values of k are in others, too."""
    schema = pa.schema([("k", kind), ("n", pa.int32()), ("m", pa.int8()), ("v", pa.float64())])
    table = db.create_table(name, schema, ["k", "n", "m"], partition_by=levels)
    keys = [(k, n, n % 2) for k in rng.sample(cells(kind, 150), 100) for n in range(rng.randint(0, most))]
    k, n, m = (pa.array([key[place] for key in keys], schema.types[place]) for place in range(3))
    table.insert(pa.table([k, n, m, pa.array([rng.random() * 100 for _ in keys])], schema=schema))
    return table


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("case", by_night(HASHED, day=["int", "string", "and by range", "two columns"]))
def test_a_join_of_tables_hashed_alike_needs_no_shuffle(
    spark: SparkSession, db: Database, load: Load, case: str
) -> None:
    """Each side is cut into parts of its own, some of which a filter leaves out."""
    rng = random.Random(case)
    kind, levels = HASHED[case]
    for name, most in (("few", 2), ("many", 6)):
        hashed(db, name, kind, levels, rng, most)
    joins = [
        (how, where, other, rng.choice([SPLIT_BYTES, 3 * SPLIT_BYTES, 1 << 26]))
        for how, (where, other) in zip(rng.sample(JOINS, 2), (["TRUE", "TRUE"], rng.sample(FILTERS, 2)), strict=True)
    ]

    def joined(how: str, where: str, other: str, split: int) -> DataFrame:
        left = load("few", splitSizeBytes=SPLIT_BYTES).where(where)
        right = load("many", splitSizeBytes=split).where(other).select("k", f.col("n").alias("o"), "v")
        return left.join(right.withColumnRenamed("v", "w"), "k", how).withColumn("how", f.lit(how))

    def both() -> DataFrame:
        return joined(*joins[0]).unionByName(joined(*joins[1]), allowMissingColumns=True)

    same_as_shuffled(spark, both, least=2)


def test_parts_of_one_bucket_go_together(spark: SparkSession, db: Database, load: Load) -> None:
    rng = random.Random(1)
    for name in ("few", "many"):
        hashed(db, name, pa.int64(), [nyala.hash("k", buckets=4)], rng, 20)

    def joined() -> DataFrame:
        right = load("many", splitSizeBytes=SPLIT_BYTES).select("k", f.col("n").alias("o"))
        return load("few", splitSizeBytes=3 * SPLIT_BYTES).select("k", "n").join(right, "k")

    assert load("many", splitSizeBytes=SPLIT_BYTES).rdd.getNumPartitions() > 4 == joined().rdd.getNumPartitions()
    assert same_as_shuffled(spark, joined) > 100
    pruned = load("few").where("k = 3").select("k", "n").join(load("many").select("k", f.col("n").alias("o")), "k")
    assert shuffles(pruned) == 0 and pruned.count() == joined().where("k = 3").count()


def test_tables_of_the_catalog_join_others(spark: SparkSession, db: Database, load: Load, uri: str) -> None:
    rng = random.Random(2)
    for name in ("few", "many"):
        hashed(db, name, pa.string(), [nyala.hash("k", buckets=3)], rng, 5)
    same_as_shuffled(
        spark, lambda: spark.sql("SELECT * FROM nyala.default.few a JOIN nyala.default.many b ON a.k = b.k")
    )
    same_as_shuffled(spark, lambda: spark.table("nyala.default.few").select("k").join(load("many"), "k", "full_outer"))
    spark.sql(f"CREATE TABLE kept USING nyala OPTIONS (uri '{uri}', table 'many')")
    try:
        same_as_shuffled(spark, lambda: spark.table("kept").join(load("few").select("k", f.lit(1).alias("x")), "k"))
    finally:
        spark.sql("DROP TABLE kept")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        same_as_shuffled(
            spark, lambda: spark.sql("SELECT a.* FROM nyala.default.few a JOIN nyala.default.many b USING (k)")
        )
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.usefixtures("uncompiled")
def test_a_join_by_more_or_fewer_columns(spark: SparkSession, db: Database, load: Load) -> None:
    rng = random.Random(3)
    for name in ("few", "many"):
        hashed(db, name, pa.int64(), [nyala.hash("k", buckets=4)], rng, 5)
        hashed(db, f"{name}_by_two", pa.int64(), [nyala.hash("k", buckets=3), nyala.hash("n", buckets=2)], rng, 5)

    def both(one: str, other: str, *by: str) -> int:
        def joined() -> DataFrame:
            right = load(other, splitSizeBytes=SPLIT_BYTES).withColumnRenamed("v", "w").withColumnRenamed("m", "o")
            return load(one, splitSizeBytes=SPLIT_BYTES).join(right, list(by))

        return same_as_shuffled(spark, joined)

    assert both("few", "many", "k", "n") < both("few", "many", "k") and both("few_by_two", "many_by_two", "k", "n")
    assert both("few_by_two", "many_by_two", "k")
    assert both("few_by_two", "many_by_two", "n")


def test_groups_by_the_hashed_column_need_no_shuffle(spark: SparkSession, db: Database, load: Load) -> None:
    hashed(db, "many", pa.int64(), [nyala.hash("k", buckets=3)], random.Random(4), 9)

    def many() -> DataFrame:
        return load("many", splitSizeBytes=SPLIT_BYTES)

    assert "aggregate:" in plan_of(many().groupBy("k").agg(f.sum("v")))
    queries: list[Query] = [
        lambda: many().groupBy("k").agg(f.count("*").alias("n"), f.min("n"), f.max("m")),
        lambda: many().groupBy("n", "k").agg(f.count("v")),
        lambda: many().select("k").distinct(),
        lambda: many().groupBy("k").agg(f.count_distinct("n")),
        lambda: many().groupBy("k", (f.col("v") > 50).alias("dear")).agg(f.max(f.col("n") * 2)),
        lambda: many().selectExpr("k", "n", "rank() OVER (PARTITION BY k ORDER BY n) AS place"),
        lambda: many().groupBy("k").agg(f.count("*").alias("c")).join(many().select("k", "n"), "k"),
    ]
    for query in queries:
        assert same_as_shuffled(spark, query)
    assert shuffles(many().groupBy("n").count()) == 1 and shuffles(many().groupBy("k").count().groupBy("count").count())


def test_what_is_hashed_otherwise_is_shuffled(spark: SparkSession, db: Database, load: Load, uri: str) -> None:
    rng = random.Random(6)
    levels = {
        "one": [nyala.hash("k", buckets=4)],
        "buckets": [nyala.hash("k", buckets=8)],
        "seed": [nyala.hash("k", buckets=4, seed=1)],
        "several": [nyala.hash("k", "n", buckets=4)],
        "other": [nyala.hash("n", buckets=4)],
        "whole": [],
        "own": [
            nyala.hash("k", buckets=4),
            nyala.partition.range("m", bounds=[{"upper": [1]}, {"lower": [1], "hash": [nyala.hash("k", buckets=3)]}]),
        ],
    }
    for name, each in levels.items():
        hashed(db, name, pa.int64(), each, rng, 3)
    hashed(db, "narrow", pa.int32(), levels["one"], rng, 3)
    for name in [*levels, "narrow"]:
        joined = load("one", splitSizeBytes=SPLIT_BYTES).join(load(name).select("k", "n"), "k")
        assert (shuffles(joined) == 0) == (name == "one"), name
    other = load("other").select(f.col("n").cast("bigint").alias("k"))
    assert shuffles(load("one").select("k").join(other, "k")) > 0
    by_sum = load("one").withColumn("k", f.col("k") + 1)
    assert shuffles(by_sum.join(load("one").select("k"), "k")) > 0
    assert shuffles(load("one").groupBy("n").count()) == 1, "the column is not read"


def test_values_that_are_equal_in_spark_only_are_shuffled(spark: SparkSession, db: Database, uri: str) -> None:
    """Clocks that a time zone shows twice, and strings without regard to case."""
    times = db.create_table("times", pa.schema([("k", pa.timestamp("us"))]), ["k"], [nyala.hash("k", buckets=4)])
    words = db.create_table("words", pa.schema([("k", pa.string())]), ["k"], [nyala.hash("k", buckets=4)])
    times.insert({"k": [dt.datetime(2025, 10, 26, hour, minute) for hour in range(3) for minute in range(60)]})
    words.insert({"k": ["a", "A", "b", "B", "c"]})
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for name, kind, count in (("times", "timestamp_ntz", 120), ("words", "string COLLATE UTF8_LCASE", 3)):
            frame = spark.read.schema(f"k {kind}").format("nyala").option("uri", uri).load(name)
            assert frame.groupBy("k").count().count() == count
            assert shuffles(frame.groupBy("k").count()) == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_names_may_be_odd_or_differ_in_case(spark: SparkSession, db: Database, load: Load, uri: str) -> None:
    hashed(db, "many", pa.int64(), [nyala.hash("k", buckets=3)], random.Random(7), 4)
    odd = db.create_table("odd", pa.schema([("odd.n`a", pa.int64())]), ["odd.n`a"], [nyala.hash("odd.n`a", buckets=2)])
    odd.insert({"odd.n`a": range(50)})
    named = spark.read.schema("K long NOT NULL, N int NOT NULL").format("nyala").option("uri", uri)
    same_as_shuffled(spark, lambda: named.load("many").join(load("many").select("k"), "k"))
    same_as_shuffled(spark, lambda: spark.sql("SELECT `odd.n``a`, count(*) FROM nyala.default.odd GROUP BY 1"))
    same_as_shuffled(
        spark, lambda: spark.sql("SELECT * FROM nyala.default.odd JOIN nyala.default.odd b USING (`odd.n``a`)")
    )


@pytest.mark.usefixtures("uncompiled")
def test_other_rows_can_go_to_the_buckets(spark: SparkSession, db: Database, load: Load) -> None:
    """Spark computes the bucket of a row as the store does."""
    spark.conf.set(f"{BUCKETING}.shuffle.enabled", "true")
    try:
        for case in dose(
            ("smallint", "timestamp", "wide decimal"),
            ("bigint", "smallint", "string", "binary", "timestamp", "decimal", "wide decimal"),
        ):
            kind, levels = HASHED[case]
            table = hashed(db, "many", kind, levels, random.Random(case), 4)
            other = spark.createDataFrame(table.scan(columns=["k", "n"]).to_arrow()).cache()
            other = other.select(f.col("k").cast("timestamp").alias("k"), "n") if case == "timestamp" else other
            joined = load("many", splitSizeBytes=SPLIT_BYTES).drop("n").join(other, "k")
            assert shuffles(joined) == 1 and "GroupPartitions" in plan_of(joined), case
            counts = load("many").groupBy("k").count().toArrow()["count"].to_pylist()
            assert joined.count() == sum(count * count for count in counts), case
            db.drop_table("many")
    finally:
        spark.conf.unset(f"{BUCKETING}.shuffle.enabled")


@pytest.mark.parametrize("is_cut_anew", by_night([False, True], day=[True]))
def test_keys_that_prune_leave_parts_where_they_are(
    spark: SparkSession, db: Database, load: Load, monkeypatch: pytest.MonkeyPatch, is_cut_anew: bool
) -> None:
    """The plan with the keys may have fewer parts of a bucket; what has more cannot be placed, and is not read."""
    rng, asked = random.Random(8), []
    for name in ("few", "many"):
        hashed(db, name, pa.int64(), [nyala.hash("k", buckets=4)], rng, 20)
    kinds = db.create_table("kinds", pa.schema([("n", pa.int32()), ("name", pa.string())]), ["n"])
    kinds.insert({"n": range(20), "name": [f"n{n}" for n in range(20)]})
    plan = Store.plan

    def planned(self: Store, spec: ScanSpec) -> Any:
        is_pruned = spec.table == "many" and " IN (" in str(spec.where)
        asked.append(is_pruned)
        more = {"split_bytes": 500} if is_pruned and is_cut_anew else {}
        return plan(self, spec.model_copy(update=more))

    monkeypatch.setattr(Store, "plan", planned)

    def joined() -> DataFrame:
        some = f.broadcast(load("kinds").where("upper(name) IN ('N3', 'N4')"))
        left = load("many", splitSizeBytes=SPLIT_BYTES).join(some, "n")
        return left.join(load("few", splitSizeBytes=SPLIT_BYTES).select("k", f.col("n").alias("o")), "k")

    found = joined()
    assert len(re.findall(r"(?<!Broadcast)Exchange", plan_of(found))) == 0
    expected = [
        (one["k"], one["n"], other["n"])
        for one in db.table("many").scan(where="n IN (3, 4)").to_arrow().to_pylist()
        for other in db.table("few").scan().to_arrow().to_pylist()
        if one["k"] == other["k"]
    ]
    assert sorted((row["k"], row["n"], row["o"]) for row in found.collect()) == sorted(expected)
    assert sum(asked) == 1


def test_few_buckets_of_many_parts_are_shuffled(spark: SparkSession, db: Database, load: Load) -> None:
    """As many tasks as buckets would leave most of the cores idle."""
    hashed(db, "many", pa.int64(), [nyala.hash("k", buckets=2)], random.Random(9), 9)

    def is_shuffled(split: int) -> bool:
        return shuffles(load("many", splitSizeBytes=split).groupBy("k").count()) > 0

    assert not is_shuffled(SPLIT_BYTES // 4)
    with cores(spark, 16):
        assert is_shuffled(SPLIT_BYTES // 4) and not is_shuffled(1 << 26), "a shuffle has no more tasks here"


def test_cores_that_come_later_change_no_query(spark: SparkSession, db: Database, load: Load) -> None:
    """Spark plans the rest of a query anew once it has the rows of a broadcast."""
    for name in ("few", "many", "kinds"):
        hashed(db, name, pa.int64(), [nyala.hash("k", buckets=2)], random.Random(11), 9)
    kinds = f.broadcast(load("kinds").where("k = 3 AND abs(v) >= 0").select("n").distinct())
    both = [load(name, splitSizeBytes=SPLIT_BYTES // 4).select("k", "n") for name in ("few", "many")]
    joined = both[0].join(kinds, "n").join(both[1].withColumnRenamed("n", "o"), "k")
    assert plan_of(joined).count("GroupPartitions") == 2
    with cores(spark, 64):
        found = sorted(tuple(row[name] for name in "kno") for row in joined.collect())
    keys = db.table("few").scan(columns=["k", "n"]).to_arrow().to_pylist()
    some = {row["n"] for row in keys if row["k"] == 3}
    assert found == sorted(
        (one["k"], one["n"], other["n"])
        for one in keys
        for other in keys
        if one["k"] == other["k"] and one["n"] in some
    )


def test_every_part_says_its_bucket(db: Database, spark: SparkSession, load: Load) -> None:
    """A self join at one moment, while rows arrive."""
    table = hashed(db, "many", pa.int64(), [nyala.hash("k", buckets=4)], random.Random(10), 5)
    frame = load("many", splitSizeBytes=SPLIT_BYTES)
    table.insert({"k": [10_000 + n for n in range(100)], "n": [0] * 100, "m": [0] * 100})
    same_as_shuffled(spark, lambda: frame.select("k", "n").join(frame.select("k", "v"), "k"))
