"""Lists, structs, maps, and all flat types that only value columns have: embedded and over Flight."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.schemas import compute as pc
from nyala.schemas.errors import InvalidArgumentError, RowErrors

ADDRESS = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.float64()), ("lon", pa.float64())]))])
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("address", ADDRESS),
        pa.field("labels", pa.map_(pa.string(), pa.int32())),
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("lines", pa.large_list(pa.struct([("item", pa.uint16()), ("price", pa.decimal128(9, 2))]))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "k": 1,
        "tags": ["new", None, "eu"],
        "address": {"city": "Oslo", "geo": {"lat": 59.9, "lon": 10.7}},
        "labels": [("a", 1), ("b", None)],
        "vector": [1.5, None],
        "lines": [{"item": 65_535, "price": None}, None],
    },
    {"k": 2, "tags": [], "address": {"city": None, "geo": None}, "labels": [], "vector": None, "lines": []},
    {"k": 3, "tags": None, "address": None, "labels": None, "vector": [0.0, -1.0], "lines": None},
]
FLAT: dict[str, pa.Array] = {
    str(array.type): array
    for array in (
        pa.array([0, 255, None], pa.uint8()),
        pa.array([0, 2**16 - 1, None], pa.uint16()),
        pa.array([0, 2**32 - 1, None], pa.uint32()),
        pa.array([0, 2**64 - 1, None], pa.uint64()),
        pa.array(np.array([0.5, -65504.0, 0.0], np.float16), pa.float16()),
        pa.array([0, 86_399, None], pa.time32("s")),
        pa.array([0, 86_399_999, None], pa.time32("ms")),
        pa.array([0, 86_399_999_999, None], pa.time64("us")),
        pa.array([0, 86_399_999_999_999, None], pa.time64("ns")),
        pa.array([-(2**40), 2**40, None], pa.duration("s")),
        pa.array([-(2**63), 2**63 - 1, None], pa.duration("ms")),
        pa.array([-(2**63), 2**63 - 1, None], pa.duration("us")),
        pa.array([-1, 1, None], pa.duration("ns")),
        pa.array([pa.MonthDayNano([-1, 2, -3]), pa.MonthDayNano([0, 0, 0]), None]),
    )
}


def make(db: Database, name: str = "t") -> Table:
    table = db.create_table(name, SCHEMA, "k")
    table.insert(pa.Table.from_pylist(ROWS, SCHEMA))
    return table


def rows_of(table: Table, **scan: Any) -> list[dict[str, Any]]:
    return table.scan(ordered=True, **scan).to_arrow().to_pylist()


@pytest.mark.parametrize("steps", [(), ("flush",), ("flush", "compact")], ids=["memory", "flushed", "merged"])
def test_cells_come_back_as_they_were(db: Database, steps: tuple[str, ...]) -> None:
    table = make(db)
    for step in steps:
        table.maintain(step)
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 2)
    found = table.scan(ordered=True).to_arrow()
    assert found.schema.types == SCHEMA.types
    assert found.to_pylist() == ROWS
    assert table.get(1) == ROWS[0] and table.get(2) == ROWS[1]
    assert table.get_many([3, 1]).sort_by("k").to_pylist() == [ROWS[0], ROWS[2]]
    assert rows_of(table, where="k = 1") == [ROWS[0]]
    assert rows_of(table, where="k >= 2", limit=1) == [ROWS[1]]
    assert rows_of(table, columns=["tags"]) == [{"tags": row["tags"]} for row in ROWS]


@pytest.mark.parametrize("is_flushed", [False, True], ids=["memory", "flushed"])
def test_cells_change_and_keep_their_history(db: Database, is_flushed: bool) -> None:
    table = make(db)
    before = db.now()
    if is_flushed:
        table.maintain("flush")
    table.update({"k": [1], "tags": [["changed"]]})
    table.upsert({"k": [2, 4], "address": [{"city": "Bergen"}, None]})
    table.delete({"k": [3]})
    for step in ("flush", "minor_compact", "major_compact", "compact") if is_flushed else ():
        table.maintain(step)
    expected = [
        ROWS[0] | {"tags": ["changed"]},
        ROWS[1] | {"address": {"city": "Bergen", "geo": None}},
        dict.fromkeys(SCHEMA.names) | {"k": 4},
    ]
    assert rows_of(table) == expected
    assert rows_of(table, as_of=before) == ROWS
    changes = table.changes(before).to_arrow().to_pylist()
    assert {row["k"]: row["_op"] for row in changes} == {1: "update", 2: "update", 3: "delete", 4: "insert"}
    assert next(row for row in changes if row["k"] == 1)["tags"] == ["changed"]


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("address.city = 'Oslo'", [1]),
        ("address.geo.lat > 50", [1]),
        ("address.city IS NULL", [2, 3]),
        ("address IS NULL", [3]),
        ("len(tags) = 0", [2]),
        ("length(tags) = 3 OR tags IS NULL", [1, 3]),
        ("cardinality(labels) = 2", [1]),
        ("contains(tags, 'eu')", [1]),
        ("NOT contains(tags, 'eu')", [2]),
        ("tags[0] = 'new'", [1]),
        ("tags[-1] = 'eu'", [1]),
        ("tags[7] IS NULL", [1, 2, 3]),
        ("labels['a'] = 1", [1]),
        ("labels['b'] IS NULL", [1, 2, 3]),
        ("contains(labels, 'b')", [1]),
        ("lines[0].item = 65535", [1]),
        ("vector[1] < 0", [3]),
        ("upper(address.city) = 'OSLO' AND k < 9", [1]),
    ],
)
@pytest.mark.parametrize("is_flushed", [False, True], ids=["memory", "flushed"])
def test_filters_look_inside(db: Database, where: str, keys: list[int], is_flushed: bool) -> None:
    table = make(db)
    if is_flushed:
        table.maintain("flush")
    assert [row["k"] for row in rows_of(table, where=where)] == keys
    assert table.scan(where=where).count() == len(keys)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("tags = 'x'", "list<string>"),
        ("address = 'x'", "struct<"),
        ("address.street = 'x'", "no field 'street'; its fields are city, geo"),
        ("k.x = 1", "an integer has no fields"),
        ("k[0] = 1", "an integer has no items"),
        ("tags['x'] = 1", "counted from 0"),
        ("labels[1] = 1", "keys of the map are text"),
        ("len(address) = 1", "LENGTH takes text"),
        ("contains(k, 1)", "CONTAINS takes a list"),
        ("tags < 'x'", "list<string>"),
    ],
)
def test_filters_that_cannot_be_answered_say_why(db: Database, where: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        make(db).scan(where=where).to_arrow()
    assert why in refused.value.message


def test_nested_columns_have_no_order(db: Database) -> None:
    table = make(db)
    for order in ("tags", ["address desc"]):
        with pytest.raises(InvalidArgumentError, match="sorted"):
            table.scan(order_by=order).to_arrow()
    with pytest.raises(InvalidArgumentError, match="grouped"):
        table.scan().aggregate({"n": ("*", "count")}, group_by="tags")
    with pytest.raises(InvalidArgumentError, match="no order"):
        table.scan().aggregate({"n": ("tags", "min")})
    assert table.scan().aggregate({"n": ("tags", "count")}).to_pylist() == [{"n": 2}]
    for key in ("tags", "address"):
        with pytest.raises(InvalidArgumentError, match="key"):
            db.create_table("u", SCHEMA, key)


@pytest.mark.parametrize("kind", FLAT)
def test_the_flat_types_that_only_values_have(db: Database, kind: str) -> None:
    cells = FLAT[kind]
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("v", cells.type)]), "k")
    assert str(table.schema.field("v").type) == kind
    table.insert(pa.table({"k": [1, 2, 3], "v": cells}))
    for step in ("", "flush", "compact"):
        if step:
            table.maintain(step)
        found = table.scan(ordered=True).to_arrow()["v"].combine_chunks()
        assert found.equals(cells), step
        assert table.get_many([1, 2, 3]).sort_by("k")["v"].combine_chunks().equals(cells)
        assert table.scan(where="v IS NULL").count() == cells.null_count
        assert table.scan(where="k = 2").to_arrow()["v"].combine_chunks().equals(cells.slice(1, 1))
    table.update(pa.table({"k": [1], "v": cells.slice(1, 1)}))
    table.maintain("flush")
    assert table.scan(ordered=True).to_arrow()["v"].combine_chunks().equals(cells.take(pa.array([1, 1, 2])))


def test_unsigned_integers_and_times_compare_and_add_up(db: Database) -> None:
    table = db.create_table(
        "t",
        data=pa.table(
            {
                "k": [1, 2, 3],
                "small": pa.array([1, 200, 255], pa.uint8()),
                "big": pa.array([1, 2**63, 2**64 - 1], pa.uint64()),
                "at": pa.array([dt.time(1), dt.time(12, 30), dt.time(23, 59, 59)], pa.time64("us")),
                "took": pa.array([1, 90, -5], pa.duration("s")),
            }
        ),
        primary_key="k",
    )
    for step in ("", "flush"):
        if step:
            table.maintain(step)
        for where, keys in {
            "small > 199": [2, 3],
            "small = 256": [],
            "small >= 0": [1, 2, 3],
            "small IN (1, 255, -7)": [1, 3],
            "big > 9223372036854775807": [2, 3],
            "big = 18446744073709551615": [3],
            "big + 1 > 9223372036854775808": [2, 3],
            "small + 1 = 256": [3],
            "at >= '12:30'": [2, 3],
            "at = '12:30:00.000000'": [2],
            "took > INTERVAL '1' MINUTE": [2],
            "took < INTERVAL '0' SECOND": [3],
            "took BETWEEN INTERVAL '0' SECOND AND INTERVAL '1' SECOND": [1],
        }.items():
            assert [row["k"] for row in rows_of(table, where=where)] == keys, where
        found = table.scan().aggregate(
            {"s": ("small", "sum"), "b": ("big", "sum"), "m": ("big", "max"), "t": ("at", "max"), "a": ("small", "avg")}
        )
        assert found.to_pylist() == [
            {"s": 456, "b": 2**64 + 2**63, "m": 2**64 - 1, "t": dt.time(23, 59, 59), "a": 152.0}
        ]
    groups = table.scan().aggregate({"n": ("*", "count")}, group_by=["big", "at"])
    assert sorted(groups["big"].to_pylist()) == [1, 2**63, 2**64 - 1]
    assert table.scan(order_by="big desc").to_arrow()["k"].to_pylist() == [3, 2, 1]
    with pytest.raises(RowErrors, match="0 to 255"):
        table.upsert({"k": [1], "small": [256]})
    with pytest.raises(RowErrors, match="0 to 255"):
        table.upsert({"k": [1], "small": [-1]})


def test_pandas_lists_and_dicts_make_a_table(db: Database) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "tags": [["a", "b"], None],
            "vec": [np.array([1.0, 2.0]), np.array([])],
            "who": [{"name": "Ada", "age": 36}, {"name": None, "age": None}],
        }
    )
    table = db.create_table("frames", data=frame, primary_key="id")
    assert str(table.schema.field("who").type) == "struct<name: string, age: int64>"
    back = table.scan(ordered=True).to_pandas()
    assert [None if cell is None else list(cell) for cell in back["tags"]] == [["a", "b"], None]
    assert [list(cell) for cell in back["vec"]] == [[1.0, 2.0], []]
    table.upsert(pd.DataFrame({"id": [2], "tags": [["c"]], "who": [{"name": "Bo"}]}))
    assert table.get(2) == {"id": 2, "tags": ["c"], "vec": [], "who": {"name": "Bo", "age": None}}


def test_maps_take_dicts_and_pairs(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))]), "k")
    table.insert([{"k": 1, "m": {"a": 1}}, {"k": 2, "m": [("b", 2)]}, {"k": 3, "m": None}])
    table.upsert(pd.DataFrame({"k": [4], "m": [{"c": 3}]}))
    assert [row["m"] for row in rows_of(table)] == [[("a", 1)], [("b", 2)], None, [("c", 3)]]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("lines", [{"item": 65_536}], r"\.item"),
        ("lines", [{"item": -1}], r"\.item"),
        ("vector", [1.0], "lists of 2 items"),
        ("lines", [{"price": Decimal("12345678.9")}], r"\.price"),
    ],
)
def test_a_value_inside_that_does_not_fit_refuses_its_row(db: Database, column: str, value: Any, why: str) -> None:
    table = make(db)
    with pytest.raises((RowErrors, InvalidArgumentError), match=why):
        table.upsert([{"k": 8, column: value}])
    assert table.count() == 3
    kind = pa.list_(pa.int64())
    small = db.create_table("small", pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int8()))]), "k")
    result = small.insert(pa.table({"k": [1, 2], "v": pa.array([[1], [2, 300]], kind)}), on_error="return")
    assert [error.row for error in result.errors] == [1] and "[]" in result.errors[0].message
    assert rows_of(small) == [{"k": 1, "v": [1]}]


def test_types_that_never_fit_are_refused_by_their_path(db: Database) -> None:
    table = make(db)
    for cells, path in (([{"city": 5}], ".city is int64"), ([{"street": "x"}], ".street is string")):
        with pytest.raises(InvalidArgumentError) as refused:
            table.upsert(pa.table({"k": [8], "address": pa.array(cells)}))
        assert "'address'" in refused.value.message and path in refused.value.message


def test_a_cell_that_is_too_large_is_refused(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))]), "k")
    result = table.insert({"k": [1, 2], "v": [[1] * 100_000, [1] * 140_000]}, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(1, "TOO_LARGE")]
    assert [len(row["v"]) for row in rows_of(table)] == [100_000]


def test_a_key_of_a_map_that_does_not_fit_refuses_its_row(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("m", pa.map_(pa.int8(), pa.int32()))]), "k")
    cells = pa.array([[(300, 1)], [(1, 2)], None], pa.map_(pa.int64(), pa.int64()))
    result = table.insert(pa.table({"k": [1, 2, 3], "m": cells}), on_error="return")
    assert [error.row for error in result.errors] == [0] and ".key" in result.errors[0].message
    assert rows_of(table) == [{"k": 2, "m": [(1, 2)]}, {"k": 3, "m": None}]


def test_half_floats_are_not_rounded_by_stealth(db: Database) -> None:
    half = pa.float16()
    kinds = {"h": half, "l": pa.list_(half), "s": pa.struct([("h", half)])}
    table = db.create_table("t", pa.schema([("k", pa.int64()), *kinds.items()]), "k")
    for cell in (70_000, 2_049):
        for column, value in (("h", cell), ("l", [cell]), ("s", {"h": cell})):
            with pytest.raises(RowErrors, match="does not fit"):
                table.upsert(pa.table({"k": [1], column: pa.array([value])}))
    tenth = float(np.float16(0.1))
    table.insert(pa.table({"k": [1], "h": pa.array([tenth], half), "l": pa.array([[tenth]]), "s": [{"h": tenth}]}))
    for where in ("h = 0.1", "s.h = 0.1", "l[0] = 0.1", "s.h IN (0.1)", "s.h BETWEEN 0.1 AND 0.2", "contains(l, 0.1)"):
        assert table.scan(where=where).count() == 1, where
    assert table.scan(where="s.h <> 0.1 OR l[0] > 0.1").count() == 0


def test_the_largest_unsigned_integers_come_in_any_form(db: Database) -> None:
    kinds = {"u": pa.uint64(), "m": pa.map_(pa.string(), pa.int64())}
    table = db.create_table("t", pa.schema([("k", pa.int64()), *kinds.items()]), "k")
    table.upsert({"k": [1, 2], "u": [0, 2**64 - 1]})
    table.upsert([{"k": 3, "u": 2**63, "m": {"a": 1}}])
    assert [row["u"] for row in rows_of(table)] == [0, 2**64 - 1, 2**63]
    table.upsert(table.scan().to_arrow().to_pylist())
    with pytest.raises((RowErrors, InvalidArgumentError)):
        table.upsert({"k": [1], "u": [2**64]})


def test_a_get_returns_cells_of_all_types(db: Database) -> None:
    rows = {
        "d": pa.array([dt.timedelta(days=3)], pa.duration("s")),
        "l": pa.array([[dt.timedelta(-1)]], pa.list_(pa.duration("us"))),
        "b": pa.array([{"b": b"\xff", "at": dt.datetime(2026, 1, 2), "p": Decimal("1.50")}]),
        "twice": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "by": pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int64())]), pa.int64())),
        "i": pa.array([pa.MonthDayNano([1, 2, 3])]),
        "ns": pa.array([1_001], pa.duration("ns")),
        "f": pa.array([[float("inf"), None, -0.0]], pa.list_(pa.float64())),
        "t": pa.array([[dt.time(1, 2, 3, 4)]], pa.list_(pa.time64("us"))),
    }
    table = db.create_table("t", data=pa.table({"k": [1], **rows}), primary_key="k")
    (expected,) = rows_of(table)
    assert table.get(1) == expected
    table.maintain("flush")
    assert table.get(1) == expected


def test_spans_of_nanoseconds_come_from_python_as_they_are(db: Database) -> None:
    """Arrow takes a span of pandas for one of microseconds, and cuts it."""
    span = pa.duration("ns")
    kinds = {"d": span, "l": pa.list_(span), "s": pa.struct([("d", span)])}
    table = db.create_table("t", pa.schema([("k", pa.int64()), *kinds.items()]), "k")
    took = pd.Timedelta(64_714)
    row = {"k": 1, "d": took, "l": [took, None], "s": {"d": took}}
    table.upsert([row, {**row, "k": 2, "d": dt.timedelta(microseconds=1)}])
    found = table.scan(ordered=True).to_arrow()
    assert found["d"].cast(pa.int64()).to_pylist() == [64_714, 1_000]
    assert found["l"].to_pylist() == [[took, None]] * 2 and found["s"].to_pylist() == [{"d": took}] * 2
    assert found["l"].combine_chunks().values.cast(pa.int64())[0].as_py() == 64_714


def test_a_filter_takes_spans_of_nanoseconds(db: Database) -> None:
    """Microseconds alone would find the first row by the second one's span."""
    spans = pa.array([1_000, 1_001, 2_000], pa.duration("ns"))
    table = db.create_table("t", data=pa.table({"k": [1, 2, 3], "d": spans}), primary_key="k")
    for k, span in enumerate((pd.Timedelta(1_000), pd.Timedelta(1_001), pd.Timedelta(2_000)), 1):
        for where in ([("d", "=", span)], [("d", "in", [span])], pc.field("d") == pa.scalar(span, pa.duration("ns"))):
            assert table.scan(where=where).to_arrow()["k"].to_pylist() == [k]
    assert table.scan(where=[("d", ">", pd.Timedelta(1_001))]).count() == 1


def test_defaults_and_durations_keep_their_unit(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("d", pa.duration("s")), ("t", pa.time32("s"))]), "k")
    for column, default in (("d", dt.timedelta(milliseconds=1)), ("t", dt.time(0, 0, 0, 5)), ("t", "12:00:00.5")):
        with pytest.raises(InvalidArgumentError, match="not a valid"):
            table.alter().set_default(column, default).apply()
    table.alter().set_default("d", dt.timedelta(seconds=5)).set_default("t", "12:00:01").apply()
    table.upsert([{"k": 2, "t": "23:59:59"}])
    with pytest.raises(InvalidArgumentError, match="'t'"):
        table.upsert([{"k": 2, "t": "23:59:59.5"}])
    assert table.get(2) == {"k": 2, "d": dt.timedelta(seconds=5), "t": dt.time(23, 59, 59)}
    table.insert({"k": [1]})
    assert table.get(1) == {"k": 1, "d": dt.timedelta(seconds=5), "t": dt.time(12, 0, 1)}
    with pytest.raises(InvalidArgumentError, match="an interval such as"):
        table.scan(where="d = 5").to_arrow()


def test_dates_inside_are_those_of_the_calendar(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.list_(pa.date32()))]), "k")
    cells = pa.array([[0], [-719_163], [2_932_897]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    for rows in (slice(0, 3), slice(1, 2)):
        given = pa.table({"k": [1, 2, 3], "v": cells})[rows]
        result = table.upsert(given, on_error="return")
        assert len(result.errors) == given.num_rows - (rows.start == 0)
    assert rows_of(table) == [{"k": 1, "v": [dt.date(1970, 1, 1)]}]


def test_a_type_that_is_too_deep_is_refused(db: Database) -> None:
    kind: pa.DataType = pa.int8()
    for _ in range(1_000):
        kind = pa.list_(kind)
    with pytest.raises(InvalidArgumentError):
        db.create_table("t", pa.schema([("k", pa.int64()), ("v", kind)]), "k")


def test_a_store_with_lists_of_one_length_is_verified_and_imported(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "s") as db:
        table = make(db)
        table.maintain("flush")
        table.bulk_import(pa.Table.from_pylist([{**row, "k": row["k"] + 10} for row in ROWS], SCHEMA))
        assert table.count() == 6
    assert verify_store(LocalFileSystem(tmp_path / "s")).is_sound


def test_columns_come_and_go(db: Database) -> None:
    table = make(db)
    table.maintain("flush")
    table.alter().add_column("more", "list<struct<a: int8, b: string>>", read_default=[{"a": 1, "b": "x"}]).apply()
    row = table.get(1)
    assert row is not None and row["more"] == [{"a": 1, "b": "x"}]
    table.alter().rename_column("tags", "words").drop_column("labels").apply()
    table.upsert({"k": [2], "more": [[]], "words": [["w"]]})
    assert [(row["words"], row["more"]) for row in rows_of(table)] == [
        (["new", None, "eu"], [{"a": 1, "b": "x"}]),
        (["w"], []),
        (None, [{"a": 1, "b": "x"}]),
    ]


def test_a_restart_keeps_them(tmp_path: Path) -> None:
    with nyala.open(tmp_path) as db:
        table = make(db)
        table.update({"k": [1], "tags": [["x"]]})
    with nyala.open(tmp_path) as db:
        table = db.table("t")
        assert rows_of(table)[0]["tags"] == ["x"]
        table.maintain("flush")
    with nyala.open(tmp_path) as db:
        assert rows_of(db.table("t")) == [ROWS[0] | {"tags": ["x"]}, *ROWS[1:]]
