"""Filters on fields of structs: which pages zone maps leave unread, and that every row is the same without them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store

ROWS = 200_000
GEO = pa.struct([("lat", pa.float64()), ("on", pa.bool_())])
KIND = pa.struct(
    [("n", pa.int64()), ("geo", GEO), ("at", pa.timestamp("us")), ("price", pa.decimal128(9, 2)), ("tag", pa.string())]
)
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("s", KIND), ("v", pa.int64())])


def cells(numbers: np.ndarray) -> pa.StructArray:
    """Structs whose fields all rise with a number; NULL where it is negative."""
    null = numbers < 0
    geo = pa.StructArray.from_arrays([pa.array(numbers / 4), pa.array(numbers >= ROWS // 2)], fields=list(GEO))
    parts = [
        pa.array(numbers, mask=numbers % 70_001 == 0),
        geo,
        pa.array(numbers * 1_000_000, pa.timestamp("us")),
        pa.array([Decimal(int(number)).scaleb(-2) for number in numbers], pa.decimal128(9, 2)),
        pa.array([f"t{number:06}" for number in numbers]),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(KIND), mask=pa.array(null))


@pytest.fixture
def table() -> Iterator[Table]:
    """One rowset of four pages."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", SCHEMA, ["k"])
        numbers = np.arange(ROWS)
        table.insert(pa.table([pa.array(numbers), cells(numbers), pa.array(numbers)], schema=SCHEMA))
        table.maintain("flush")
        yield table


def pruned(table: Table, where: str) -> int:
    return table.scan(where=where).explain()["chunks_pruned_by_zone_map"]


@pytest.mark.parametrize(
    ("where", "pages", "rows"),
    [
        ("s.n = 150000", 3, 1),
        ("150000 = s.n", 3, 1),
        ("s.n < 5", 3, 4),
        ("s.n IN (7, 8, 199999)", 2, 3),
        ("NOT s.n >= 10", 3, 9),
        ("NOT (s.n > 10 OR s.geo.lat > 2.0)", 3, 8),
        ("s.n BETWEEN 131072 AND 131080", 3, 9),
        ("s.n NOT BETWEEN 1 AND 196607", 3, 3392),
        ("s.n > 1e12", 4, 0),
        ("s.n < 1e12", 0, ROWS - 3),
        ("s.n IS NULL", 1, 3),
        ("s.geo.lat IS NULL", 4, 0),
        ("s.n IS NOT NULL AND s.geo.lat < 1", 3, 3),
        ("s.geo.lat > 49151.9 AND v > 0", 3, 3392),
        ("s.geo.on", 1, ROWS // 2),
        ("NOT s.geo.on AND s.n > 90000", 3, ROWS // 2 - 90_001),
        ("s.at < TIMESTAMP '1970-01-01 00:00:05'", 3, 5),
        ("s.at = '1970-01-01 00:00:05'", 3, 1),
        ("s.price = 3.5", 3, 1),
        ("s.price = 3.505", 4, 0),
        ("s.n = 3 OR v = 70000", 2, 2),
        ("s.n = 3 AND v = 70000", 4, 0),
        ("s.n + 0 = 3", 0, 1),
        ("s.n = v AND s.n = 150000", 3, 1),
    ],
)
def test_pages_without_a_match_are_not_read(table: Table, where: str, pages: int, rows: int) -> None:
    plan = table.scan(where=where).explain()
    assert (plan["chunks"], plan["chunks_pruned_by_zone_map"]) == (4, pages)
    assert table.scan(["k"], where=where).count() == table.scan(where=where).to_arrow().num_rows == rows


def test_pages_of_matches_are_counted_unread_but_not_if_a_field_is_null(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    parts = StreamReader.parts

    def counted(self: StreamReader, first: int, last: int) -> Any:
        read.append(self.key.column_id)
        return parts(self, first, last)

    monkeypatch.setattr(StreamReader, "parts", counted)
    struct = next(column["id"] for column in table.describe()["columns"] if column["name"] == "s")
    assert table.scan(["k"], where="s.geo.lat >= 0").count() == ROWS
    assert struct not in read, "all pages match"
    assert table.scan(["k"], where="s.n >= 0").count() == ROWS - 3
    assert table.scan(["k"], where="s.n >= 0 OR s.geo.lat < 1").count() == ROWS - 2
    table.update(pa.table([pa.array([9]), cells(np.array([-1]))], names=["k", "s"]))
    for _ in range(2):
        assert table.scan(["k"], where="s.geo.lat >= 0").count() == ROWS - 1
        table.maintain("flush_deltas")


def test_deltas_bring_rows_into_and_out_of_excluded_pages(table: Table) -> None:
    moved = np.array([3, 70_000])
    table.update(pa.table([pa.array(moved), cells(np.array([150_000, 500_000]))], names=["k", "s"]))
    for step in ("nothing", "flush_deltas", "minor_compact", "major_compact", "compact"):
        if step != "nothing":
            table.maintain(step)
        keys = {where: sorted(table.scan(["k"], where=where).to_arrow()["k"].to_pylist()) for where in WHERES}
        assert keys == {"s.n = 150000": [3, 150_000], "s.n = 500000": [70_000], "s.n = 3": []}, step


WHERES = ("s.n = 150000", "s.n = 500000", "s.n = 3")


def test_a_field_of_an_added_column_is_its_default(table: Table) -> None:
    table.alter().add_column("more", "struct<n: int64, x: double>").apply()
    assert pruned(table, "more.n = 1") == 4
    assert pruned(table, "more.n IS NULL") == 0
    assert table.scan(where="more.n IS NULL AND k < 10").count() == 10
    assert table.scan(where="more.n IS NOT NULL").count() == 0


NUMBERS = (math.nan, -math.inf, -0.0, 0.0, 0.5, 1.0, math.inf, None)


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_no_number_loses_its_rows(op: str) -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.float32()), ("id", pa.int64())])  # all cells differ
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", pa.schema([pa.field("k", pa.int64(), False), ("s", kind)]), ["k"])
        for place, number in enumerate(NUMBERS):  # a page of each, long enough to be taken apart
            keys = range(place * 3_000, place * 3_000 + 2_999)
            rows = [{"k": key, "s": {"x": number, "y": number, "id": key}} for key in keys]
            table.insert([*rows, {"k": keys[-1] + 1, "s": None}])
            table.maintain("flush")
        skipped = 0
        for literal in ("0.0", "-0.0", "0.5", "2", "1e999"):
            for negated in ("", "NOT "):
                for field in ("s.x", "s.y"):
                    where = f"{negated}{field} {op} {literal}"
                    shown = table.scan(["k"], where=where).count()
                    skipped += pruned(table, where)
                    assert shown == table.scan(["k"], where=f"({where}) IS TRUE").count(), where
        assert skipped > 40


def test_every_moment_has_the_same_rows_without_bounds_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    kind = pa.struct([("n", pa.int32()), ("in", pa.struct([("x", pa.float64()), ("d", pa.date32())]))])
    schema = pa.schema([pa.field("k", pa.int64(), False), ("s", kind), ("v", pa.int64())])

    def rows(keys: list[int], level: int) -> list[dict[str, Any]]:
        return [{"k": key, "s": value(level), "v": level} for key in keys]

    def value(level: int) -> dict[str, Any] | None:
        part, number = int(random.integers(0, 12)), level * 100 + int(random.integers(0, 90))
        inner = {"x": math.nan if part == 2 else number / 2, "d": None if part == 3 else number}
        return None if part == 0 else {"n": None if part == 4 else number, "in": None if part == 5 else inner}

    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        db = Database(store)
        table = db.create_table("t", schema, ["k"])
        moments: list[int] = []
        steps = ("flush", "flush_deltas", "minor_compact", "major_compact", "flush", "compact")
        for level, step in enumerate(steps * 2):
            table.upsert(rows(random.choice(900, 300, replace=False).tolist(), level))
            table.update(rows([row["k"] for row in table.scan(["k"], limit=5).to_arrow().to_pylist()], level + 1))
            table.delete_ignore([{"k": int(key)} for key in random.choice(900, 3)])
            moments.append(db.now())
            table.maintain(step)
        filters = [
            f"{negated}{part}"
            for negated in ("", "NOT ")
            for level in (0, 3, 7, 12)
            for part in (
                f"s.n < {level * 100}",
                f"s.in.x >= {level * 50}",
                f"s.in.d = {level * 100 + 7}",
                f"(s.n BETWEEN {level * 100} AND {level * 100 + 50} OR s.in.x IS NULL)",
                f"(s.n IN ({level * 100}, {level * 100 + 1}, 5000) AND s.in.d IS NOT NULL)",
            )
        ]
        asked = [(where, moment) for where in filters for moment in (None, *moments[::3])]
        skipped = sum(pruned(table, where) for where in filters)

        def answers() -> list[list[int]]:
            scans = [table.scan(["k"], where=where, as_of=moment) for where, moment in asked]
            return [sorted(scan.to_arrow()["k"].to_pylist()) for scan in scans]

        with_bounds = answers()
        monkeypatch.setattr(StreamReader, "leaf_zone_maps", lambda *_: [])
        assert sum(pruned(table, where) for where in filters) < skipped
        assert answers() == with_bounds
        assert any(map(len, with_bounds))
