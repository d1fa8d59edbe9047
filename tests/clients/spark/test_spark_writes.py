"""Writing through a session of Spark, and what failures of tasks leave behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.spark.batch_write import BatchWriter, StagedParts
from nyala.clients.spark.options import WriteOptions, parse
from nyala.clients.spark.placement import tablet_of
from nyala.clients.spark.source import NyalaDataSource
from nyala.schemas.rows.scan import ScanSpec
from nyala.spark import by_tablet, merge_changes, write_table
from tests.dose import by_night

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def homes(db: Database) -> Table:
    return db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])


def rows(spark: SparkSession, count: int, city: str = "c", start: int = 0) -> DataFrame:
    return spark.range(start, start + count, 1, 4).withColumn("city", f.lit(city))


def state(table: Table) -> dict[Any, Any]:
    return {row["id"]: row["city"] for row in table.scan().to_arrow().to_pylist()}


def test_the_first_example_of_the_page_runs_as_printed(spark: SparkSession, uri: str, db: Database) -> None:
    db.create_table("homes", data={"id": [1, 2], "price": [3.0, 5.0]}, primary_key="id")
    page = (Path(nyala.__file__).parent.parent / "docs" / "spark.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    assert '.save("dear_homes")' in example
    exec(example.replace("grpc://127.0.0.1:8815", uri), {})
    assert db.table("dear_homes").scan().to_arrow().to_pylist() == [{"id": 2, "price": 5.0}]


def test_append_and_overwrite(spark: SparkSession, uri: str, homes: Table) -> None:
    rows(spark, 100).write.format("nyala").option("uri", uri).mode("append").save("homes")
    assert state(homes) == dict.fromkeys(range(100), "c")
    write_table(rows(spark, 10, "d", 95), "homes", uri)
    assert len(state(homes)) == 105 and state(homes)[99] == "d"
    write_table(rows(spark, 3, "e"), "homes", uri, mode="overwrite", repartition=True)
    assert state(homes) == {0: "e", 1: "e", 2: "e"}
    write_table(rows(spark, 2), "homes", uri, "delete")
    assert state(homes) == {2: "e"}


def test_versions_of_an_application(spark: SparkSession, uri: str, homes: Table) -> None:
    for version, city in ((1, "first"), (1, "again"), (2, "next")):
        write_table(rows(spark, 4, city), "homes", uri, txnAppId="load", txnVersion=version)
        assert set(state(homes).values()) == {"next" if version == 2 else "first"}


def test_insert_into_a_view(spark: SparkSession, uri: str, homes: Table) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW h USING nyala OPTIONS (uri '{uri}', table 'homes')")
    spark.sql("INSERT INTO h VALUES (1, 'Oslo'), (2, NULL)")
    assert state(homes) == {1: "Oslo", 2: None}


def test_refused_rows_refuse_the_job(spark: SparkSession, uri: str, homes: Table) -> None:
    homes.insert({"id": [50], "city": ["there"]})
    with pytest.raises(PySparkException, match="ALREADY_PRESENT"):
        write_table(rows(spark, 100), "homes", uri, "insert")
    with pytest.raises(PySparkException, match="did you mean 'city'"):
        write_table(rows(spark, 100).withColumnRenamed("city", "cty"), "homes", uri)
    assert state(homes) == {50: "there"}


def failing(kind: str) -> type[NyalaDataSource]:
    """Return a data source whose tasks or commit fail; a class made here is sent to processes of Spark by its code."""

    class Writer(BatchWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedParts:
            context = TaskContext.get()
            assert context is not None

            def interrupted() -> Iterator[pa.RecordBatch]:
                for batch in iterator:
                    yield batch.slice(0, 1)
                    if kind == "always" and context.partitionId() == 2:
                        raise RuntimeError("planted")
                    if kind == "killed" and context.attemptNumber() == 0 and context.partitionId() % 2:
                        os._exit(1)
                    yield batch.slice(1)

            staged = super().write(interrupted())
            if kind == "after staging" and context.attemptNumber() == 0:
                raise RuntimeError("planted")
            return staged

        def commit(self, messages: Any) -> None:
            if kind == "commit":
                raise RuntimeError("planted")
            super().commit(messages)

    class Failing(NyalaDataSource):
        @classmethod
        def name(cls) -> str:
            return "failing_" + kind.replace(" ", "_")

        def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
            return Writer(schema, overwrite, parse(WriteOptions, self.options, "write"))

    return Failing


@pytest.mark.parametrize("kind", by_night(["killed", "after staging", "always", "commit"], day=["killed", "commit"]))
def test_failing_tasks(spark: SparkSession, uri: str, homes: Table, kind: str) -> None:
    """A task that is killed in the middle, or fails once it has staged all, runs again: its rows come once."""
    spark.dataSource.register(failing(kind))
    homes.insert({"id": [-1], "city": ["there"]})
    write = rows(spark, 1000).write.format(failing(kind).name()).option("uri", uri).option("operation", "insert")
    if kind in ("killed", "after staging"):
        write.mode("append").save("homes")
        assert state(homes) == {-1: "there"} | dict.fromkeys(range(1000), "c")
    else:
        with pytest.raises(PySparkException, match="planted"):
            write.mode("append").save("homes")
        assert state(homes) == {-1: "there"}
    write_table(rows(spark, 10, "after"), "homes", uri)
    assert state(homes)[9] == "after"


PARTITIONED: dict[str, list[Any]] = {
    "hash": [nyala.hash("a", buckets=3)],
    "hashes with seeds": [nyala.hash("s", buckets=2, seed=7), nyala.hash("a", "d", buckets=3)],
    "ranges": [nyala.range("a", bounds=[(None, 10), (10, 50), (70, None)])],
    "ranges of two": [nyala.range("a", "s", bounds=[(None, (20, "m")), ((20, "m"), (20, "t")), ((20, "t"), None)])],
    "timestamps": [nyala.hash("d", buckets=2), nyala.range("t", splits=["1970-01-01T00:00:00.000040", "1970-01-02"])],
    "dates": [nyala.range("d", splits=["1970-02-01"]), nyala.hash("e", buckets=2)],
    "own hashes": [
        nyala.hash("a", buckets=2),
        nyala.range("s", bounds=[(None, "k"), {"lower": "k", "upper": None, "hash": [nyala.hash("d", buckets=3)]}]),
    ],
}


KEYS = pa.schema(
    {"a": pa.int16(), "s": pa.string(), "d": pa.date32(), "t": pa.timestamp("us"), "e": pa.decimal128(9, 2)}
)
COUNT = 300


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[None]:
    """A session time zone that moves every timestamp which is not handled with care."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("case", by_night(PARTITIONED, day=["hashes with seeds", "timestamps", "own hashes"]))
def test_rows_are_put_together_by_tablet(
    spark: SparkSession, db: Database, uri: str, load: Callable[..., DataFrame], new_york: None, case: str
) -> None:
    """Each number stands for one tablet of the store, for every type of key."""
    table = db.create_table("keys", KEYS, KEYS.names, partition_by=PARTITIONED[case])
    numbers = pa.array(range(COUNT), pa.int32())
    data = {
        "a": [number % 90 for number in range(COUNT)],
        "s": [chr(97 + number % 26) for number in range(COUNT)],
        "d": numbers.cast(pa.date32()),
        "t": numbers.cast(pa.int64()).cast(pa.timestamp("us")),
        "e": numbers,
    }
    table.write(data, "insert", on_error="return")  # those in a gap between ranges are refused
    count, number = tablet_of(db._store.describe_table("keys"))
    frame = load("keys")
    numbered = frame.select("e", number.alias("n")).toArrow().to_pylist()
    tablets = [tablet["tablet"] for tablet in table.stats()["tablets"]]
    assert count == len(tablets)
    ours = {frozenset(row["e"] for row in numbered if row["n"] == each) for each in range(count)}
    assert ours == {frozenset(in_tablet(db, tablet)) for tablet in tablets}
    placed = by_tablet(frame, "keys", uri).select(f.spark_partition_id().alias("p"), number.alias("n")).toArrow()
    assert placed["p"].to_pylist() == placed["n"].to_pylist()


def in_tablet(db: Database, tablet: int) -> list[Any]:
    """Return the cells of ``e``, which no two rows share, in one tablet."""
    return db._store.scan(ScanSpec(table="keys", tablet=tablet)).to_reader().read_all()["e"].to_pylist()


def test_merging_a_feed(db: Database, uri: str, homes: Table, load: Callable[..., DataFrame]) -> None:
    copy = db.create_table("copy", SCHEMA, ["id"])
    since = homes.insert({"id": [1, 2, 3], "city": ["a", "b", "c"]}).timestamp
    write_table(load(), "copy", uri)
    homes.delete({"id": [1, 2]})
    homes.upsert({"id": [2, 4, 5], "city": ["B", "d", "e"]})
    homes.delete({"id": [5]})
    for _ in range(2):
        merge_changes(load(since=since, readChangeFeed=True), "copy", uri)
        assert state(copy) == state(homes) == {2: "B", 3: "c", 4: "d"}
    changes = load(since=since, beforeValues=True).withColumnRenamed("id", "ID").withColumnRenamed("_op", "_OP")
    merge_changes(changes, "copy", uri, order_by=None)
    assert state(copy) == state(homes)


def test_columns_of_ingestion_tools_begin_with_an_underscore(
    spark: SparkSession, db: Database, uri: str, plain: Callable[..., DataFrame], load: Any, shim: Any
) -> None:
    """They are read, written, streamed and merged like others, and the change feed keeps its own apart."""
    schema = pa.schema([("_id", pa.int64()), ("_file", pa.string()), ("_fivetran_synced", pa.timestamp("us"))])
    events = db.create_table("events", schema, ["_id"])
    frame = spark.sql(
        "SELECT id AS _id, 'a' AS _file, timestamp'2026-03-08 02:30:00Z' AS _fivetran_synced FROM range(3)"
    )
    frame.write.format("nyala").option("uri", uri).mode("append").save("events")
    frame.write.format("nyala_plain").option("uri", uri).mode("overwrite").save("events")
    if shim:
        spark.sql("UPDATE nyala.default.events SET _file = 'b' WHERE _id = 1")
        assert spark.sql("SELECT _id FROM nyala.default.events WHERE _file = 'b'").collect() == [(1,)]
    for read in (plain("events"), load("events")):
        assert read.columns == schema.names and read.where("_id < 2").count() == 2
    since, copy = db.now(), db.create_table("copy", schema, ["_id"])
    copy.insert(events.scan().to_arrow())
    events.upsert({"_id": [2, 9], "_file": ["c", "d"]})
    events.delete({"_id": [0]})
    changes = load("events", since=since, readChangeFeed=True, beforeValues=True)
    assert {"_op", "_timestamp", "_before__file"} < set(changes.columns)
    merge_changes(changes.withColumn("_lsn", f.lit(1)), "copy", uri)
    assert copy.scan(ordered=True).to_arrow().equals(events.scan(ordered=True).to_arrow())
