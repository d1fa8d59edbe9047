"""What Spark's cost-based optimizer is told of columns, compared with their cells."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nyala.clients.api.database import Database
from tests.clients.spark.sessions import Sql

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

Facts = dict[str, tuple[str | None, str | None, str | None, str | None]]
"""By column, as text: the least and the greatest cell, how many are NULL, how many are distinct; None: not known."""


@pytest.fixture
def costs(spark: SparkSession) -> Iterator[None]:
    """Switch the optimizer on."""
    spark.conf.set("spark.sql.cbo.enabled", "true")
    yield
    spark.conf.unset("spark.sql.cbo.enabled")


@pytest.fixture
def homes(db: Database) -> None:
    columns = {
        "id": pa.int64(), "rooms": pa.int8(), "price": pa.float64(), "tax": pa.decimal128(8, 2), "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"), "note": pa.string(),
    }  # fmt: skip
    fields = [pa.field(name, type, name != "id") for name, type in columns.items()]
    rows = [
        [1, 2, 3, 4], [5, None, -3, None], [1.5, float("nan"), None, -2.5], [None, None, None, "1.25"],
        [dt.date(2020, 1, number) for number in (2, 3, 4, 5)], [None] * 4, ["a", None, "c", "d"],
    ]  # fmt: skip
    table = db.create_table("homes", pa.schema(fields), ["id"])
    table.insert(dict(zip(columns, rows, strict=True)))
    table.maintain("flush")
    table.update([{"id": 4, "rooms": 9}])
    table.delete([{"id": 1}])


def facts(spark: SparkSession, query: str) -> Facts:
    """Return what Spark is told of the columns that a query reads."""
    plan: Any = spark.sql(query)._jdf.queryExecution().optimizedPlan()  # type: ignore[attr-defined]
    entries = plan.stats().attributeStats().toSeq()
    told: Facts = {}
    for place in range(entries.size()):
        column, of = entries.apply(place)._1(), entries.apply(place)._2()
        values = of.min(), of.max(), of.nullCount(), of.distinctCount()
        least, greatest, empty, distinct = (str(value.get()) if value.isDefined() else None for value in values)
        told[column.name()] = least, greatest, empty, distinct
    return told


@pytest.mark.usefixtures("costs", "homes")
def test_ends_and_nulls_of_columns(sql: Sql, spark: SparkSession) -> None:
    assert facts(spark, "SELECT * FROM homes") == {
        "id": ("2", "4", "0", "3"),
        "rooms": ("-3", "9", "1", None),
        "price": ("-2.5", "-2.5", "1", None),
        "tax": ("1.25", "1.25", "2", None),
        "day": ("18264", "18266", "0", None),
        "at": (None, None, "3", None),
        "note": (None, None, "1", None),
    }
    assert set(facts(spark, "SELECT rooms FROM homes")) == {"rooms"}


@pytest.mark.usefixtures("costs", "homes")
def test_a_pushed_filter_leaves_the_ends_as_bounds(sql: Sql, spark: SparkSession) -> None:
    told = facts(spark, "SELECT id, rooms FROM homes WHERE rooms > 0")
    assert told == {"id": ("2", "4", None, None), "rooms": ("-3", "9", None, None)}
    assert sql("SELECT id FROM homes WHERE rooms > 0") == [(4,)]


@pytest.mark.usefixtures("homes")
def test_nobody_asks_where_the_optimizer_is_off(sql: Sql, spark: SparkSession) -> None:
    assert facts(spark, "SELECT * FROM homes") == {}
