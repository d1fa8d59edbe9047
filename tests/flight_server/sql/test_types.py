"""Every type of a column over Flight SQL: read, bound as a parameter and ingested, with NULL and extreme values."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from adbc_driver_flightsql.dbapi import Cursor

import nyala
from nyala.schemas import compute as pc
from nyala.schemas.cells.types import LogicalType, type_words
from tests.flight_server.sql.served_sql import SqlServer

_INT64 = 1 << 63
_FLOAT, _DOUBLE = 3.4028234663852886e38, 1.7976931348623157e308


def _moments(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("us"))


def _digits(precision: int, scale: int) -> pa.Array:
    most = decimal.Decimal("9" * precision).scaleb(-scale, decimal.Context(prec=38))
    one = decimal.Decimal(1).scaleb(-scale)
    return pa.array([one, most, most.copy_negate(), None], pa.decimal128(precision, scale))


def _integers(bits: int) -> pa.Array:
    most = 1 << (bits - 1)
    return pa.array([7, most - 1, -most, None], getattr(pa, f"int{bits}")())


CELLS: dict[str, tuple[str, pa.Array]] = {
    "flag": ("bool", pa.array([True, False, True, None])),
    "i8": ("int8", _integers(8)),
    "i16": ("int16", _integers(16)),
    "i32": ("int32", _integers(32)),
    "i64": ("int64", _integers(64)),
    "day": ("date", pa.array([dt.date(2026, 1, 2), dt.date.max, dt.date.min, None])),
    "at": ("timestamp[us]", _moments(1_767_323_045_000_001, _INT64 - 1, -_INT64, None)),
    "real": ("float", pa.array([0.5, _FLOAT, -float("inf"), None], pa.float32())),
    "double": ("double", pa.array([0.1, -_DOUBLE, 5e-324, None])),
    "small": ("decimal(9,2)", _digits(9, 2)),
    "middle": ("decimal(18,3)", _digits(18, 3)),
    "large": ("decimal(38,10)", _digits(38, 10)),
    "whole": ("decimal(38,0)", _digits(38, 0)),
    "text": ("string", pa.array(["it's \u20ac \U0001f600", "", "a\x00b\n\\" + "x" * 65_000, None])),
    "name": ("varchar(5)", pa.array(["a\u00e9", "", "abcde", None])),
    "doc": ("json", pa.array(['{"a": "it\'s \u20ac"}', "[]", '"' + "x" * 65_000 + '"', None])),
    "data": ("binary", pa.array([b"\x00\xff'", b"", bytes(range(256)) * 256, None])),
    "u8": ("uint8", pa.array([7, 255, 0, None], pa.uint8())),
    "u16": ("uint16", pa.array([7, (1 << 16) - 1, 0, None], pa.uint16())),
    "u32": ("uint32", pa.array([7, (1 << 32) - 1, 0, None], pa.uint32())),
    "u64": ("uint64", pa.array([7, (1 << 64) - 1, 0, None], pa.uint64())),
}
"""For each column its type, and cells: one that Python has too, two of the extremes, and NULL."""
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False)]
    + [LogicalType.parse(word).field(name, True) for name, (word, _) in CELLS.items()]
)
ROWS = pa.table([pa.array(range(4)), *(cells for _, cells in CELLS.values())], schema=SCHEMA)
PLAIN = ROWS.replace_schema_metadata(None).cast(pa.schema([field.with_metadata(None) for field in SCHEMA]))
NAMES = ", ".join(SCHEMA.names)
MARKS = ", ".join("?" * len(SCHEMA.names))


@pytest.fixture(scope="module")
def cursor(served: SqlServer) -> Iterator[Cursor]:
    served.db.create_table("kinds", SCHEMA, "id").insert(ROWS)
    with served.connected() as connection, connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def copy(served: SqlServer, cursor: Cursor) -> Iterator[nyala.Table]:
    """An empty table with all columns, as a client of Flight sees it."""
    served.db.create_table("copy", SCHEMA, "id")
    with nyala.connect(served.url) as db:
        yield db.table("copy")
    served.db.drop_table("copy")


def _read(cursor: Cursor, text: str, values: Any = None) -> pa.Table:
    cursor.execute(text, values)
    return cursor.fetch_arrow_table()


def _is_same(given: pa.Table, expected: pa.Table = PLAIN) -> bool:
    """Whether two tables have the same cells, whatever else their schemas say."""
    assert given.schema.names == expected.schema.names and given.schema.types == expected.schema.types
    return given.combine_chunks().replace_schema_metadata(None).columns == expected.combine_chunks().columns


def _stored(table: nyala.Table) -> pa.Table:
    return table.scan(ordered=True).to_arrow()


OTHERS_OF_VALUES: dict[str, pa.Array] = {
    "float16": pa.array([0.5, None], pa.float16()),
    "time32[s]": pa.array([dt.time(1), None], pa.time32("s")),
    "time32[ms]": pa.array([dt.time(1), None], pa.time32("ms")),
    "time64[us]": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
    "time64[ns]": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("ns")),
    **{str(kind): pa.array([dt.timedelta(-1), None], kind) for kind in map(pa.duration, ("s", "ms", "us", "ns"))},
    "month_day_nano_interval": pa.array([pa.MonthDayNano([1, -2, 3]), None]),
    "list<T>": pa.array([["a", None], None]),
    "large_list<T>": pa.array([[1, None], []], pa.large_list(pa.int64())),
    "fixed_size_list<T>[n]": pa.array([[0.5, None], None], pa.list_(pa.float32(), 2)),
    "struct<name: T, ...>": pa.array([{"a": 1, "b": ["x"]}, None]),
    "map<K, V>": pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
}
"""Those that are compared with no parameter."""


def test_no_type_is_left_out() -> None:
    words = {word.partition("(")[0] for word, _ in CELLS.values()} | set(OTHERS_OF_VALUES)
    assert words == {word.partition("(")[0] for word in type_words()}


@pytest.mark.parametrize("word", OTHERS_OF_VALUES)
def test_types_that_have_no_parameters(served: SqlServer, cursor: Cursor, word: str) -> None:
    given = pa.table({"id": pa.array([1, 2], pa.int64()), "cell": OTHERS_OF_VALUES[word]})
    with nyala.connect(served.url) as db:
        stored = db.create_table("others", primary_key="id", data=given)
        try:
            found = _read(cursor, "SELECT id, cell FROM others ORDER BY id")
            assert found["cell"].combine_chunks().equals(given["cell"].combine_chunks())
            assert _read(cursor, "SELECT id FROM others WHERE cell IS NOT NULL ORDER BY id")["id"][0].as_py() == 1
            cursor.execute("INSERT INTO others SELECT id + 10, cell FROM others")
            cursor.execute("UPDATE others SET cell = NULL WHERE id = 1")
            expected = [None, *given["cell"].to_pylist()[1:], *given["cell"].to_pylist()]
            assert stored.scan(ordered=True).to_arrow()["cell"].to_pylist() == expected
        finally:
            db.drop_table("others")


def test_the_store_has_the_rows(served: SqlServer, cursor: Cursor) -> None:
    with nyala.connect(served.url) as db:
        assert _is_same(_stored(db.table("kinds")))


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM kinds", "SELECT * FROM kinds ORDER BY id", f"SELECT {NAMES} FROM kinds WHERE id IN (0, 1, 2, 3)"],
    ids=["by the store", "sorted", "filtered"],
)
def test_cells_arrive_as_they_are(cursor: Cursor, text: str) -> None:
    assert _is_same(_read(cursor, text).sort_by("id"))


def test_python_has_most_values(cursor: Cursor) -> None:
    expected = [tuple(row.values()) for row in (*PLAIN.slice(0, 1).to_pylist(), *PLAIN.slice(3, 1).to_pylist())]
    cursor.execute("SELECT * FROM kinds WHERE id IN (0, 3) ORDER BY id")
    assert cursor.fetchall() == expected
    cursor.execute("SELECT * FROM kinds WHERE id = 0")
    assert cursor.fetchone() == expected[0]


def test_frames(served: SqlServer, cursor: Cursor) -> None:
    with served.connected() as connection:
        frame = pd.read_sql("SELECT * FROM kinds WHERE id IN (0, 3) ORDER BY id", connection)
        assert frame.iloc[0].to_list() == list(PLAIN.slice(0, 1).to_pylist()[0].values())
        assert frame.iloc[1, 1:].isna().all()
        everything = pl.read_database("SELECT * FROM kinds ORDER BY id", connection)
    given = everything.to_arrow()
    assert _is_same(given.cast(pa.schema([field.with_nullable(True) for field in PLAIN.schema])))


@pytest.mark.parametrize("name", list(CELLS))
def test_cells_are_compared_with_parameters(cursor: Cursor, name: str) -> None:
    for row in range(3):
        value = PLAIN.select([name]).slice(row, 1).combine_chunks().to_batches()[0]
        found = _read(cursor, f"SELECT id FROM kinds WHERE {name} = ? ORDER BY id", value)["id"].to_pylist()
        cells = PLAIN[name].combine_chunks()
        assert found == [other for other in range(4) if cells[other] == cells[row]], row


@pytest.mark.parametrize("name", list(CELLS))
def test_cells_are_grouped(cursor: Cursor, name: str) -> None:
    chosen = f"SELECT {name}, count(*) AS n, count({name}) AS there FROM kinds GROUP BY {name}"
    expected = PLAIN.group_by(name).aggregate([([], "count_all"), (name, "count")]).num_rows
    groups = _read(cursor, chosen)
    assert groups.num_rows == expected and sum(groups["n"].to_pylist()) == 4
    assert sum(groups["there"].to_pylist()) == 3
    least = f"SELECT min({name}) AS least, max({name}) AS most FROM kinds"
    cells = PLAIN[name].combine_chunks()
    order = cells.take(pc.sort_indices(cells)).drop_null()
    for text in (least, f"{least} WHERE id + 0 < 9"):
        ends = _read(cursor, text)
        assert ends["least"][0] == order[0] and ends["most"][0] == order[-1], text


def test_rows_are_ingested(served: SqlServer, cursor: Cursor, copy: nyala.Table) -> None:
    assert cursor.adbc_ingest("copy", PLAIN, mode="append") == 4
    assert _is_same(_stored(copy))
    assert cursor.adbc_ingest("new", ROWS, mode="create") == 4
    try:
        with nyala.connect(served.url) as db:
            assert _is_same(db.table("new").scan(SCHEMA.names).to_arrow().sort_by("id"))
    finally:
        served.db.drop_table("new")


def test_parameters_are_inserted(cursor: Cursor, copy: nyala.Table) -> None:
    for first, count in ((0, 1), (1, 1), (2, 2)):  # one row is written by its values, several as a table
        rows = PLAIN.slice(first, count).combine_chunks().to_batches()[0]
        cursor.executemany(f"INSERT INTO copy ({NAMES}) VALUES ({MARKS})", rows)
        assert cursor.rowcount == count
    assert _is_same(_stored(copy))


def test_python_values_are_inserted(cursor: Cursor, copy: nyala.Table) -> None:
    rows = [tuple(row.values()) for row in (*PLAIN.slice(0, 1).to_pylist(), *PLAIN.slice(3, 1).to_pylist())]
    text = f"INSERT INTO copy ({NAMES}) VALUES ({MARKS})"
    cursor.execute(text, rows[0])
    cursor.executemany(text, [rows[1]])
    assert _is_same(_stored(copy), pa.concat_tables([PLAIN.slice(0, 1), PLAIN.slice(3, 1)]))


@pytest.mark.parametrize("name", list(CELLS))
def test_parameters_are_assigned(cursor: Cursor, copy: nyala.Table, name: str) -> None:
    cells = PLAIN[name].combine_chunks()
    cursor.execute("INSERT INTO copy (id) VALUES (1)")
    for row in range(1, 4):
        value = pa.record_batch([cells.slice(row, 1)], [name])
        cursor.execute(f"UPDATE copy SET {name} = ? WHERE id = 1", value)
        assert cursor.rowcount == 1
        assert _stored(copy)[name].combine_chunks() == cells.slice(row, 1), row
    cursor.execute(f"INSERT INTO copy (id, {name}) VALUES (?, ?)", [2, None])
    assert not _stored(copy)[name][1].is_valid


@pytest.mark.parametrize("name", list(CELLS))
def test_parameters_choose_the_rows_of_changes(cursor: Cursor, copy: nyala.Table, name: str) -> None:
    copy.insert(ROWS)
    value = pa.record_batch([PLAIN[name].combine_chunks().slice(1, 1)], [name])
    cursor.execute(f"UPDATE copy SET {name} = {name} WHERE {name} = ?", value)
    assert cursor.rowcount == 1
    cursor.execute(f"DELETE FROM copy WHERE {name} = ? AND id IN (SELECT id FROM kinds)", value)
    assert cursor.rowcount == 1 and copy.get(1) is None


OTHERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.uint8()),
        "u16": pa.array([0, 65_535, None], pa.uint16()),
        "u32": pa.array([0, (1 << 32) - 1, None], pa.uint32()),
        "u64": pa.array([0, (1 << 64) - 1, None], pa.uint64()),
        "half": pa.array([0.5, -2.0, None], pa.float16()),
        "large": pa.array(["a", "", None], pa.large_string()),
        "view": pa.array(["a", "b" * 40, None], pa.string_view()),
        "bytes": pa.array([b"a", b"", None], pa.large_binary()),
        "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "words": pa.array(["a", "b", None]).dictionary_encode(),
        "d32": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal32(7, 2)),
        "d64": pa.array([decimal.Decimal("-1.25"), None, None], pa.decimal64(15, 2)),
        "d256": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal256(38, 2)),
        "s": pa.array([0, -1, None], pa.timestamp("s")),
        "ms": pa.array([0, -1, None], pa.timestamp("ms", "Europe/Oslo")),
        "ns": pa.array([0, -1000, None], pa.timestamp("ns", "UTC")),
        "date64": pa.array([0, 86_400_000, None], pa.date64()),
    }
)
"""Types of Arrow that a column cannot have, but whose values it takes."""


def test_other_types_of_arrow(served: SqlServer, cursor: Cursor) -> None:
    with nyala.connect(served.url) as db:
        expected = _stored(db.create_table("native", primary_key="id", data=OTHERS, schema=OTHERS.schema))
        cursor.adbc_statement.set_options(**{"adbc.flight.sql.rpc.call_header.x-nyala-primary-key": "id"})
        assert cursor.adbc_ingest("new", OTHERS, mode="create") == 3
        assert _is_same(_stored(db.table("new")), expected)
        db.table("new").delete({"id": [1, 2, 3]})
        marks = ", ".join("?" * OTHERS.num_columns)
        for first, count in ((0, 1), (1, 2)):
            cursor.executemany(f"INSERT INTO new VALUES ({marks})", OTHERS.slice(first, count).combine_chunks())
        assert _is_same(_stored(db.table("new")), expected)
    for name in ("native", "new"):
        served.db.drop_table(name)


def test_values_of_durations_and_of_large_integers(served: SqlServer) -> None:
    kinds = pa.schema([("id", pa.int64()), ("d", pa.duration("s")), ("u", pa.uint64()), ("t", pa.time64("us"))])
    table = served.db.create_table("spans", kinds, "id")
    try:
        served.db.sql("INSERT INTO spans VALUES (1, INTERVAL '1 day 5 seconds', 1, TIME '10:00:00')")
        served.db.sql("INSERT INTO spans VALUES (2, ?, ?, ?)", [dt.timedelta(hours=1), (1 << 64) - 1, dt.time(1, 2)])
        served.db.sql("UPDATE spans SET d = ? WHERE u = ?", [dt.timedelta(seconds=7), (1 << 64) - 1])
        assert table.scan(ordered=True).to_arrow().to_pylist() == [
            {"id": 1, "d": dt.timedelta(days=1, seconds=5), "u": 1, "t": dt.time(10)},
            {"id": 2, "d": dt.timedelta(seconds=7), "u": (1 << 64) - 1, "t": dt.time(1, 2)},
        ]
        with pytest.raises(nyala.InvalidArgumentError, match="does not fit"):
            served.db.sql("INSERT INTO spans (id, d) VALUES (3, INTERVAL '1 month')")
        table.update_where({"t": "'05:00:00'"}, where="id = 1")
        assert served.db.sql("SELECT id FROM spans WHERE t = '05:00:00'").to_arrow()["id"].to_pylist() == [1]
        assert served.db.sql("SELECT id FROM spans WHERE d > INTERVAL '1 hour'").to_arrow()["id"].to_pylist() == [1]
    finally:
        served.db.drop_table("spans")
