"""Streams through a session of Spark: limits, restarts, and batches that come twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from streaming import Campaign

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.spark import merge_changes

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
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(60)

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


def test_complete_mode(spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path) -> None:
    sums = db.create_table("sums", pa.schema([("v", pa.int64()), ("n", pa.int64())]), ["v"])

    def run() -> None:
        changes = spark.readStream.format("nyala").option("uri", uri).option("readChangeFeed", "true").load("homes")
        counted = changes.groupBy("v").count().withColumnRenamed("count", "n")
        query = counted.writeStream.format("nyala").option("uri", uri).option("checkpointLocation", str(tmp_path))
        query.outputMode("complete").trigger(availableNow=True).start("sums").awaitTermination(60)

    homes.insert({"id": [1, 2, 3], "v": [7, 7, 8]})
    run()
    homes.insert({"id": [4], "v": [8]})
    run()
    assert {row["v"]: row["n"] for row in sums.scan().to_arrow().to_pylist()} == {7: 2, 8: 2}


def test_restarts_at_random(spark: SparkSession, db: Database, uri: str, tmp_path: Path) -> None:
    campaign = Campaign(spark, db, uri, tmp_path, random.Random(7))
    campaign.run(3)
    assert "0 lost, 0 doubled" in campaign.report()
