"""The Flight client in Java: columns of many batches, streams that break, and several locations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.flight_server import get
from nyala.schemas.errors import UnavailableError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Load = Callable[..., DataFrame]
ROWS = 300_000


@pytest.fixture
def rows(db: Database) -> pa.Table:
    """What a table of two tablets holds that takes several messages to read."""
    numbers = np.arange(ROWS)
    data = pa.table({
        "id": numbers,
        "n": pa.array(numbers * 7 % 1000, mask=numbers % 11 == 0),
        "text": pa.array([f"text {n * 13 % ROWS}" for n in range(ROWS)]),
    })  # fmt: skip
    table = db.create_table("many", data.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(data)
    return data


def held_bytes(spark: SparkSession) -> int:
    """The memory of Arrow that the machine holds for rows."""
    return spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory()  # pyright: ignore


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
    found = load("many").where("abs(id) >= 0").selectExpr("count(*)", "count(DISTINCT id)", "sum(n)").first()
    assert found and found[:] == (ROWS, ROWS, sum(rows["n"].drop_null().to_pylist()))
    assert len(broken) == 3


def test_one_of_several_locations_has_the_store(rows: pa.Table, spark: SparkSession, uri: str) -> None:
    frame = spark.read.format("nyala").option("uri", f"grpc://127.0.0.1:1,{uri}").load("many")
    assert frame.where("id < 10").orderBy("id").select("id").toArrow()["id"].to_pylist() == list(range(10))
