"""Tasks: each reads several parts of a scan if these are small, all of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.store import Store
from nyala.schemas.errors import InternalError
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.spark.sessions import held_bytes
from tests.dose import by_night

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Load = Callable[..., DataFrame]
ROWS, TABLETS, CORES = 4_000, 8, 2
FILES = "spark.sql.files"


@pytest.fixture
def homes(db: Database) -> Table:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int32()), ("text", pa.string())])
    table = db.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=TABLETS)])
    table.insert({"id": range(ROWS), "n": [n % 10 for n in range(ROWS)], "text": [f"text {n}" for n in range(ROWS)]})
    table.maintain("flush")
    return table


@contextmanager
def settings(spark: SparkSession, **values: Any) -> Iterator[None]:
    for name, value in values.items():
        spark.conf.set(f"{FILES}.{name}", str(value))
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(f"{FILES}.{name}")


def tasks(frame: DataFrame) -> int:
    return frame._jdf.queryExecution().toRdd().getNumPartitions()  # pyright: ignore


def test_as_many_tasks_as_cores_read_all_parts(homes: Table, load: Load, plain: Load, spark: SparkSession) -> None:
    for where in ("TRUE", "id >= 3600", "id = 5", "id < 0", "abs(n) < 4"):
        found = load().where(where)
        assert tasks(found) == (1 if where in ("id = 5", "id < 0") else CORES)
        expected = plain().where(where).orderBy("id").toArrow()
        assert found.orderBy("id").toArrow().equals(expected)
    assert load().selectExpr("sum(id + n)").collect()[0][0] == sum(n + n % 10 for n in range(ROWS))
    assert held_bytes(spark) == 0


def test_parts_are_shared_out_by_the_settings_for_files(homes: Table, load: Load, spark: SparkSession) -> None:
    def query() -> DataFrame:
        return load().select("n", "text")

    for number in (1, 3, 5, 8, 20):
        with settings(spark, minPartitionNum=number):
            assert tasks(query()) == min(number, TABLETS)
            assert query().selectExpr("sum(n + length(text))").collect()[0][0] == 18_000 + sum(
                len(f"text {n}") for n in range(ROWS)
            )
    with settings(spark, maxPartitionBytes=5 << 20):
        assert tasks(query()) == 7, "eight parts of some 4 MiB, by what it costs to begin them"
    with settings(spark, maxPartitionBytes=20_000, openCostInBytes=0):
        assert CORES < tasks(query()) < TABLETS
    with settings(spark, maxPartitionBytes=1_000, openCostInBytes=0):
        assert tasks(query()) == TABLETS


def test_tasks_have_about_as_many_bytes(db: Database, load: Load, spark: SparkSession) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
    ranges = nyala.partition.range("id", splits=[10, 20, 30, 40])
    table = db.create_table("uneven", schema, ["id"], partition_by=[ranges])
    table.insert({"id": range(50), "text": ["x" * (10 if n < 40 else 60_000) for n in range(50)]})
    with settings(spark, openCostInBytes=100):
        counts = load("uneven").groupBy(f.spark_partition_id()).agg(f.collect_set("id"), f.count("text"))
        assert sorted(sorted(row[1]) for row in counts.collect()) == [list(range(40)), list(range(40, 50))]


def test_parts_stay_apart_where_it_matters(homes: Table, load: Load, spark: SparkSession) -> None:
    assert tasks(load(splitSizeBytes=1 << 20)) == TABLETS, "the user chose their size"
    some = load().where("n = 3").limit(2000)
    leaf = some._jdf.queryExecution().executedPlan().collectLeaves().head()  # pyright: ignore
    assert leaf.inputPartitions().size() == TABLETS, "Spark starts as many as it needs"
    joined = load().hint("merge").join(load().withColumnRenamed("n", "m"), "id")
    assert "Exchange" not in joined._jdf.queryExecution().executedPlan().toString()  # pyright: ignore
    assert joined.count() == ROWS


@pytest.mark.parametrize("place", by_night(range(TABLETS), day=[1, TABLETS - 1]))
def test_a_task_that_fails_between_its_parts_reads_all_of_them_again(
    homes: Table, load: Load, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    scan, streams = Store.scan, []

    def failing(self: Store, spec: ScanSpec) -> Any:
        streams.append(spec.tablet)
        if len(streams) == place + 1:
            raise InternalError("planted")
        return scan(self, spec)

    frame = load().select("id", "text")
    assert tasks(frame) == CORES
    monkeypatch.setattr(Store, "scan", failing)
    assert sorted(frame.toArrow()["id"].to_pylist()) == list(range(ROWS))
    assert len(streams) > TABLETS
