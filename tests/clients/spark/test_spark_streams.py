"""Streams through a session of Spark: limits, restarts, and batches that come twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamWriter

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.spark import merge_changes, write_table
from tests.clients.spark.streaming import Campaign
from tests.dose import dose

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def homes(db: Database) -> Table:
    return db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])


def state(table: Table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def test_a_feed_is_merged_batch_by_batch(
    spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path
) -> None:
    """In bounded batches, each merged as one commit; started again, it goes on where it was."""
    copy = db.create_table("copy", SCHEMA, ["id"])
    sizes: list[int] = []

    def merge(changes: DataFrame, number: int) -> None:
        sizes.append(changes.count())
        merge_changes(changes, "copy", uri, txnAppId="merge", txnVersion=number)

    def run() -> None:
        changes = spark.readStream.format("nyala").option("uri", uri).option("readChangeFeed", "true")
        query = changes.option("maxRowsPerTrigger", 25).load("homes").writeStream.foreachBatch(merge)
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(240)

    homes.insert({"id": range(50), "v": range(50)})
    run()
    assert state(copy) == state(homes) and sum(sizes) == 50, sizes
    assert max(sizes) < 50, "also what is there at first is bounded"
    sizes.clear()
    for first in range(0, 40, 8):
        homes.upsert({"id": range(first, first + 8), "v": [-1] * 8})
    homes.delete({"id": [0, 49]})
    run()
    assert state(copy) == state(homes) and sizes == [24, 18]
    run()
    assert len(sizes) == 2, "without changes there is no batch"


@pytest.mark.night
def test_a_stream_goes_on_when_the_server_was_restarted(spark: SparkSession, tmp_path: Path) -> None:
    """Between and within micro-batches: source and sink wait for it, in processes that know it and in new ones."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    served = FlightServer(store, "grpc://127.0.0.1:0")
    url = f"grpc://127.0.0.1:{served.port}"
    db = Database(store)
    source, copy = (db.create_table(name, SCHEMA, ["id"], [nyala.hash("id", buckets=2)]) for name in ("homes", "copy"))
    changes = spark.readStream.format("nyala").option("uri", url).option("readChangeFeed", "true").load("homes")
    sink = changes.drop("_timestamp").writeStream.format("nyala").options(uri=url, operationColumn="_op")
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(processingTime="0 seconds").start("copy")
    try:
        for first in range(0, 90, 30):
            source.insert({"id": range(first, first + 30), "v": range(30)})
            if first:
                time.sleep(0.2 * (first // 30))
                served.shutdown()
                time.sleep(1)
                served = FlightServer(store, url)
            deadline = time.monotonic() + 120
            while len(state(copy)) < first + 30 and query.isActive and time.monotonic() < deadline:
                time.sleep(0.1)
            assert query.isActive, query.exception()
            assert state(copy) == state(source)
    finally:
        query.stop()
        served.shutdown()
        store.close()


@pytest.mark.night
def test_complete_mode(spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path) -> None:
    sums = db.create_table("sums", pa.schema([("v", pa.int64()), ("n", pa.int64())]), ["v"])

    def run() -> None:
        changes = spark.readStream.format("nyala").option("uri", uri).option("readChangeFeed", "true").load("homes")
        counted = changes.groupBy("v").count().withColumnRenamed("count", "n")
        query = counted.writeStream.format("nyala").option("uri", uri).option("checkpointLocation", str(tmp_path))
        query.outputMode("complete").trigger(availableNow=True).start("sums").awaitTermination(240)

    homes.insert({"id": [1, 2, 3], "v": [7, 7, 8]})
    run()
    homes.insert({"id": [4], "v": [8]})
    run()
    assert {row["v"]: row["n"] for row in sums.scan().to_arrow().to_pylist()} == {7: 2, 8: 2}


WAYS = ["nyala", pytest.param("nyala_plain", marks=pytest.mark.night)]


@pytest.fixture(params=WAYS, ids=["with the shim", "without it"])
def form(request: pytest.FixtureRequest, shim: Path | None, plain: object) -> str:
    """Both sources, under the names that they have in one session."""
    if request.param == "nyala" and shim is None:
        pytest.skip("the shim needs javac: `.ci/java.sh javac` installs it on Debian")
    return request.param


def run_once(sink: DataStreamWriter, checkpoint: Path) -> None:
    """Bring a query up to date. Raises StreamingQueryException."""
    sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination(240)


@pytest.mark.night
def test_update_mode_upserts_what_a_batch_has_changed(
    spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path, form: str
) -> None:
    """Without the shim Spark refuses it before the first batch; ``foreachBatch`` does the same there."""
    counts = db.create_table("counts", pa.schema([("v", pa.int64()), ("n", pa.int64())]), ["v"])
    feed = spark.readStream.format(form).options(uri=uri, readChangeFeed="true").load("homes")
    grouped = feed.where("_op = 'insert'").groupBy("v").agg(functions.count("*").alias("n")).where("v IS NOT NULL")
    writer = grouped.writeStream.outputMode("update")
    if form == "nyala":
        sink = writer.format(form).options(uri=uri, table="counts")
    else:
        with pytest.raises(StreamingQueryException, match="nyala_plain does not support Update mode"):
            run_once(writer.format(form).options(uri=uri, table="counts"), tmp_path / "refused")
        sink = writer.foreachBatch(lambda rows, number: write_table(rows, "counts", uri))
    homes.insert({"id": range(20), "v": [number % 3 for number in range(20)]})
    run_once(sink, tmp_path / "counts")
    assert {row["v"]: row["n"] for row in counts.scan().to_arrow().to_pylist()} == {0: 7, 1: 7, 2: 6}
    before = db.now()
    homes.insert({"id": [20, 21], "v": [1, 5]})
    run_once(sink, tmp_path / "counts")
    assert {row["v"]: row["n"] for row in counts.scan().to_arrow().to_pylist()} == {0: 7, 1: 8, 2: 6, 5: 1}
    changed = counts.changes(since=before, every=True).to_arrow().to_pylist()
    assert sorted((row["_op"], row["v"], row["n"]) for row in changed) == [("insert", 5, 1), ("update", 1, 8)]


def test_a_copy_follows_a_table_that_is_altered(
    spark: SparkSession, db: Database, uri: str, tmp_path: Path, form: str
) -> None:
    """The query stops before the change, and goes on there when it is loaded again; the sink gets the columns."""
    schema = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int32())])
    source, copy = (db.create_table(name, schema, ["id"], [nyala.hash("id", buckets=2)]) for name in ("homes", "copy"))

    def sink() -> DataStreamWriter:
        feed = spark.readStream.format(form).options(uri=uri, readChangeFeed="true", maxRowsPerTrigger="10")
        rows = feed.load("homes").drop("_timestamp").writeStream.format(form)
        return rows.options(uri=uri, table="copy", operationColumn="_op", mergeSchema="true")

    source.insert({"id": range(25), "v": range(25)})
    run_once(sink(), tmp_path / "copy")
    loaded = sink()
    running = sink().option("checkpointLocation", str(tmp_path / "copy")).trigger(processingTime="0 seconds").start()
    while not running.lastProgress and running.isActive:  # it has begun with the columns of now
        time.sleep(0.1)
    source.upsert({"id": [1, 30], "v": [-1, 30]})
    source.alter().add_column("price", "double").widen_column("v", "int64").add_column("city", "string").apply()
    source.upsert({"id": [2, 31], "v": [1 << 40, 31], "price": [2.5, None], "city": [None, "Oslo"]})
    source.delete({"id": [3]})
    stopped = r"have changed since the query began: .*price is new|column 'v' is bigint, not int"  # while it reads
    with pytest.raises(StreamingQueryException, match=stopped):
        running.awaitTermination(240)
    with pytest.raises(StreamingQueryException, match="column 'v' is bigint, not int"):
        run_once(loaded, tmp_path / "copy")
    run_once(sink(), tmp_path / "copy")
    assert copy.scan(ordered=True).to_arrow().equals(source.scan(ordered=True).to_arrow())
    assert copy.describe()["schema_version"] == 2, "one change"
    source.alter().drop_column("price").apply()
    source.insert({"id": [40], "v": [40], "city": ["Bonn"]})
    run_once(sink(), tmp_path / "copy")
    rows = copy.scan(columns=["id", "v", "city"], ordered=True).to_arrow()
    assert rows.equals(source.scan(ordered=True).to_arrow())


def test_restarts_at_random(spark: SparkSession, db: Database, uri: str, tmp_path: Path) -> None:
    campaign = Campaign(spark, db, uri, tmp_path, random.Random(7))
    campaign.run(dose(1, 3))
    assert "0 lost, 0 doubled" in campaign.report()
