"""Exported tables in the hands of others: every type read by Spark, DuckDB and pyarrow, and loaded again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import export, load
from nyala.schemas.cells.types import LogicalType, type_words
from nyala.spark import write_table
from tests.dose import by_night

pytestmark = pytest.mark.spark

MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2026, 3, 8, 2, 30),  # in New York no clock shows it
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
CELLS: dict[str, list[Any]] = {
    "bool": [True, False],
    "int8": [-128, 127],
    "int16": [-32768, 32767],
    "int32": [-(1 << 31), (1 << 31) - 1],
    "int64": [-(1 << 63), (1 << 63) - 1],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)],
    "timestamp[us]": MOMENTS,
    "float": [1.5, float("-inf")],
    "double": [-0.0, 5e-324],
    "string": ["", "\u00e9\U0001f98c\0x"],
    "binary": [b"", b"\x00\xff"],
    "decimal(9,2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "decimal(18,4)": [Decimal("-99999999999999.9999"), Decimal("0.0001")],
    "decimal(38,10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("-1E-10")],
    "json": ['{"a": 1}', "[]"],
    "varchar(5)": ["abcde", "\U0001f98c" * 5],
}
"""Of each type."""
ROWS = max(map(len, CELLS.values())) + 1


@pytest.fixture
def there(db: Database) -> Table:
    """A table with two columns of each type: with NULLs, and NOT NULL."""
    table = make(db, "there")
    columns: dict[str, Any] = {"id": range(ROWS)}
    for (name, kind), cells in zip(columns_of().items(), CELLS.values(), strict=True):
        full = (cells * ROWS)[: ROWS - 1]
        columns |= {name: pa.array([*full, None], kind.arrow), "n_" + name: pa.array([*full, cells[0]], kind.arrow)}
    table.insert(columns)
    return table


def columns_of() -> dict[str, LogicalType]:
    return {f"c{number}": LogicalType.parse(word) for number, word in enumerate(CELLS)}


def make(db: Database, name: str) -> Table:
    fields = [pa.field("id", pa.int64(), False)]
    for column, kind in columns_of().items():
        fields += [kind.field(column, True), kind.field("n_" + column, False)]
    return db.create_table(name, pa.schema(fields), ["id"], [nyala.hash("id", buckets=2)])


def as_stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return what another reader got, ordered and in the types of the store: moments must have a zone."""
    for field in schema:
        if pa.types.is_timestamp(field.type):
            assert table.schema.field(field.name).type.tz, field
    table = table.select(schema.names).sort_by("id")
    return table.cast(pa.schema([field.remove_metadata() for field in schema])).combine_chunks()


def first_word(kind: str) -> str:
    return kind.partition("(")[0].partition("<")[0]


def test_every_type_is_exported() -> None:
    assert {first_word(kind) for kind in (*CELLS, *OTHERS)} == {first_word(kind) for kind in type_words()}


OTHERS: dict[str, Any] = {
    "uint8": 255, "uint16": 65_535, "uint32": (1 << 32) - 1, "uint64": (1 << 64) - 1, "float16": 0.5,
    **dict.fromkeys(("time32[s]", "time32[ms]", "time64[us]", "time64[ns]"), dt.time(23, 59, 59)),
    **dict.fromkeys(("duration[s]", "duration[ms]", "duration[us]", "duration[ns]"), dt.timedelta(days=-1)),
    "month_day_nano_interval": pa.MonthDayNano([1, -2, 3]), "list<string>": ["a", None], "large_list<int8>": [],
    "fixed_size_list<float>[2]": [0.5, None], "struct<a: int64, at: timestamp[us]>": {"a": 1, "at": MOMENTS[0]},
    "map<string, list<int64>>": [("k", [1, None])],
}  # fmt: skip
"""Cells of types that not all readers have."""


def test_an_export_of_other_types_is_loaded_again(db: Database, tmp_path: Path) -> None:
    fields = [pa.field("id", pa.int64(), False)]
    fields += [LogicalType.parse(word).field(f"c{number}", True) for number, word in enumerate(OTHERS)]
    table = db.create_table("others", pa.schema(fields), ["id"])
    cells = {f"c{number}": cell for number, cell in enumerate(OTHERS.values())}
    table.insert(pa.Table.from_pylist([{"id": 1, **cells}, {"id": 2}], pa.schema(fields)))
    export(db, "others", tmp_path / "out")
    again = db.create_table("again", pa.schema(fields), ["id"])
    load(db, "again", tmp_path / "out")
    assert again.scan(ordered=True).to_arrow().equals(table.scan(ordered=True).to_arrow())


@pytest.mark.parametrize("zone", by_night(["UTC", "America/New_York", "Asia/Kathmandu"], day=["America/New_York"]))
def test_an_export_is_read_by_others_and_loaded_again(
    db: Database,
    there: Table,
    uri: str,
    spark: SparkSession,
    plain: Callable[..., DataFrame],
    shim: Path | None,
    tmp_path: Path,
    zone: str,
) -> None:
    expected = there.scan(ordered=True).to_arrow()
    export(db, "there", tmp_path / "out")
    assert as_stored(ds.dataset(tmp_path / "out").to_table(), expected.schema).equals(expected)
    with duckdb.connect() as duck:
        duck.execute(f"SET TimeZone = '{zone}'")
        found = duck.sql(f"FROM read_parquet('{tmp_path}/out/*.parquet')").to_arrow_table()
        assert as_stored(found, expected.schema).equals(expected)

    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.parquet(str(tmp_path / "out"))
        micros = {name for name, kind in columns_of().items() if kind.name == "timestamp[us]"}
        shown = frame.orderBy("id").select(*(f.unix_micros(name).alias(name) for name in sorted(micros))).toArrow()
        for name in micros:
            assert shown[name].to_pylist() == expected[name].cast(pa.int64()).to_pylist()
        write_table(frame, make(db, "shim").name, uri)
        make(db, "python")
        frame.write.format("nyala_plain").option("uri", uri).mode("append").save("python")
        load(uri, make(db, "files").name, tmp_path / "out")
        if shim:
            make(db, "catalog")
            frame.createOrReplaceTempView("exported")
            spark.sql("INSERT INTO nyala.default.catalog SELECT * FROM exported")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for name in {"shim", "python", "files", "catalog"} & {*db.tables()}:
        assert db.table(name).scan(ordered=True).to_arrow().equals(expected), name
