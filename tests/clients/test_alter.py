"""Tables that are altered while they hold rows: embedded and over Flight, rows in memory, on disk and as deltas."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.cells.types import LogicalType

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("v", pa.int8()),
        pa.field("s", pa.string()),
        pa.field("must", pa.int16(), False),
    ]
)
PLACES = pytest.mark.parametrize(
    "ops", [(), ("flush",), ("flush", "compact"), ("flush", "major_compact")], ids=["memory", "disk", "merged", "major"]
)


@pytest.fixture
def table(db: Database) -> Table:
    made = db.create_table("t", SCHEMA, ["k"], column_options={"s": nyala.ColumnOptions(type="varchar(4)")})
    made.insert([{"k": key, "v": key, "s": f"s{key}", "must": 0} for key in (1, 2, 3)])
    return made


def rows(table: Table, **spec: Any) -> list[tuple]:
    found = table.scan(ordered=True, **spec).to_arrow()
    return list(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))


def settle(table: Table, ops: tuple[str, ...]) -> None:
    for op in ops:
        table.maintain("flush_deltas")
        table.maintain(op)


@PLACES
def test_rows_that_are_there_show_the_read_default_of_a_new_column(table: Table, ops: tuple[str, ...]) -> None:
    before = table.upsert({"k": [1], "v": [10], "must": [1]}).timestamp
    settle(table, ops[:1])
    said = (
        table.alter()
        .add_column("n", "int32")
        .add_column("text", "string", nullable=False, read_default="old", write_default="new")
        .add_column("cents", pa.decimal128(20, 2), read_default=Decimal("-1.50"))
        .add_column("day", "date", read_default=dt.date(2024, 2, 29))
        .apply()
    )
    assert said["schema_version"] == 2 and [column["id"] for column in said["columns"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert table.schema.names == ["k", "v", "s", "must", "n", "text", "cents", "day"]
    table.upsert({"k": [4], "must": [4]})
    table.update({"k": [2], "text": ["changed"], "n": [22]})
    settle(table, ops)
    old = (None, "old", Decimal("-1.50"), dt.date(2024, 2, 29))
    columns = ["k", "n", "text", "cents", "day"]
    assert rows(table, columns=columns) == [
        (1, *old),
        (2, 22, "changed", *old[2:]),
        (3, *old),
        (4, None, "new", None, None),
    ]
    assert rows(table, columns=columns, as_of=before) == [(1, *old), (2, *old), (3, *old)]
    assert rows(table, columns=["k"], where="text = 'old' and n is null") == [(1,), (3,)]
    assert rows(table, columns=["k"], where="cents < 0") == [(1,), (2,), (3,)]
    assert rows(table, columns=["k"], where="day is null or n = 22") == [(2,), (4,)]
    found = table.get(2)
    assert found is not None and (found["text"], found["n"], found["cents"]) == ("changed", 22, Decimal("-1.50"))


@PLACES
def test_a_column_that_is_dropped_does_not_come_back(table: Table, ops: tuple[str, ...]) -> None:
    settle(table, ops[:1])
    table.update({"k": [1], "s": ["new"]})
    start = table.update({"k": [1, 3], "s": ["x", "y"]}).timestamp
    table.alter().drop_column("s").apply()
    assert rows(table) == [(1, 1, 0), (2, 2, 0), (3, 3, 0)]
    settle(table, ops)
    table.alter().add_column("s", "string").apply()
    assert rows(table, columns=["k", "s"]) == [(1, None), (2, None), (3, None)]
    assert rows(table, columns=["k", "s"], as_of=start) == [(1, None), (2, None), (3, None)]
    assert {column["name"]: column["id"] for column in table.describe()["columns"]}["s"] == 5
    table.update({"k": [2], "s": ["own"]})
    settle(table, ops)
    assert rows(table, columns=["k"], where="s is not null") == [(2,)]


@PLACES
def test_columns_are_widened(table: Table, ops: tuple[str, ...]) -> None:
    table.alter().add_column("f", "float", read_default=0.1).add_column("d", "decimal(4,2)").apply()
    table.upsert([{"k": 5, "v": -128, "s": "abcd", "must": 5, "f": 1.5, "d": Decimal("-99.99")}])
    settle(table, ops[:1])
    before = table.update({"k": [1], "v": [127], "d": [Decimal("1.25")], "f": [2.5]}).timestamp
    past = rows(table, columns=["k", "v", "s", "f", "d"])
    for step in ("int16", "int64"):
        table.alter().widen_column("v", step).apply()
    table.alter().widen_column("f", "double").widen_column("d", "decimal(30,2)").widen_column("s", "string").apply()
    assert rows(table, columns=["k", "v", "s", "f", "d"]) == past
    wide = {"v": 1 << 40, "s": "long text", "f": 0.1, "d": Decimal("12345678901234567890.12")}
    table.upsert([{"k": 1, **wide, "must": 1}, {"k": 6, **wide, "must": 6}])
    settle(table, ops)
    columns = ["k", *wide]
    expected = {row[0]: dict(zip(columns[1:], (row[1], row[2], row[3], row[4]), strict=True)) for row in past}
    expected |= {1: wide, 6: wide}
    assert rows(table, columns=columns) == [(key, *cells.values()) for key, cells in sorted(expected.items())]
    assert rows(table, columns=columns, as_of=before) == past
    assert rows(table, columns=["k"], where="v > 1000 and d > 100") == [(1,), (6,)]
    assert rows(table, columns=["k"], where="v = -128 and d < 0") == [(5,)]
    changes = table.changes(before, columns=["v", "d"], before=True, ordered=True).to_arrow().to_pylist()
    assert [(row["_op"], row["_before_v"], row["v"]) for row in changes] == [
        ("update", 127, 1 << 40),
        ("insert", None, 1 << 40),
    ]


@pytest.mark.parametrize("narrow", ["decimal(9,2)", "decimal(18,2)"])
def test_a_column_widened_out_of_its_encoding_gets_the_default_of_its_type(db: Database, narrow: str) -> None:
    options = {"d": nyala.ColumnOptions(encoding="frame_of_reference")}
    schema = pa.schema([("k", pa.int64()), ("d", LogicalType.parse(narrow).arrow)])
    table = db.create_table("t", schema, ["k"], column_options=options)
    table.insert([{"k": 1, "d": Decimal("1.50")}])
    table.maintain("flush")
    said = table.alter().widen_column("d", "decimal(30,2)").apply()
    assert said["columns"][1]["encoding"] == table.describe()["columns"][1]["encoding"] == "bitshuffle"
    wide = Decimal("12345678901234567890.12")
    table.insert([{"k": 2, "d": wide}])
    settle(table, ("flush", "compact"))
    assert rows(table) == [(1, Decimal("1.50")), (2, wide)]
    with pytest.raises(nyala.InvalidArgumentError, match="cannot be encoded"):
        table.alter().set_encoding("d", "frame_of_reference").apply()


def test_names_of_columns_and_of_the_table_change(db: Database, table: Table) -> None:
    said = table.alter().rename_column("k", "key").rename_column("v", "value").rename("u").apply()
    assert (said["name"], said["primary_key"], table.name) == ("u", ["key"], "u")
    assert db.tables() == ["u"]
    table.upsert({"key": [1], "value": [9], "must": [0]})
    assert rows(table, columns=["key", "value"], where="key < 3") == [(1, 9), (2, 2)]
    table.maintain("flush")
    assert table.get({"key": 1}) == {"key": 1, "value": 9, "s": "s1", "must": 0}
    with pytest.raises(nyala.NotFoundError, match="no table 't'"):
        db.table("t")
    db.create_table("t", SCHEMA, ["k"])
    with pytest.raises(nyala.AlreadyPresentError, match="'t' already"):
        table.alter().rename("t").apply()


def test_defaults_encodings_comments_and_options_are_set(table: Table) -> None:
    said = (
        table.alter()
        .set_default("v", 7)
        .set_default("must", 1)
        .set_encoding("v", "rle")
        .set_compression("s", "zstd")
        .set_comment("s", "a text")
        .set_comment(None, "about the table")
        .set_option("history_max_age_seconds", 60)
        .drop_not_null("must")
        .apply()
    )
    by_name = {column["name"]: column for column in said["columns"]}
    assert (by_name["v"]["write_default"], by_name["v"]["encoding"]) == (7, "run_length")
    assert (by_name["s"]["compression"], by_name["s"]["comment"]) == ("zstd", "a text")
    assert said["options"] == {"history_max_age_seconds": 60, "maintenance": "on", "comment": "about the table"}
    table.insert({"k": [4]})
    table.upsert({"k": [5], "must": pa.array([None], pa.int16())})
    table.maintain("flush")
    assert rows(table, columns=["k", "v", "must"], where="k > 3") == [(4, 7, 1), (5, 7, None)]
    assert rows(table, columns=["k"], where="must is null") == [(5,)]
    encodings = {column["name"]: column["encodings"] for column in table.stats()["columns"]}
    assert encodings["v"] == ["run_length"]
    table.alter().set_default("v", None).apply()
    table.insert({"k": [6]})
    assert rows(table, columns=["v"], where="k = 6") == [(None,)]


def test_steps_are_one_change_that_sees_itself(table: Table) -> None:
    table.alter().add_column("a", "int8").rename_column("a", "b").widen_column("b", "int32").set_default(
        "b", 1000
    ).apply()
    table.insert({"k": [4], "must": [0]})
    assert rows(table, columns=["k", "b"], where="k >= 3") == [(3, None), (4, 1000)]
    table.alter().drop_column("b").add_column("b", "string").apply()
    assert rows(table, columns=["k", "b"], where="k >= 3") == [(3, None), (4, None)]
    assert table.describe()["schema_version"] == 3


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda a: a.add_column("v", "int8"), "column 'v' already exists"),
        (lambda a: a.add_column("_op", "int8"), "the change feed has columns of this name"),
        (lambda a: a.add_column("x", "int8", nullable=False), "give it a read_default"),
        (lambda a: a.add_column("x", "int8", read_default=128), "is not a valid int8"),
        (lambda a: a.add_column("x", "varchar(2)", read_default="abc"), "more than 2 characters"),
        (lambda a: a.add_column("x", "string", write_default="x" * 65537), "more than 65,536 bytes"),
        (lambda a: a.add_column("x", "int8", encoding="prefix"), "cannot be encoded"),
        (lambda a: a.add_column("x", "clock"), "unknown column type"),
        (lambda a: a.drop_column("k"), "part of the primary key: it cannot be dropped"),
        (lambda a: a.drop_column("x"), "no column 'x'"),
        (lambda a: a.rename_column("v", "s"), "column 's' already exists"),
        (lambda a: a.rename_column("x", "y"), "no column 'x'"),
        (lambda a: a.set_default("k", 1), "part of the primary key: it cannot have a default"),
        (lambda a: a.set_default("v", "text"), "is not a valid int8"),
        (lambda a: a.set_encoding("v", "dictionary"), "cannot be encoded"),
        (lambda a: a.set_compression("v", "brotli"), "unknown compression"),
        (lambda a: a.widen_column("v", "double"), "cannot become double"),
        (lambda a: a.widen_column("must", "int8"), "cannot become int8"),
        (lambda a: a.widen_column("k", "int64"), "primary key: it cannot change its type"),
        (lambda a: a.drop_not_null("k"), "may never be NULL"),
        (lambda a: a.set_option("history", 1), "unknown table option 'history'"),
        (lambda a: a.set_option("history_max_age_seconds", 0), "cannot be 0"),
        (lambda a: a.rename(""), "needs a name"),
        (lambda a: a, "at least one step"),
    ],
)
def test_what_cannot_be_changes_nothing(table: Table, wrong: Any, why: str) -> None:
    before = table.describe()
    with pytest.raises((nyala.InvalidArgumentError, nyala.NotFoundError), match=why):
        wrong(table.alter()).apply()
    with pytest.raises((nyala.InvalidArgumentError, nyala.NotFoundError)):
        wrong(table.alter().add_column("fine", "int8")).rename("u").set_option("no", 1).apply()
    assert table.describe() == before


def test_a_stale_change_is_a_conflict(table: Table) -> None:
    version = table.describe()["schema_version"]
    table.alter().add_column("a", "int8").apply(if_version=version)
    with pytest.raises(nyala.ConflictError, match="schema version 2, not 1"):
        table.alter().add_column("b", "int8").apply(if_version=version)
    assert table.schema.names == ["k", "v", "s", "must", "a"]


def test_a_table_holds_so_many_columns(db: Database) -> None:
    table = db.create_table("w", pa.schema([("k", pa.int64()), *((f"c{i}", pa.int8()) for i in range(298))]), ["k"])
    table.alter().add_column("last", "int8").apply()
    with pytest.raises(nyala.InvalidArgumentError, match="at most 300"):
        table.alter().add_column("more", "int8").apply()
    table.alter().drop_column("c7").add_column("more", "int8").apply()


def test_a_writer_that_knows_an_older_schema_is_projected_by_name(db: Database, table: Table) -> None:
    stale = db.table("t")
    table.alter().add_column("n", "int32", write_default=5).drop_column("s").widen_column("v", "int32").apply()
    stale.upsert([{"k": 9, "v": 1, "must": 0}])
    assert rows(table, where="k = 9") == [(9, 1, 0, 5)]
    stale.upsert({"k": [9], "n": [6]})
    assert rows(table, where="k = 9") == [(9, 1, 0, 6)]
    other = db.table("t")
    table.alter().rename_column("v", "w").apply()
    with pytest.raises(nyala.InvalidArgumentError, match="no column 'v'"):
        other.upsert({"k": [9], "v": [1]})


@pytest.mark.parametrize("ops", [(), ("flush", "flush_deltas"), ("flush", "flush_deltas", "major_compact")])
def test_changes_are_those_of_the_columns_that_there_are(table: Table, ops: tuple[str, ...]) -> None:
    table.maintain("flush")
    start = table.upsert({"k": [9], "must": [0]})
    table.update({"k": [1], "s": ["gone"]})
    table.update({"k": [2], "s": ["gone"], "v": [5]})
    table.alter().drop_column("s").add_column("n", "int8", read_default=1).apply()
    table.update({"k": [3], "n": [2]})
    for op in ops:
        table.maintain(op)
    found = table.changes(start.timestamp, columns=["k", "v", "n"], before=True, ordered=True).to_arrow().to_pylist()
    cells = [(row["_op"], row["k"], row["v"], row["n"], row["_before_v"], row["_before_n"]) for row in found]
    assert cells == [("update", 2, 5, 1, 2, 1), ("update", 3, 3, 2, 3, 1)]
    assert table.write([{"k": 1, "v": 0}], "update", if_timestamp=start.timestamp).applied == 1


def test_a_scan_that_runs_keeps_its_columns(embedded: Database) -> None:
    table = embedded.create_table("t", SCHEMA, ["k"])
    table.insert({"k": list(range(3)), "v": [1, 2, 3], "must": [0] * 3, "s": ["a", "b", "c"]})
    table.maintain("flush")
    table.update({"k": [0], "s": ["z"]})
    reader = table.scan(ordered=True).to_reader()
    table.alter().drop_column("s").widen_column("v", "int64").rename_column("must", "m").apply()
    table.upsert({"k": [1], "v": [1 << 50], "m": [0]})
    for op in ("flush_deltas", "compact"):
        table.maintain(op)
    assert reader.read_all().to_pydict() == {"k": [0, 1, 2], "v": [1, 2, 3], "s": ["z", "b", "c"], "must": [0, 0, 0]}
