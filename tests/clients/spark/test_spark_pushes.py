"""Conditions, measures and orders of every type: what the store does for Spark selects what Spark would."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nyala.clients.api.database import Database
from tests.dose import dose

pytestmark = pytest.mark.spark

CELLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i64": (pa.int64(), [5, 1]),
    "f32": (pa.float32(), [1.5, float("nan")]),
    "f64": (pa.float64(), [0.1, float("nan")]),
    "day": (pa.date32(), [dt.date(2020, 1, 1), dt.date(1900, 1, 1)]),
    "at": (pa.timestamp("us"), [dt.datetime(2020, 1, 1), dt.datetime(1900, 1, 1)]),
    "dec": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-1.00")]),
    "text": (pa.string(), ["a%b", "x"]),
    "doc": (pa.json_(), ['{"a": 1}', "[1]"]),
    "raw": (pa.binary(), [b"a", b"\xff"]),
    "u8": (pa.uint8(), [255, 254]),
    "u32": (pa.uint32(), [(1 << 32) - 1, (1 << 32) - 2]),
    "u64": (pa.uint64(), [(1 << 64) - 1, (1 << 64) - 2]),
    "f16": (pa.float16(), [0.5, 2048.0]),
    "t32": (pa.time32("s"), [dt.time(1), dt.time(13)]),
    "t64": (pa.time64("us"), [dt.time(1), dt.time(13, 0, 0, 1)]),
    "dms": (pa.duration("ms"), [dt.timedelta(days=1), dt.timedelta(hours=1)]),
    "dus": (pa.duration("us"), [dt.timedelta(days=1), dt.timedelta(hours=1)]),
    "tags": (pa.list_(pa.string()), [["a"], []]),
    "ok": (pa.bool_(), [True, False]),
    "s": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}]),
}
CONDITIONS = """
f16 < 2049F
NOT (f16 IN (2048F, 2049F))
t64 < TIME'12:00:00'
dms > INTERVAL '2' HOUR
t64 IN (TIME'01:00:00', TIME'02:00:00')
s.a = 1
f64 <> 0.1D
u64 > 18446744073709551614
dus BETWEEN INTERVAL '1' HOUR AND INTERVAL '2' HOUR
doc LIKE '{%'
t32 = TIME'01:00:00'
t32 < TIME'12:00:00.5'
dus = INTERVAL '1' HOUR
doc = '[1]'
u8 > 254
u8 = 300
u32 = 4294967295
f16 > 1
f16 <=> 2049F
f16 <> 0.1F
f16 <= 1e6F
f32 > 1
f32 < 0.1F
u8 < 300
u8 > -1
f64 >= 0.1D
NOT (f64 = 0.1D)
f64 = double('NaN')
f64 IN (0.1D, double('NaN'))
f64 <=> double('NaN')
dec = 1.5
dec <> 1.505
text LIKE 'a\\\\%b'
contains(text, '%')
text > 'a'
day IN (DATE'2020-01-01')
at < TIMESTAMP'1900-06-01 00:00:00'
at = TIMESTAMP_NTZ'2020-01-01 00:00:00'
raw > X'61'
i64 <=> NULL
NOT (i64 <=> 5)
NOT (i64 IN (1, NULL))
i64 > 4.5
i64 < 9223372036854775808
NOT ok
s.b IS NULL
s IS NULL
get(tags, 0) = 'a'
""".strip().splitlines()
UNSUMMED = {"day", "at", "text", "doc", "raw", "t32", "t64", "tags", "ok", "s"}


def queries() -> Iterator[str]:
    """Yield the queries, with those that the store once refused first."""
    for condition in CONDITIONS:
        yield "SELECT id FROM TABLE WHERE " + condition
    for name in reversed(CELLS):
        yield f"SELECT id FROM TABLE ORDER BY {name} DESC NULLS FIRST LIMIT 2"
        yield f"SELECT id FROM TABLE ORDER BY {name} LIMIT 2"
        yield f"SELECT {name}, count(*) FROM TABLE GROUP BY {name}"
        yield f"SELECT ok, count({name}) FROM TABLE GROUP BY ok"
        yield f"SELECT a.id FROM TABLE a JOIN TABLE b ON a.{name} = b.{name}"
        for function in ("min", "max", "sum", "avg"):
            if name not in UNSUMMED or (function in ("min", "max") and name not in ("tags", "s")):
                yield f"SELECT {function}({name}) FROM TABLE"


def test_what_the_store_selects_is_what_spark_selects(spark: SparkSession, db: Database) -> None:
    key = pa.field("id", pa.int64(), nullable=False)
    table = db.create_table("pushes", pa.schema([key, *((name, kind) for name, (kind, _) in CELLS.items())]), ["id"])
    table.insert([{"id": row, **{name: cells[row] for name, (_, cells) in CELLS.items()}} for row in range(2)])
    table.insert([{"id": 2}])
    rows = spark.table("nyala.default.pushes")
    spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView("by_spark")
    every = list(queries())
    for query in every[: dose(8, len(every))]:
        mine, theirs = (
            sorted(map(repr, spark.sql(query.replace("TABLE", name)).collect()))
            for name in ("nyala.default.pushes", "by_spark")
        )
        assert mine == theirs, query


def test_no_condition_that_the_store_would_round_chooses_what_is_replaced(spark: SparkSession, db: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("h", pa.float16())])
    table = db.create_table("rounded", schema, ["id"])
    table.insert([{"id": 1, "h": 1.0}, {"id": 2, "h": 2048.0}])
    rows = spark.createDataFrame([(3, 3.0)], "id long, h float")
    with pytest.raises(PySparkException, match="the store finds the rows to replace, and cannot evaluate"):
        rows.writeTo("nyala.default.rounded").overwrite(f.col("h") < f.lit(2049).cast("float"))
    assert table.count() == 2
    rows.writeTo("nyala.default.rounded").overwrite(f.col("h") <= f.lit(2048).cast("float"))
    assert [row["id"] for row in table.scan().to_arrow().to_pylist()] == [3]
