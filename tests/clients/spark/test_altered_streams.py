"""Streams of a table that is altered meanwhile: the source stops before it leaves out a cell, and the sink follows.
By calling what Spark calls: no Java needed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_read import StreamReader
from nyala.clients.spark.stream_write import StagedPartsOfBatch
from nyala.clients.spark.types import arrow_schema
from nyala.schemas.errors import ConflictError, InvalidArgumentError

ALL = ReadAllAvailable()
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("n", pa.int32(), False), ("v", pa.string()), ("w", pa.string())]
)
Source = Callable[..., NyalaDataSource]
Alter = Callable[[Table], object]


@pytest.fixture
def homes(db: Database) -> Table:
    table = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert({"id": [1], "n": [1], "v": ["a"], "w": ["a"]})
    return table


@pytest.fixture
def stream(source: Source) -> Callable[..., StreamReader]:
    def make(**options: object) -> StreamReader:
        found = source(readChangeFeed=True, **options)
        return found.streamReader(found.schema())

    return make


STOPS: dict[str, Alter] = {
    "price is new": lambda table: table.alter().add_column("price", "double").apply(),
    "v is gone": lambda table: table.alter().drop_column("v").apply(),
    "u is new, v is gone": lambda table: table.alter().rename_column("v", "u").apply(),
    "n is bigint, not int": lambda table: table.alter().widen_column("n", "int64").apply(),
    "n may be NULL": lambda table: table.alter().drop_not_null("n").apply(),
}


@pytest.mark.parametrize("why", STOPS)
@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(1)], ids=["all", "limited"])
def test_a_query_stops_before_changes_that_it_cannot_show(
    homes: Table, stream: Callable[..., StreamReader], why: str, limit: ReadAllAvailable | ReadMaxRows
) -> None:
    reader = stream()
    at = reader.latestOffset(reader.initialOffset(), ALL)
    STOPS[why](homes)
    assert reader.latestOffset(at, limit) == at, "as long as nothing changes it goes on"
    last = homes.delete({"id": [1]}).timestamp
    with pytest.raises(ConflictError, match=f"table 'homes' have changed since the query began: {why}; load the str"):
        reader.latestOffset(at, limit)
    again = stream()
    end = again.latestOffset(at, limit)
    assert end == {"timestamp": last}
    found = [batch for part in again.partitions(at, end) for batch in again.read(part)]
    assert sum(batch.num_rows for batch in found) == 1
    assert all(batch.schema.names == ["_op", "_timestamp", *homes.schema.names] for batch in found)


def test_a_query_that_has_not_begun_stops_too(homes: Table, stream: Callable[..., StreamReader]) -> None:
    reader = stream()
    homes.alter().add_column("price", "double").apply()
    with pytest.raises(ConflictError, match="price is new"):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_columns_that_a_query_did_not_ask_for_may_change(homes: Table, stream: Callable[..., StreamReader]) -> None:
    reader = stream(columns="id,v")
    at = reader.latestOffset(reader.initialOffset(), ALL)
    homes.alter().add_column("price", "double").drop_column("w").apply()
    homes.delete({"id": [1]})
    end = reader.latestOffset(at, ALL)
    assert end != at
    homes.alter().drop_column("v").apply()
    homes.insert({"id": [2], "n": [1]})
    with pytest.raises(ConflictError, match="have changed since the query began: the table has no column 'v'"):
        reader.latestOffset(end, ALL)


ROWS = spark.StructType(
    [
        spark.StructField("_op", spark.StringType()),
        spark.StructField("ID", spark.LongType()),
        spark.StructField("n", spark.LongType()),
        spark.StructField("v", spark.StringType()),
        spark.StructField("price", spark.DecimalType(10, 2), metadata={"comment": "in euros"}),
        spark.StructField("at", spark.TimestampType()),
    ]
)


def send(source: NyalaDataSource, number: int, cells: list[tuple[object, ...]]) -> None:
    """Send a micro-batch as Spark does."""
    wanted = arrow_schema(ROWS)
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*cells, strict=True), wanted, strict=True)
    ]
    staged = source.streamWriter(ROWS, False).write(iter([pa.record_batch(columns, schema=wanted)]))
    message = StagedPartsOfBatch(staged.transaction, staged.parts, staged.rows, "query")
    source.streamWriter(ROWS, False).commit([message], number)


def test_a_sink_gets_the_columns_of_its_rows(homes: Table, db: Database, source: Source) -> None:
    homes.alter().drop_column("w").apply()
    before = homes.describe()["schema_version"]
    sink = source(operationColumn="_op", mergeSchema=True)
    send(sink, 0, [("insert", 2, 1 << 40, "b", 1, 0), ("upsert", 1, 7, "c", None, None)])
    send(sink, 1, [("delete", 1, None, None, None, None)])
    found = db.table("homes").describe()
    assert [(column["name"], column["type"], column["nullable"]) for column in found["columns"]][1:] == [
        ("n", "int64", False), ("v", "string", True), ("price", "decimal(10,2)", True), ("at", "timestamp[us]", True)
    ]  # fmt: skip
    assert found["columns"][-2]["comment"] == "in euros" and found["schema_version"] == before + 1, "one change"
    rows = db.table("homes").scan().to_arrow().to_pylist()
    assert [(row["id"], row["n"], float(row["price"])) for row in rows] == [(2, 1 << 40, 1.0)]


MOMENTS = spark.ArrayType(spark.TimestampType())
NESTED = {
    "seen": (MOMENTS, "list<timestamp[us]>"),
    "by": (spark.MapType(spark.StringType(), MOMENTS), "map<string, list<timestamp[us]>>"),
    "who": (
        spark.StructType([spark.StructField("at", spark.TimestampType()), spark.StructField("on", spark.TimeType(6))]),
        "struct<at: timestamp[us], on: time64[us]>",
    ),
    "opens": (spark.TimeType(6), "time64[us]"),
    "took": (spark.ArrayType(spark.DayTimeIntervalType()), "list<duration[us]>"),
}


def test_a_sink_gets_nested_columns_as_create_table_makes_them(db: Database, source: Source) -> None:
    """Moments inside of cells have a zone on their way from Spark, and times have nanoseconds."""
    db.create_table("homes", pa.schema([pa.field("id", pa.int64(), False)]), ["id"])
    fields = [spark.StructField("id", spark.LongType(), False)]
    rows = spark.StructType([*fields, *(spark.StructField(name, kind) for name, (kind, _) in NESTED.items())])
    noon, times = dt.datetime(2026, 3, 8, 12, 0, 0, 1), [dt.time(9, 30), dt.timedelta(microseconds=-1)]
    who = {"at": noon, "on": times[0]}
    cells = [
        [1, 2],
        [[noon, None], None],
        [[("a", [noon]), ("b", None)], []],
        [who, None],
        times[:1] * 2,
        [times[1:]] * 2,
    ]
    wanted = arrow_schema(rows)
    given = [[each.replace(tzinfo=dt.UTC) if each else each for each in cell] if cell else cell for cell in cells[1]]
    batch = pa.record_batch(
        [pa.array(each, field.type) for each, field in zip(cells, wanted, strict=True)], schema=wanted
    )
    assert batch.column("seen").to_pylist() == given
    for number in range(2):
        sink = source(mergeSchema=True).streamWriter(rows, False)
        staged = sink.write(iter([batch]))
        sink.commit([StagedPartsOfBatch(staged.transaction, staged.parts, staged.rows, "query")], number)
    table = db.table("homes")
    described = table.describe()
    assert {each["name"]: each["type"] for each in described["columns"][1:]} == {
        name: word for name, (_, word) in NESTED.items()
    }
    assert described["schema_version"] == 2, "the second one finds all columns there"
    columns = table.scan(ordered=True).to_arrow().to_pydict()
    assert list(columns.values()) == cells


def test_a_sink_leaves_the_table_as_it_is_unless_told(homes: Table, source: Source) -> None:
    before = homes.describe()
    with pytest.raises(InvalidArgumentError, match="no column 'price'"):
        source(operationColumn="_op").streamWriter(ROWS, False)
    assert homes.describe() == before


def test_a_varchar_stays_one(db: Database, source: Source) -> None:
    options = {"v": nyala.ColumnOptions(type="varchar(4)")}
    table = db.create_table(
        "homes", pa.schema([("id", pa.int64()), ("v", pa.string())]), ["id"], column_options=options
    )
    rows = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("v", spark.StringType())])
    source(mergeSchema=True).streamWriter(rows, False)
    assert table.describe()["columns"][1]["type"] == "varchar(4)"


def test_two_sinks_may_find_the_same_column_missing(
    homes: Table, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one describes the table, and then the first one alters it."""
    from nyala.clients.flight.store import FlightStore

    describe, others = FlightStore.describe_table, [source(operationColumn="_op", mergeSchema=True)]

    def described(store: FlightStore, table: str) -> object:
        found = describe(store, table)
        if others:
            others.pop().streamWriter(ROWS, False)
        return found

    monkeypatch.setattr(FlightStore, "describe_table", described)
    source(operationColumn="_op", mergeSchema=True).streamWriter(ROWS, False)
    assert not others and [column["name"] for column in homes.describe()["columns"]][-2:] == ["price", "at"]
