"""Every type, with NULLs and extremes, in both directions and whatever the session's time zone is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.schemas.cells.moment import microseconds_of
from nyala.spark import write_table
from tests.dose import by_night

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
    "doc": (pa.json_(), ['{"a": [1, "\u00e9"]}', " null "]),
    "raw": (pa.binary(), [b"", b"\x00\xff"]),
    "short": (pa.string(), ["abcde", "fg"]),
    "u8": (pa.uint8(), [0, 255]),
    "u16": (pa.uint16(), [0, 65_535]),
    "u32": (pa.uint32(), [0, (1 << 32) - 1]),
    "u64": (pa.uint64(), [0, (1 << 64) - 1]),
    "f16": (pa.float16(), [0.5, -65504.0]),
    "second": (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
    "clock": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    "span": (pa.duration("ms"), [dt.timedelta(days=-3), dt.timedelta(milliseconds=1)]),
    "took": (pa.duration("us"), [dt.timedelta(microseconds=-1), dt.timedelta(days=100_000)]),
    "tags": (pa.list_(pa.string()), [[], ["a", None, "\u00e9"]]),
    "many": (pa.large_list(pa.uint8()), [[0, 255, None], []]),
    "pair": (pa.list_(pa.float64(), 2), [[0.5, None], [1.0, 2.0]]),
    "who": (
        pa.struct([("name", pa.string()), ("seen", pa.timestamp("us")), ("on", pa.list_(pa.date32()))]),
        [{"name": None, "seen": None, "on": None}, {"name": "x", "seen": dt.datetime(2026, 3, 8, 2, 30), "on": []}],
    ),
    "labels": (pa.map_(pa.string(), pa.list_(pa.int64())), [[], [("k", None), ("l", [1, None])]]),
}
ZONES = by_night(["UTC", "America/New_York", "Asia/Kathmandu"], day=["America/New_York"])


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


CLOCK = [
    *(dt.datetime(2026, 3, 8, hour, 30) for hour in range(1, 5)),  # in New York there is no 2:30
    *(dt.datetime(2026, 11, 1, hour, 30) for hour in range(3)),  # and 1:30 comes twice
    dt.datetime(1, 1, 3),
    dt.datetime(1883, 11, 18, 12, 2),
    dt.datetime(1986, 1, 1, 0, 10),  # skipped in Kathmandu
    dt.datetime(2055, 7, 1, 12),
    None,
]


def test_a_time_of_a_clock_is_one_moment_by_every_way(
    db: Database, spark: SparkSession, uri: str, plain: Callable[..., DataFrame], zone: str, tmp_path: Path, shim: Any
) -> None:
    """That which Spark makes of it by a cast: in a key, which places the row in a tablet, and in other columns."""
    fields = [("way", pa.string()), ("n", pa.int32()), ("key", pa.timestamp("us")), ("at", pa.timestamp("us"))]
    db.create_table("clock", pa.schema(fields), ["way", "n", "key"], [nyala.hash("key", buckets=3)])
    types = "n int, key timestamp_ntz, at timestamp_ntz, day date"
    rows = [(n, at or CLOCK[0], at, at and at.date()) for n, at in enumerate(CLOCK)]
    frame = spark.createDataFrame(rows, types).repartition(1)
    frame.createOrReplaceTempView("given")
    expected = frame.selectExpr("n", "unix_micros(cast(at as timestamp)) m", "unix_micros(cast(day as timestamp)) d")
    moments, days = ({row["n"]: row[name] for row in expected.collect()} for name in "md")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING nyala_plain OPTIONS (uri '{uri}', table 'clock')")
    written = f.lit("frame").alias("way"), "n", "key", "at"
    write_table(frame.select(*written), "clock", uri, repartition=True)
    frame.select(f.lit("plain").alias("way"), "n", "key", f.col("day").alias("at")).write.format("nyala_plain").option(
        "uri", uri
    ).mode("append").save("clock")
    spark.sql("INSERT INTO v SELECT 'view', n, key, at FROM given")
    if shim:
        spark.sql("INSERT INTO nyala.default.clock SELECT 'catalog', n, key, day FROM given")
    feed = spark.readStream.format("nyala").option("uri", uri).option("readChangeFeed", "true")
    feed = feed.schema("WAY string, n int, key timestamp_ntz, at timestamp_ntz").load("clock").where("way = 'frame'")
    db.create_table("copy", pa.schema(fields), ["way", "n", "key"])
    sink = feed.writeStream.format("nyala").option("uri", uri).option("checkpointLocation", str(tmp_path))
    sink.trigger(availableNow=True).start("copy").awaitTermination(240)

    found = [row for name in ("clock", "copy") for row in db.table(name).scan().to_arrow().to_pylist()]
    assert len(found) == len(CLOCK) * (5 if shim else 4)
    for row in found:
        is_day = row["way"] in ("plain", "catalog")
        at, key = (None if row[name] is None else microseconds_of(row[name]) for name in ("at", "key"))
        assert at == (days if is_day else moments)[row["n"]], (zone, row)
        assert key == moments[row["n"]] or CLOCK[row["n"]] is None, (zone, row)

    shown = f.expr("cast(cast(at as timestamp) as timestamp_ntz)").alias("at")
    back = frame.select("n", shown).toArrow()
    for read in ["nyala_plain", "nyala"]:
        asked = spark.read.format(read).schema("n int, way string, at timestamp_ntz").option("uri", uri).load("clock")
        ours = asked.where("way = 'frame'")
        assert sorted(ours.select("n", "at").toArrow().to_pylist(), key=str) == sorted(back.to_pylist(), key=str)
        noon = ours.where("at = TIMESTAMP_NTZ'2026-03-08 04:30:00'").agg(f.max("n"), f.max("at"), f.count("at"))
        assert noon.first()[:] == (3, CLOCK[3], 1)  # type: ignore[index]


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


SPANS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ns": (pa.duration("ns"), [1_001]),
    "s": (pa.duration("s"), [1 << 60]),
    "listed": (pa.list_(pa.duration("ns")), [[-1_999, 2_000]]),
    "inside": (pa.struct([("took", pa.duration("ns"))]), [{"took": 1}]),
}


def test_spans_that_spark_cannot_hold_are_refused_never_cut(
    db: Database, load: Callable[..., DataFrame], plain: Callable[..., DataFrame], uri: str
) -> None:
    """Spark counts them in microseconds. A row without such a span is read."""
    fields = [pa.field("id", pa.int64(), False), *(pa.field(name, kind) for name, (kind, _) in SPANS.items())]
    whole = {"ns": [-7_000], "s": [-1], "listed": [[2_000, None]], "inside": [{"took": None}]}
    table = db.create_table("spans", pa.schema(fields), ["id"])
    for key, cells in enumerate([{name: each for name, (_, each) in SPANS.items()}, whole]):
        table.insert(pa.table({"id": [key]} | {name: pa.array(cells[name], kind) for name, (kind, _) in SPANS.items()}))
    table.insert({"id": [2]})
    for frame in (load("spans"), plain("spans")):
        for name in SPANS:
            with pytest.raises(Exception, match="leave the column out with the option columns"):
                frame.select("id", name).toArrow()
    assert load("spans", columns=["id"]).count() == 3
    good = load("spans", filter="id > 0")
    back = db.create_table("back", pa.schema(fields), ["id"])
    write_table(good, "back", uri)
    assert back.scan(ordered=True).to_arrow().equals(table.scan(where="id > 0", ordered=True).to_arrow())


@pytest.mark.night
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
