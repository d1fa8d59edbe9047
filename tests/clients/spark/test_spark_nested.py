"""Drawn nested columns, and long cells, by every way into Spark and out of it: no cell changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import SparkExecutor
from nyala.spark import write_table
from tests.campaigns.nested.campaign import same_cells
from tests.campaigns.nested.ways import leaves, rows_of
from tests.clients.test_long_cells import JSON, MOST, SCHEMA, USUAL, row
from tests.dose import dose
from tests.engine.vectors.nested_values import nested_types, values

pytestmark = pytest.mark.spark

ROWS, COLUMNS = 6, dose(25, 250)
NOT_OF_SPARK = (pa.duration("ns"),)
"""Spark counts spans in microseconds; `test_spark_types` has those that it refuses."""


CLOCK = """
    SELECT 1L AS id, timestamp_ntz'2026-01-01 12:00:00' AS at, array(timestamp_ntz'2026-01-01 12:00:00', NULL) AS many,
        named_struct('at', timestamp_ntz'2026-01-01 12:00:00', 'n', 1L) AS part,
        map('x', array(timestamp_ntz'2026-01-01 12:00:00')) AS named
    UNION ALL SELECT 2L, NULL, NULL, NULL, NULL
"""
ASKED = (
    "id long, at timestamp_ntz, many array<timestamp_ntz>, part struct<at: timestamp_ntz, n: bigint>, "
    "named map<string, array<timestamp_ntz>>"
)


@st.composite
def _columns(draw: st.DrawFn) -> pa.Array:
    """Draw a nested column. Spark's maps have each key once."""
    kind = draw(nested_types().filter(lambda kind: not set(leaves(kind)) & set(NOT_OF_SPARK)))
    return pa.array([_with_single_keys(draw(values(kind)), kind) for _ in range(ROWS)], kind)


def _with_single_keys(cell: Any, kind: pa.DataType) -> Any:
    if cell is None or not pa.types.is_nested(kind):
        return cell
    if pa.types.is_struct(kind):
        return {field.name: _with_single_keys(cell[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _with_single_keys(item, kind.item_type)) for key, item in dict(cell).items()]
    return [_with_single_keys(item, kind.value_type) for item in cell]


def drawn_rows(number: int) -> pa.Table:
    """Return a table with many drawn columns."""
    columns: list[pa.Array] = []

    @seed(number)
    @settings(
        max_examples=COLUMNS,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(column=_columns())
    def draw(column: pa.Array) -> None:
        columns.append(column)

    draw()
    fields = [pa.field("id", pa.int64(), False), *(pa.field(f"c{n}", each.type) for n, each in enumerate(columns))]
    return pa.table([pa.array(range(ROWS)), *columns], pa.schema(fields))


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return drawn_rows(dose(3, 4))


Make = Callable[[str], Table]


@pytest.fixture
def make(db: Database, rows: pa.Table) -> Make:
    return lambda name: db.create_table(name, rows.schema, ["id"], [nyala.hash("id", buckets=2)])


@pytest.fixture
def there(make: Make, rows: pa.Table) -> Table:
    table = make("there")
    table.insert(rows)
    return table


def by_id(table: Table) -> pa.Table:
    return table.scan(order_by="id").to_arrow()


def test_both_sources_read_and_write_drawn_cells(
    there: Table,
    make: Make,
    rows: pa.Table,
    load: Callable[..., DataFrame],
    plain: Callable[..., DataFrame],
    uri: str,
    spark: SparkSession,
    shim: Path | None,
) -> None:
    for number, frame in enumerate((load("there"), plain("there"))):
        by_python = make(f"by_python{number}")
        frame.write.format("nyala_plain").option("uri", uri).mode("append").save(by_python.name)
        same_cells("the source in Python", by_id(by_python), rows)
        by_api = make(f"by_api{number}")
        write_table(frame, by_api.name, uri)
        same_cells("write_table", by_id(by_api), rows)
        if shim:
            by_java = make(f"by_java{number}")
            frame.writeTo(f"nyala.default.{by_java.name}").append()
            same_cells("the source in Java", by_id(by_java), rows)


def test_times_of_a_clock_inside_of_cells_come_and_go(
    db: Database, spark: SparkSession, plain: object, uri: str, shim: Path | None
) -> None:
    """As in columns of their own: a moment in the table, what a clock of the session shows in Spark."""
    at, n = pa.timestamp("us"), pa.int64()
    kinds = [("at", at), ("many", pa.list_(at)), ("part", pa.struct([("at", at), ("n", n)]))]
    kinds.append(("named", pa.map_(pa.string(), pa.list_(at))))
    ways = ["nyala", "nyala_plain", *(["catalog"] if shim else [])]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        frame = spark.sql(CLOCK)
        for way in ways:
            db.create_table(way, pa.schema([("id", n), *kinds]), ["id"])
            if way == "catalog":
                frame.writeTo(f"nyala.default.{way}").append()
            else:
                frame.write.format(way).option("uri", uri).mode("append").save(way)
            moment = dt.datetime(2026, 1, 1, 6, 15)
            assert db.table(way).get(1) == {
                "id": 1,
                "at": moment,
                "many": [moment, None],
                "part": {"at": moment, "n": 1},
                "named": [("x", [moment])],
            }, way
            for form in ("nyala", "nyala_plain"):
                back = spark.read.format(form).schema(ASKED).option("uri", uri).load(way)
                assert back.orderBy("id").collect() == frame.orderBy("id").collect(), (way, form)
                moments = spark.read.format(form).option("uri", uri).load(way).where("many[0] = at AND part.at = at")
                assert moments.selectExpr("cast(named['x'][0] as string)").collect()[0][0] == "2026-01-01 12:00:00"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("form", ["nyala", pytest.param("nyala_plain", marks=pytest.mark.night)])
def test_streams_carry_drawn_cells(
    there: Table, make: Make, rows: pa.Table, plain: object, uri: str, spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """First the rows that are there, then those that change."""
    copy = make("copy")
    for _ in range(2):
        feed = spark.readStream.format(form).options(uri=uri, readChangeFeed="true").load("there")
        sink = feed.drop("_timestamp").writeStream.format(form).options(uri=uri, operationColumn="_op")
        sink = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        sink.start("copy").awaitTermination(240)
        same_cells("a stream", by_id(copy), by_id(there))
        others = rows.take(pa.array([*range(1, ROWS), 0])).set_column(0, rows.schema.field("id"), rows["id"])
        there.upsert(others.slice(0, ROWS - 1))


def test_tasks_build_files_of_drawn_cells_and_read_them(spark: SparkSession, rows: pa.Table, tmp_path: Path) -> None:
    kinds = [field.name for field in rows.schema if not any(map(_is_not_of_parquet, leaves(field.type)))]
    rows, executor = rows.select(kinds), SparkExecutor(spark)
    pq.write_table(rows, tmp_path / "rows.parquet")
    with nyala.open(tmp_path / "store", maintenance="off") as db:
        table = db.create_table("t", rows.schema, "id", [nyala.hash("id", buckets=2)])
        table.bulk_import(tmp_path / "rows.parquet", directory=tmp_path / "store", executor=executor)
        same_cells("an import", rows_of(table), rows)
        table.upsert(rows.slice(1, 2))
        with table.direct_scan(directory=tmp_path / "store") as scan:
            same_cells("a direct read", scan.to_arrow(executor).sort_by("id").cast(table.schema), rows)
        table.bulk_compact(directory=tmp_path / "store", executor=executor)
        same_cells("a merge outside", rows_of(table), rows)


def _is_not_of_parquet(kind: pa.DataType) -> bool:
    return pa.types.is_duration(kind)


def long_table(db: Database, name: str) -> Table:
    return db.create_table(name, SCHEMA, "k", column_options=JSON, cell_bytes_max=MOST)


def test_long_cells_come_and_go(
    db: Database,
    load: Callable[..., DataFrame],
    plain: Callable[..., DataFrame],
    uri: str,
    spark: SparkSession,
    tmp_path: Path,
    shim: Path | None,
) -> None:
    rows = pa.Table.from_pylist([row(1, MOST), row(2, 3 * USUAL), row(3, 10), row(4, MOST - 1)], SCHEMA)
    long_table(db, "long").insert(rows)
    copies = [long_table(db, f"copy{number}") for number in range(4)]
    plain("long").write.format("nyala_plain").option("uri", uri).mode("append").save(copies[0].name)
    write_table(load("long"), copies[1].name, uri)
    if shim:
        load("long").writeTo(f"nyala.default.{copies[2].name}").append()
    feed = spark.readStream.format("nyala").options(uri=uri, readChangeFeed="true").load("long")
    sink = feed.drop("_timestamp").writeStream.format("nyala").options(uri=uri, operationColumn="_op")
    sink = sink.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True)
    sink.start(copies[3].name).awaitTermination(240)
    for copy in copies:
        if shim or copy is not copies[2]:
            assert rows_of(copy).to_pylist() == rows.to_pylist(), copy.name
    pq.write_table(rows, tmp_path / "rows.parquet")
    with nyala.open(tmp_path / "store", maintenance="off") as other:
        table, executor = long_table(other, "t"), SparkExecutor(spark)
        table.bulk_import(tmp_path / "rows.parquet", directory=tmp_path / "store", executor=executor)
        with table.direct_scan(directory=tmp_path / "store") as scan:
            assert scan.to_arrow(executor).sort_by("k").to_pylist() == rows_of(table).to_pylist() == rows.to_pylist()


UNSIGNED = {
    "flat": (pa.uint64(), [0, (1 << 64) - 1]),
    "listed": (pa.list_(pa.uint64()), [[(1 << 64) - 1, None], []]),
    "inside": (pa.struct([("u", pa.uint64()), ("v", pa.list_(pa.uint64(), 1))]), [{"u": (1 << 63), "v": [7]}, None]),
    "mapped": (pa.map_(pa.string(), pa.large_list(pa.uint64())), [[("k", [(1 << 64) - 1])], [("l", None)]]),
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_the_largest_unsigned_integers_pass_statements(
    db: Database, spark: SparkSession, needs_shim: None, load: Callable[..., DataFrame], name: str
) -> None:
    """Spark has decimals in their place, which the part in Java sends."""
    kind, cells = UNSIGNED[name]
    rows = pa.table({"k": [1, 2], "v": pa.array(cells, kind)})
    for each in ("there", "back"):
        db.create_table(each, pa.schema([pa.field("k", pa.int64(), False), ("v", kind)]), "k")
    db.table("there").insert(rows)
    load("there").writeTo("nyala.default.back").append()
    same_cells("the source in Java", rows_of(db.table("back")), rows.cast(db.table("back").schema))
