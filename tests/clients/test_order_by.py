"""Scans in the order of any columns, and from any row on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.protocol import sorting

COUNT = 2_000
RANDOM = np.random.default_rng(5)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("cents", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
    ]
)
CITIES = ["Oslo", "Bergen", None, "Hamar"]
ROWS: list[dict[str, Any]] = pa.table(
    {
        "id": RANDOM.permutation(COUNT),
        "city": [CITIES[number % 4] for number in range(COUNT)],
        "price": pa.array(RANDOM.integers(0, 50, COUNT) / 2, mask=RANDOM.random(COUNT) < 0.1),
        "day": pa.array(RANDOM.integers(0, 300, COUNT), pa.int32()).cast(pa.date32()),
        "ok": pa.array(RANDOM.random(COUNT) < 0.5),
        "cents": pa.array(RANDOM.integers(0, 300, COUNT)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2)),
        "raw": [bytes([number % 7]) for number in range(COUNT)],
    },
    schema=SCHEMA,
).to_pylist()


@pytest.fixture
def table(db: Database) -> Table:
    made = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    made.insert(ROWS[:1_500])
    made.maintain("flush")
    made.insert(ROWS[1_500:])
    return made


def in_order(*terms: tuple[str, bool, bool]) -> list[int]:
    """The ids in an order of (column, descending, NULLs first), ties by id."""
    rows = sorted(ROWS, key=lambda row: row["id"])
    for column, descending, nulls_first in reversed(terms):
        known = sorted(
            (row for row in rows if row[column] is not None), key=lambda row: row[column], reverse=descending
        )
        if descending:  # a stable sort, reversed, turns ties round
            known = sorted((row for row in rows if row[column] is not None), key=lambda row: _negative(row[column]))
        nulls = [row for row in rows if row[column] is None]
        rows = nulls + known if nulls_first else known + nulls
    return [row["id"] for row in rows]


class _negative:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _negative) -> bool:
        return other.value < self.value


ORDERS: dict[str, tuple[Any, list[tuple[str, bool, bool]]]] = {
    "one column": ("price", [("price", False, False)]),
    "descending": ("price DESC", [("price", True, False)]),
    "NULLs first": ("price desc nulls first", [("price", True, True)]),
    "two": (["city", "price DESC"], [("city", False, False), ("price", True, False)]),
    "quoted": ('"city" DESC, "day"', [("city", True, False), ("day", False, False)]),
    "bool": ("ok DESC, city NULLS FIRST", [("ok", True, False), ("city", False, True)]),
    "decimals and bytes": ("cents, raw desc", [("cents", False, False), ("raw", True, False)]),
    "the key, backwards": ("id DESC", [("id", True, False)]),
    "the key": ("id", [("id", False, False)]),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_order(table: Table, order: tuple[Any, list[tuple[str, bool, bool]]]) -> None:
    order_by, terms = order
    expected = in_order(*terms)
    assert table.scan(order_by=order_by).to_arrow()["id"].to_pylist() == expected
    found = table.scan(["city"], order_by=order_by, limit=20, offset=7).to_arrow()
    cities = {row["id"]: row["city"] for row in ROWS}
    assert found.schema.names == ["city"] and found["city"].to_pylist() == [cities[number] for number in expected[7:27]]


def test_top_rows_take_the_memory_of_as_many(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_WAITING_BYTES", 1_000)
    monkeypatch.setattr(sorting, "SORT_BYTES_MAX", 20_000)
    expected = in_order(("price", True, False), ("city", False, False))
    assert table.scan(order_by="price desc, city", limit=50).to_arrow()["id"].to_pylist() == expected[:50]
    assert table.scan(order_by="id").to_arrow().num_rows == COUNT
    with pytest.raises(InvalidArgumentError, match="give a limit"):
        table.scan(order_by="price").to_arrow()


def test_with_filter_moment_and_count(db: Database, table: Table) -> None:
    moment = db.now()
    table.delete_where("price > 3")
    best = table.scan(where="city = 'Oslo'", as_of=moment, order_by="price DESC", limit=3)
    ids = {row["id"] for row in ROWS if row["city"] == "Oslo"}
    expected = [number for number in in_order(("price", True, False)) if number in ids][:3]
    assert best.to_arrow()["id"].to_pylist() == expected and best.count() == 3
    assert table.scan(as_of=moment, order_by="price").count() == COUNT
    assert table.scan(as_of=moment, ordered=True, offset=COUNT - 5).count() == 5
    assert table.scan(as_of=moment, order_by="price", offset=9, limit=4).count() == 4
    assert table.scan(as_of=moment, ordered=True, offset=COUNT + 1).count() == 0
    assert best.explain()


def test_offset(table: Table) -> None:
    assert table.scan(["id"], ordered=True, offset=1_990).to_arrow()["id"].to_pylist() == list(range(1_990, COUNT))
    assert table.scan(["id"], ordered=True, offset=5, limit=3).to_arrow()["id"].to_pylist() == [5, 6, 7]
    assert table.scan(ordered=True, offset=10 * COUNT).to_arrow().num_rows == 0
    assert table.scan(ordered=True, limit=0, offset=3).to_arrow().num_rows == 0
    assert table.scan(ordered=True, limit=np.int32(2), offset=np.int64(1)).to_arrow()["id"].to_pylist() == [1, 2]  # pyright: ignore[reportArgumentType]
    assert table.scan(["id"], order_by="price", limit=0).to_arrow().num_rows == 0


WRONG: dict[str, dict[str, Any]] = {
    "a word": {"order_by": "price UPWARDS"},
    "nothing": {"order_by": []},
    "twice": {"order_by": "price, price DESC"},
    "a number": {"order_by": 5},
    "beside ordered": {"order_by": "price", "ordered": True},
    "a negative offset": {"ordered": True, "offset": -1},
    "an offset without an order": {"offset": 1},
    "an offset as text": {"ordered": True, "offset": "1"},
    "a limit as text": {"limit": "3"},
    "a limit with a fraction": {"limit": 3.0},
    "a limit that is none": {"limit": True},
    "no such column": {"order_by": "prize"},
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_what_cannot_be(table: Table, arguments: dict[str, Any]) -> None:
    with pytest.raises(nyala.StoreError) as refused:
        table.scan(**arguments).to_arrow()
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("x", [-1.0, 2.0, "inf", "nan", None]),
        ("x DESC", ["inf", 2.0, -1.0, "nan", None]),
        ("x NULLS FIRST", [None, "nan", -1.0, 2.0, "inf"]),
        ("x DESC NULLS FIRST", [None, "nan", "inf", 2.0, -1.0]),
    ],
)
@pytest.mark.parametrize("limit", [None, 5])
def test_nan_is_next_to_null(embedded: Database, order: str, expected: list[Any], limit: int | None) -> None:
    for name, kind in (("f", pa.float32()), ("d", pa.float64())):
        made = embedded.create_table(name, pa.schema([("id", pa.int64()), ("x", kind)]), ["id"])
        made.insert({"id": range(5), "x": [2.0, None, float("nan"), float("inf"), -1.0]})
        cells = made.scan(["x"], order_by=order, limit=limit).to_arrow()["x"].to_pylist()
        assert [repr(cell) if isinstance(cell, float) else cell for cell in cells] == [
            each if each is None else repr(float(each)) for each in expected
        ]
