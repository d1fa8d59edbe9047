"""Every type, with NULLs and extremes, in both directions and whatever the session's time zone is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.database import Database
from nyala.spark import write_table

pytestmark = pytest.mark.spark

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ok": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-32768, 32767]),
    "i32": (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
    "i64": (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
    "f32": (pa.float32(), [1.5, float("-inf")]),
    "f64": (pa.float64(), [-0.0, 5e-324]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "night": (pa.timestamp("us"), [dt.datetime(2026, 3, 8, 2, 30), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "small": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    "large": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal("-1E-10")]),
    "text": (pa.string(), ["", "\u00e9\U0001f98c\0x"]),
    "raw": (pa.binary(), [b"", b"\x00\xff"]),
    "short": (pa.string(), ["abcde", "fg"]),
}
ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def make(db: Database) -> Callable[[str], Any]:
    """Create a table with a column of each type that may be NULL, and one of each that may not."""
    fields = [pa.field("id", pa.int64(), False)]
    for name, (kind, _) in TYPES.items():
        fields += [pa.field(name, kind), pa.field("n_" + name, kind, False)]
    types = {name: nyala.ColumnOptions(type="varchar(5)") for name in ("short", "n_short")}
    return lambda name: db.create_table(name, pa.schema(fields), ["id"], column_options=types)


def data() -> dict[str, Any]:
    columns: dict[str, Any] = {"id": [1, 2, 3]}
    for name, (kind, cells) in TYPES.items():
        columns |= {name: pa.array([*cells, None], kind), "n_" + name: pa.array([*cells, cells[0]], kind)}
    return columns


def test_all_types_come_and_go_unchanged(
    make: Callable[[str], Any], load: Callable[..., DataFrame], uri: str, zone: str
) -> None:
    there = make("there")
    there.insert(data())
    frame = load("there")
    assert {field.name: field.nullable for field in frame.schema} == {each.name: each.nullable for each in there.schema}
    expected = there.scan(ordered=True).to_arrow()
    micros = (
        frame.orderBy("id").select(*(f.unix_micros(name).alias(name) for name in ("at", "n_at", "night"))).toArrow()
    )
    for name in micros.column_names:
        assert micros[name].to_pylist() == expected[name].cast(pa.int64()).to_pylist()
    back = make("back")
    write_table(frame, "back", uri)
    assert back.scan(ordered=True).to_arrow().equals(expected)


def test_moments_without_a_zone(
    make: Callable[[str], Any], load: Callable[..., DataFrame], spark: SparkSession, uri: str, zone: str
) -> None:
    """A schema of one's own may ask for them; written, they are taken as they are."""
    there = make("there")
    there.insert(data())
    frame = spark.read.format("nyala").schema("id long, night timestamp_ntz").option("uri", uri).load("there")
    expected = there.scan(columns=["id", "night"], ordered=True).to_arrow()
    assert frame.orderBy("id").toArrow()["night"].to_pylist() == expected["night"].to_pylist()
    write_table(frame.withColumn("night", f.expr("night + interval 1 hour")), "there", uri, "update")
    moved = there.scan(columns=["night"], where="id = 1").to_arrow()["night"].to_pylist()
    assert moved == [dt.datetime(2026, 3, 8, 3, 30)]


def test_literals_of_spark(make: Callable[[str], Any], spark: SparkSession, uri: str) -> None:
    """A moment that is written with its zone is that moment, cells that are too long for a varchar are cut."""
    there = make("there")
    there.insert(data())
    frame = spark.sql(
        "SELECT 1L AS id, timestamp'2026-03-08 02:30:00 Asia/Kolkata' AS at, "
        "'abcdefgh' AS short, 7Y AS i64, 1.5BD AS large"
    )
    write_table(frame, "there", uri, "update")
    row = there.get(1)
    assert row["at"] == dt.datetime(2026, 3, 7, 21, 0) and row["short"] == "abcde"
    assert (row["i64"], row["large"]) == (7, Decimal("1.5"))


def test_null_where_none_may_be(make: Callable[[str], Any], load: Callable[..., DataFrame], uri: str) -> None:
    there = make("there")
    there.insert(data())
    for column in ("id", "n_text"):
        with pytest.raises(PySparkException, match=f"'{column}' is NULL in 3 rows"):
            write_table(
                load("there").withColumn(column, f.lit(None).cast(load("there").schema[column].dataType)), "there", uri
            )
    with pytest.raises(PySparkException, match="fit"):
        write_table(load("there").withColumn("i8", f.lit(1000)), "there", uri)
    assert there.scan().count() == 3
