"""The Flight client in Java: columns of many batches, streams that break, and several locations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from pyspark.sql import DataFrame, SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.handlers import get
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from tests.clients.spark.sessions import held_bytes
from tests.dose import by_night
from tests.doubles.cut_proxy import CutProxy
from tests.doubles.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Load = Callable[..., DataFrame]
ROWS = 300_000


@pytest.fixture
def rows(db: Database) -> pa.Table:
    """What a table of two tablets holds that takes several messages to read."""
    return fill(db)


def fill(db: Database) -> pa.Table:
    numbers = np.arange(ROWS)
    data = pa.table({
        "id": numbers,
        "n": pa.array(numbers * 7 % 1000, mask=numbers % 11 == 0),
        "text": pa.array([f"text {n * 13 % ROWS}" for n in range(ROWS)]),
    })  # fmt: skip
    table = db.create_table("many", data.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(data)
    return data


@pytest.fixture
def other_port() -> Iterator[int]:
    """Where another store has the same rows."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    fill(Database(store))
    server = FlightServer(store, "grpc://127.0.0.1:0")
    yield server.port
    server.shutdown()
    store.close()


@pytest.fixture
def proxy(uri: str) -> Iterator[CutProxy]:
    """The network on the way to the store."""
    with CutProxy(int(uri.rpartition(":")[2])) as network:
        yield network


@pytest.fixture
def before_message(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Do something before the server sends the message with a number of a stream, the first times."""
    sent = get._sent

    def plant(number: int, act: Callable[[], None], times: int = 1) -> None:
        turns = threading.Semaphore(times)

        def planted(scan: Any, *others: Any) -> Iterator[Any]:
            for place, message in enumerate(sent(scan, *others)):
                if place == number and turns.acquire(blocking=False):
                    act()
                yield message

        monkeypatch.setattr(get, "_sent", planted)

    return plant


def load_by(spark: SparkSession, *proxies: CutProxy) -> DataFrame:
    locations = ",".join(f"grpc://127.0.0.1:{proxy.here}" for proxy in proxies)
    return spark.read.format("nyala").option("uri", locations).load("many")


def planned(frame: DataFrame) -> Any:
    """Plan a query; return its tasks."""
    tasks = frame._jdf.queryExecution().toRdd()  # pyright: ignore
    assert tasks.getNumPartitions() == 2
    return tasks


def summed(frame: DataFrame) -> list[int]:
    found = frame.where("abs(id) >= 0").selectExpr("count(*)", "count(DISTINCT id)", "sum(n)").first()
    assert found
    return list(found)


def test_batches_come_as_columns_and_leave_no_memory_behind(rows: pa.Table, load: Load, spark: SparkSession) -> None:
    frame = load("many")
    plan = frame._jdf.queryExecution().executedPlan().toString()  # pyright: ignore
    assert "ColumnarToRow" in plan and "Python" not in plan
    assert frame.orderBy("id").toArrow().equals(rows.cast(frame.orderBy("id").toArrow().schema))
    # A text that outlives its batch, in an aggregate without groups.
    greatest = frame.where("abs(n) >= 0 OR n IS NULL").selectExpr("max(text)", "min_by(text, id)", "count(n)").first()
    assert greatest and greatest[:] == ("text 99999", "text 0", ROWS - rows["n"].null_count)
    assert len(frame.where("abs(id) >= 0").limit(10).collect()) == 10, "a stream that is not read to its end"
    assert held_bytes(spark) == 0


def test_a_stream_that_breaks_goes_on_where_it_was(rows: pa.Table, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the last mark, with the rows of the same snapshot."""
    sent, broken = get._sent, []

    def breaking(scan: Any, *others: Any) -> Iterator[Any]:
        for number, message in enumerate(sent(scan, *others)):
            if number == 1 and len(broken) < 3:
                broken.append(number)
                raise UnavailableError("planted")
            yield message

    monkeypatch.setattr(get, "_sent", breaking)
    assert summed(load("many")) == [ROWS, ROWS, sum(rows["n"].drop_null().to_pylist())]
    assert len(broken) == 3


@pytest.mark.parametrize("end", [0, 1 << 30])
def test_text_that_ends_outside_its_buffer_is_refused(
    rows: pa.Table, load: Load, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """Spark reads cells where they lie: an end that is wrong would show it memory of others."""
    sent = get._sent

    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        validity, ends, text = batch["text"].buffers()
        wrong = np.frombuffer(ends, np.int32)[: len(batch) + 1].copy()
        wrong[7:8] = end
        cells = pa.StringArray.from_buffers(len(batch), pa.py_buffer(wrong), text, validity)
        return batch.set_column(batch.schema.get_field_index("text"), "text", cells)

    def breaking(*given: Any) -> Iterator[Any]:
        for message in sent(*given):
            yield (broken(message[0]), message[1]) if isinstance(message, tuple) else broken(message)

    monkeypatch.setattr(get, "_sent", breaking)
    with pytest.raises(Exception, match="a batch whose column 'text' is not whole: read again"):
        load("many").selectExpr("max(reverse(text))").collect()


def test_a_stream_goes_on_with_the_columns_that_it_began_with(
    rows: pa.Table, load: Load, monkeypatch: pytest.MonkeyPatch, before_message: Callable[..., None]
) -> None:
    other, begun = pa.schema([("id", pa.int64()), ("other", pa.int64())]), threading.Event()
    stream = get.stream

    def breaking() -> None:
        begun.set()
        raise UnavailableError("planted")

    def changed(*given: Any) -> fl.FlightDataStream:
        if not begun.is_set():
            return stream(*given)
        begun.clear()
        return fl.GeneratorStream(other, iter(()))

    before_message(1, breaking, times=2)  # a task may fail once
    monkeypatch.setattr(get, "stream", changed)
    with pytest.raises(Exception, match=r"CONFLICT: table many was read with the columns .*: read it again"):
        summed(load("many").coalesce(1))


def test_tasks_refuse_a_store_that_did_not_plan_them(
    rows: pa.Table, spark: SparkSession, proxy: CutProxy, other_port: int
) -> None:
    tasks = planned(load_by(spark, proxy))
    proxy.lead_to(other_port)
    with pytest.raises(Exception, match="now serves another store than before: check the URL"):
        tasks.count()


def test_a_stream_goes_on_at_no_other_store(
    rows: pa.Table, spark: SparkSession, proxy: CutProxy, other_port: int, before_message: Callable[..., None]
) -> None:
    before_message(1, lambda: proxy.lead_to(other_port))
    with pytest.raises(Exception, match="now serves another store than before: check the URL"):
        summed(load_by(spark, proxy))


def test_a_query_plans_at_one_store(
    rows: pa.Table, spark: SparkSession, proxy: CutProxy, other_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one reads from the store that is there by then."""
    frame = load_by(spark, proxy).where("abs(id) >= 0")
    plan, plans = FlightServer.get_flight_info, []

    def replaced(*given: Any) -> Any:
        plans.append(given)
        if len(plans) == 2:
            proxy.lead_to(other_port)
        return plan(*given)

    monkeypatch.setattr(FlightServer, "get_flight_info", replaced)
    both = frame.selectExpr("id AS number").union(frame.selectExpr("n AS number"))
    with pytest.raises(Exception, match="now serves another store than before: check the URL"):
        both.count()
    assert frame.count() == ROWS


def test_a_network_that_swallows_everything_is_noticed(
    rows: pa.Table, spark: SparkSession, uri: str, proxy: CutProxy, before_message: Callable[..., None]
) -> None:
    with CutProxy(int(uri.rpartition(":")[2])) as other:
        before_message(1, proxy.cut)
        assert summed(load_by(spark, proxy, other)) == [ROWS, ROWS, sum(rows["n"].drop_null().to_pylist())]


def test_a_store_is_found_beside_another_one(
    rows: pa.Table, spark: SparkSession, uri: str, proxy: CutProxy, other_port: int
) -> None:
    """Where the first of several locations has another store by now, the second is asked."""
    with CutProxy(int(uri.rpartition(":")[2])) as second:
        tasks = planned(load_by(spark, proxy, second))
        proxy.lead_to(other_port)
        assert tasks.count() == ROWS


@pytest.mark.parametrize("number", by_night([0, 1], day=[1]))
def test_a_task_that_is_killed_ends_and_leaves_no_memory_behind(
    number: int, rows: pa.Table, load: Load, spark: SparkSession, before_message: Callable[..., None]
) -> None:
    """Though the server says nothing, neither before the first message nor later."""
    reached, release = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        release.wait()

    before_message(number, wait)
    tasks = planned(load("many"))
    try:
        with ThreadPoolExecutor(1) as thread:
            query = thread.submit(tasks.count)
            reached.wait()
            spark.sparkContext.cancelAllJobs()
            assert query.exception()
        until(lambda: running_tasks(spark) == 0 and held_bytes(spark) == 0)
    finally:
        release.set()


def running_tasks(spark: SparkSession) -> int:
    return sum(each.numRunningTasks() for each in spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos())  # pyright: ignore


def test_one_of_several_locations_has_the_store(rows: pa.Table, spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("nyala").option("uri", f"grpc://127.0.0.1:1,{uri}").load("many")
    assert frame.where("id < 10").orderBy("id").select("id").toArrow()["id"].to_pylist() == list(range(10))
