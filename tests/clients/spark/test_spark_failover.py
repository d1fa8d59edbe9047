"""Jobs and streams of Spark while the store in a bucket changes hands: holders killed midway, and a planned hand-over.

Each test stops tasks at a gate, so that jobs are in the middle of their work whenever the store is lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster.placement_file import parse_placement
from nyala.clients.spark.source import NyalaDataSource
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from tests.campaigns.failover.name_process import NameProcess
from tests.clients.spark.streaming import JOURNAL
from tests.doubles.cut_off import cut_off
from tests.doubles.pair import Pair
from tests.doubles.ports import free_port
from tests.doubles.waiting import until

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = 4_000
SECONDS = 300.0
"""Longer than this no job takes, however slow the machine is."""


class Processes:
    """The holder of a store in a bucket, and one that stands by for it."""

    def __init__(self, folder: Path) -> None:
        self.bucket = folder / "bucket"
        self._folder = folder
        self._all: list[NameProcess] = []
        self._numbers = count()
        self.holder, self.standby = self._started(), self._started()

    @property
    def uri(self) -> str:
        return f"{self.holder.url},{self.standby.url}"

    def _started(self) -> NameProcess:
        cache = self._folder / f"cache{next(self._numbers)}"
        self._all.append(NameProcess(self.bucket, cache, "--set=lease_seconds=2"))
        return self._all[-1]

    def wait(self) -> None:
        """Return when one has the store, and the other stands by."""
        until(lambda: {self.holder.where().state, self.standby.where().state} == {"holder", "standby"}, 90)
        if self.holder.where().state == "standby":
            self.holder, self.standby = self.standby, self.holder
        self.standby.becomes("standby")

    def kill_holder(self) -> None:
        """Return at once, while nobody has the store; a third process begins to stand by."""
        self.holder.end()
        self._all.remove(self.holder)
        self.holder, self.standby = self.standby, self._started()

    def release(self) -> None:
        """Hand the store over as planned."""
        with closing(self.holder.itself()) as process:
            process.server_release("a")

    def staged(self) -> int:
        """How many parts tasks have staged, and nobody has committed."""
        return len(list(self.bucket.glob("stores/a/staging/*.stage")))

    def wait_until_clean(self) -> None:
        """Return when nothing is staged: files go when the slot has landed that drops them."""
        until(lambda: not self.staged(), 90)

    def end(self) -> None:
        for one in self._all:
            one.end()


@pytest.fixture(scope="module")
def all_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(tmp_path_factory.mktemp("failover"))
    yield started
    started.end()
    assert verify_bucket(home_at(f"file://{started.bucket}", "a")).is_sound


@pytest.fixture
def processes(all_processes: Processes) -> Processes:
    all_processes.wait()
    return all_processes


@pytest.fixture
def db(processes: Processes) -> Iterator[nyala.Database]:
    """The store, without tables."""
    with nyala.connect(processes.uri) as db:
        yield db
        for name in db.tables():
            db.drop_table(name)


@pytest.fixture
def forms(spark: SparkSession) -> tuple[str, str]:
    """The data source, which is in Java where it can be, and that in Python alone."""

    class PlainNyala(NyalaDataSource):  # made here, it is sent by its code
        @classmethod
        def name(cls) -> str:
            return "nyala_plain"

    spark.dataSource.register(PlainNyala)
    return "nyala", "nyala_plain"


class Gate:
    """Stops tasks of Spark while it is closed."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._closed = folder / "closed"
        folder.mkdir()

    def close(self) -> None:
        for seen in self._folder.glob("stopped-*"):
            seen.unlink()
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink()

    @property
    def stopped(self) -> int:
        """How many jobs stand at it."""
        return len(list(self._folder.glob("stopped-*")))

    def task(self, name: str, part: int) -> Callable[[int], int]:
        """Return a function that returns what it is given, in the tasks of a job. It stops that of one part when it has
        passed some values on."""
        closed, stopped = str(self._closed), str(self._folder / f"stopped-{name}")
        passed = 0

        def gated(value: int) -> int:
            nonlocal passed
            passed += 1
            context = TaskContext.get()
            while passed > 150 and context and context.partitionId() == part and os.path.exists(closed):
                open(stopped, "w").close()
                time.sleep(0.01)
            return value

        return gated

    def function(self, name: str, part: int) -> str:
        """Return the name of such a function in SQL."""
        self._spark.udf.register(f"gate_{name}", self.task(name, part), LongType())
        return f"gate_{name}"


@pytest.fixture
def gate(spark: SparkSession, tmp_path: Path) -> Gate:
    return Gate(spark, tmp_path / "gate")


class Jobs:
    """Jobs that run at the same time."""

    def __init__(self, spark: SparkSession, *jobs: Callable[[], Any]) -> None:
        self._spark: Any = spark
        self._results: list[Any] = [None] * len(jobs)
        self._failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in enumerate(jobs)]
        for thread in self._threads:
            thread.start()

    def _run(self, place: int, job: Callable[[], Any]) -> None:
        try:
            # A write looks for sources in Python in the session of its thread only.
            self._spark._jvm.SparkSession.setActiveSession(self._spark._jsparkSession)
            self._results[place] = job()
        except BaseException as error:
            self._failed.append(error)

    def reach(self, is_true: Callable[[], object]) -> None:
        """Wait until something is true; fail if a job ends before."""
        until(lambda: is_true() or not all(thread.is_alive() for thread in self._threads), SECONDS)
        self._raise()
        assert all(thread.is_alive() for thread in self._threads), "a job was not under way"

    def end(self) -> list[Any]:
        """Return what they return. Raises what one raises."""
        for thread in self._threads:
            thread.join(SECONDS)
        self._raise()
        assert not any(thread.is_alive() for thread in self._threads), "a job hangs"
        return self._results

    def _raise(self) -> None:
        if self._failed:
            raise self._failed[0]


def kill_midway(processes: Processes, gate: Gate, jobs: Jobs, staged: int = 0) -> list[Any]:
    """Kill the holder when two jobs stand at the gate, and these parts are staged; return the results of the jobs."""
    jobs.reach(lambda: gate.stopped == 2 and processes.staged() >= staged)
    processes.kill_holder()
    gate.open()
    return jobs.end()


def told(table: nyala.Table, since: int) -> Counter[tuple[str, int, int]]:
    """Return all changes of a table."""
    changes = table.changes(since, every=True).to_arrow()
    return Counter((row["_op"], row["id"], row["v"]) for row in changes.to_pylist())


def test_a_read_whose_holder_is_killed_is_its_snapshot(
    processes: Processes, db: nyala.Database, spark: SparkSession, forms: tuple[str, str], gate: Gate
) -> None:
    """One task reads all tablets, one after the other. It stops in the first, and has fetched ahead less than all."""
    schema = SCHEMA.append(pa.field("text", pa.string()))
    table = db.create_table("t", schema, ["id"], [nyala.hash("id", buckets=4)])
    texts = [Random(each).randbytes(1_000).hex() for each in range(ROWS)]
    table.insert(pa.table({"id": range(ROWS), "v": range(ROWS), "text": texts}, schema=schema))
    table.maintain("flush")

    def read(form: str) -> list[tuple[int, int]]:
        stop = gate.task(form, 0)
        rows = spark.read.format(form).option("uri", processes.uri).load("t").coalesce(1)
        return rows.rdd.map(
            lambda row: (stop(row["id"]), row["v"])
        ).collect()  # a plan of Arrow batches reads far ahead

    gate.close()
    jobs = Jobs(spark, *(lambda form=form: read(form) for form in forms))
    jobs.reach(lambda: gate.stopped == 2)
    table.update({"id": range(ROWS), "v": [-1] * ROWS})
    found = kill_midway(processes, gate, jobs)
    assert [sorted(rows) == [(each, each) for each in range(ROWS)] for rows in found] == [True, True]
    read_there = sum(tablet["rows_read"] for tablet in table.stats()["tablets"])
    assert read_there, "the next holder was asked for the rest"
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {-1}


def test_writes_whose_holder_is_killed_are_one_commit(
    processes: Processes, db: nyala.Database, spark: SparkSession, forms: tuple[str, str], gate: Gate
) -> None:
    """Of each one task has staged its rows, and another one is in the middle of them."""
    table = db.create_table("t", SCHEMA, ["id"], [nyala.hash("id", buckets=2)])
    table.insert({"id": range(ROWS), "v": range(ROWS)})
    began = db.now()

    def write(form: str, first: int) -> None:
        rows = spark.range(first, first + ROWS, 1, 2).selectExpr(f"{gate.function(form, 1)}(id) AS id", "7L AS v")
        rows.write.format(form).option("uri", processes.uri).mode("append").save("t")

    gate.close()
    jobs = Jobs(spark, lambda: write(forms[0], 0), lambda: write(forms[1], ROWS))
    kill_midway(processes, gate, jobs, staged=2)
    updated = {("update", each, 7) for each in range(ROWS)}
    assert told(table, began) == Counter(updated | {("insert", each + ROWS, 7) for each in range(ROWS)})
    assert db.commits("t", since=began).num_rows == 2
    processes.wait_until_clean()


def test_statements_whose_holder_is_killed_are_one_commit(
    needs_shim: None, processes: Processes, db: nyala.Database, spark: SparkSession, gate: Gate
) -> None:
    spark.conf.set("spark.sql.catalog.failing", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.failing.uri", processes.uri)
    new, old = (db.create_table(name, SCHEMA, ["id"], [nyala.hash("id", buckets=2)]) for name in ("new", "old"))
    old.insert({"id": range(ROWS), "v": range(ROWS)})
    began = db.now()
    inserted, merged = gate.function("insert", 1), gate.function("merge", 1)
    insert = f"INSERT INTO failing.default.new SELECT {inserted}(id) AS id, 7L AS v FROM range(0, {ROWS}, 1, 2)"
    even = f"(SELECT id * 2 AS id FROM range(0, {ROWS}, 1, 2)) s"
    merge = f"""MERGE INTO failing.default.old t USING {even} ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET v = {merged}(-s.id) WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 7)"""
    gate.close()
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        kill_midway(processes, gate, Jobs(spark, lambda: spark.sql(insert), lambda: spark.sql(merge)), staged=2)
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    assert told(new, began) == Counter(("insert", each, 7) for each in range(ROWS))
    updated = {("update", each, -each) for each in range(0, ROWS, 2)}
    assert told(old, began) == Counter(updated | {("insert", each, 7) for each in range(ROWS, 2 * ROWS, 2)})
    assert [db.commits(name, since=began).num_rows for name in ("new", "old")] == [1, 1]
    processes.wait_until_clean()


def test_a_driver_that_has_only_planned_waits_for_the_store(
    needs_shim: None, spark: SparkSession, store: Store
) -> None:
    """Its tasks have staged, in other processes, and its commit is the first that it asks the store of the plan."""
    jvm: Any = spark._jvm  # pyright: ignore[reportAttributeAccessIssue]
    uri, started = f"grpc://127.0.0.1:{free_port()}", []
    identity = jvm.io.nyala.flight.StoreIdentity("", store.health().store_uuid)
    planned = jvm.io.nyala.flight.FlightStore.at(
        uri, jvm.io.nyala.flight.Credentials.of(jvm.java.util.HashMap()), identity
    )
    starting = threading.Timer(1.0, lambda: started.append(FlightServer(store, uri)))
    starting.start()
    assert planned.ask("now", None).path("timestamp").asLong() > 0
    starting.join()
    started[0].shutdown()


def test_a_driver_that_begins_waits_for_the_next_holder(needs_shim: None, spark: SparkSession, store: Store) -> None:
    """A process stands by: so somebody will have the store, though this driver has not reached it before."""
    jvm: Any = spark._jvm  # pyright: ignore[reportAttributeAccessIssue]
    pair = Pair(store)
    pair.first.die()
    pair.give_to(None)
    taking = threading.Timer(1.0, pair.give_to, (pair.second,))
    taking.start()
    beginning = jvm.io.nyala.flight.FlightStore.at(
        pair.url, jvm.io.nyala.flight.Credentials.of(jvm.java.util.HashMap())
    )
    assert beginning.ask("now", None).path("timestamp").asLong() > 0
    taking.join()
    pair.close()


def test_who_stands_by_is_not_taken_for_all_servers(
    needs_shim: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say that the store shares its tables with others, where a statement would miss them."""
    jvm: Any = spark._jvm  # pyright: ignore[reportAttributeAccessIssue]
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        pair = Pair(store)
        about, placement = store.health(), parse_placement({"servers": {"a": pair.url, "b": "grpc://127.0.0.1:1"}})
        monkeypatch.setattr(store, "health", lambda: about.model_copy(update={"server": "a"}))
        monkeypatch.setattr(store, "placement", lambda: placement, raising=False)
        asked = jvm.io.nyala.flight.FlightStore.at(
            pair.url, jvm.io.nyala.flight.Credentials.of(jvm.java.util.HashMap())
        )
        asked.ask("now", None)
        pair.give_to(pair.second)
        assert not jvm.io.nyala.flight.TableServers.of(asked).isOne()
        pair.close()


def test_statements_go_on_at_the_next_holder_where_the_former_one_answers(
    needs_shim: None, spark: SparkSession
) -> None:
    """It is cut off from the bucket, and knows the tables of before."""
    statements = (
        "DROP TABLE {}.dropped",
        "ALTER TABLE {}.altered ADD COLUMN w INT",
        "CREATE TABLE {}.made (id BIGINT NOT NULL) TBLPROPERTIES (primary_key = 'id')",
        "INSERT INTO {}.new VALUES (1, 2)",
    )
    names = "dropped", "altered"
    with cut_off(lambda db: [db.create_table(name, SCHEMA, ["id"]) for name in names]) as (pair, following):
        Database(following).create_table("new", SCHEMA, ["id"])
        for number, statement in enumerate(
            statements, 1
        ):  # each with a connection of its own, at first to the former one
            spark.conf.set(f"spark.sql.catalog.cut{number}", "io.nyala.spark.NyalaCatalog")
            spark.conf.set(
                f"spark.sql.catalog.cut{number}.uri", ",".join([pair.first.url, *[pair.second.url] * number])
            )
            spark.sql(statement.format(f"cut{number}.default"))
        assert following.tables() == ["altered", "made", "new"]
        assert [column.name for column in following.describe_table("altered").columns] == ["id", "v", "w"]
        assert Database(following).table("new").get(1) == {"id": 1, "v": 2}


def test_streams_go_on_when_a_holder_is_killed_and_a_store_handed_over(
    processes: Processes, db: nyala.Database, spark: SparkSession, forms: tuple[str, str], gate: Gate, tmp_path: Path
) -> None:
    """A stream inserts rows, and others insert what they read of its changes: what comes twice would be refused."""
    db.create_table("rows", SCHEMA, ["id"], [nyala.hash("id", buckets=2)])
    for form in forms:
        db.create_table(f"{form}_journal", JOURNAL, ["at", "id"], [nyala.hash("id", buckets=2)])

    def start(rows: DataFrame, form: str, name: str) -> StreamingQuery:
        rows = rows.withColumn("id", expr(f"{gate.function(name, 0)}(id)"))
        sink = rows.writeStream.format(form).options(uri=processes.uri, operation="insert")
        return sink.option("checkpointLocation", str(tmp_path / name)).start(name)

    def feed(form: str) -> DataFrame:
        changes = spark.readStream.format(form).options(uri=processes.uri, readChangeFeed="true").load("rows")
        return changes.withColumnsRenamed({"_timestamp": "at", "_op": "op"})

    rates = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=800, numPartitions=2).load()
    inserting = start(rates.selectExpr("value AS id", "-value AS v"), forms[0], "rows")
    following = [start(feed(form), sink, f"{form}_journal") for form, sink in zip(forms, reversed(forms), strict=True)]
    queries = [inserting, *following]

    def advance() -> None:
        before = [batches(query) for query in queries]
        until(lambda: all(batches(query) > was for query, was in zip(queries, before, strict=True)), SECONDS)

    try:
        advance()
        for lose in (processes.kill_holder, processes.release):
            gate.close()
            until(lambda: gate.stopped == 2, SECONDS)
            jobs = Jobs(spark, lose)
            gate.open()
            jobs.end()
            advance()
            processes.wait()
        inserting.stop()
        for query in following:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    found = sorted(row["id"] for row in db.table("rows").scan().to_arrow().to_pylist())
    assert found == list(range(len(found))) and len(found) % 800 == 0
    for form in forms:
        journal = db.table(f"{form}_journal").scan().to_arrow()
        assert sorted(journal["id"].to_pylist()) == found and set(journal["op"].to_pylist()) == {"insert"}


def batches(query: StreamingQuery) -> int:
    """Return how many micro-batches a query has made. Raises what it has ended with."""
    error = query.exception()
    if error:
        raise error
    return query.lastProgress["batchId"] if query.lastProgress else -1
