"""Filters take the expressions of statements, with one meaning in every kind of read, here and over Flight."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import InvalidArgumentError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
    ]
)
NOON = dt.datetime(2024, 5, 31, 12)
SINCE = [0]
"""The moment before the rows came."""


def cells(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    rows = [
        {
            "id": i,
            "a": None if i % 11 == 0 else i % 7,
            "b": i % 5,
            "x": i / 4,
            "f": 0.1 if i % 3 else 2.5,
            "s": ["Oslo", "OSLO", "bergen", None][i % 4],
            "at": NOON + dt.timedelta(minutes=i),
            "day": dt.date(2024, 5, 31) if i % 2 else None,
            "ok": i % 2 == 0,
        }
        for i in ids
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def one() -> Iterator[Store]:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    SINCE[0] = store.now()
    table = Database(store).create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(cells(0, 200))
    table.maintain("flush")
    table.update({"id": list(range(0, 200, 10)), "a": [100] * 20})
    table.delete({"id": [1, 2, 3]})
    table.maintain("flush_deltas")
    table.insert(cells(200, 40))
    yield store
    store.close()


@pytest.fixture(scope="module")
def url(one: Store) -> Iterator[str]:
    server = FlightServer(one, "grpc://127.0.0.1:0")
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()


@pytest.fixture(params=["embedded", "remote"])
def table(request: pytest.FixtureRequest, one: Store, url: str) -> Iterator[Table]:
    if request.param == "embedded":
        yield Database(one).table("t")
        return
    with connect(url) as db:
        yield db.table("t")


Row = dict[str, Any]
FILTERS: dict[str, Callable[[Row], bool | None]] = {
    "a + b > 7": lambda r: r["a"] is not None and r["a"] + r["b"] > 7,
    "a > b": lambda r: r["a"] is not None and r["a"] > r["b"],
    "NOT a > b": lambda r: r["a"] is not None and not r["a"] > r["b"],
    "s ILIKE 'oslo'": lambda r: r["s"] is not None and r["s"].lower() == "oslo",
    "s NOT ILIKE '%O'": lambda r: r["s"] is not None and not r["s"].lower().endswith("o"),
    "upper(s) = 'OSLO' AND id % 2 = 1": lambda r: r["s"] in ("Oslo", "OSLO") and r["id"] % 2 == 1,
    "CASE WHEN ok THEN a ELSE b END = 4": lambda r: (r["a"] if r["ok"] else r["b"]) == 4,
    "coalesce(a, -1) < 0 OR id = 7": lambda r: r["a"] is None or r["id"] == 7,
    "(a + b) IS NULL": lambda r: r["a"] is None,
    "length(s) IN (4, b)": lambda r: r["s"] is not None and len(r["s"]) in (4, r["b"]),
    "a BETWEEN b AND b + 2": lambda r: r["a"] is not None and r["b"] <= r["a"] <= r["b"] + 2,
    "CASE WHEN b <> 0 AND 12 / b = 4 THEN TRUE END": lambda r: r["b"] == 3,
    "coalesce(a, 12 / nullif(b, 0), 1 / id) > 3": lambda r: (r["a"] or 0) > 3 or (r["a"] is None and 0 < r["b"] < 4),
    "b <> 0 AND 12 / b = 4": lambda r: r["b"] == 3,
    "12 / b = 4 AND b <> 0": lambda r: r["b"] == 3,
    "b = 0 OR 12 / b = 4": lambda r: r["b"] in (0, 3),
    "f = 0.1 AND x = id / 4.0": lambda r: r["id"] % 3 != 0,
    "if(f = 0.1, 1, 2) = 1": lambda r: r["id"] % 3 != 0,
    "day < at AND at < DATE '2024-05-31' + 1": lambda r: r["day"] is not None,
    "extract(minute FROM at) < 10": lambda r: r["at"].minute < 10,
    "CAST(id AS TEXT) LIKE '%7'": lambda r: r["id"] % 10 == 7,
    "ok IS NOT TRUE": lambda r: not r["ok"],
    "ok = (a > 3)": lambda r: r["a"] is not None and r["ok"] == (r["a"] > 3),
    "id < 60 * 2 - 20 AND a * a = b": lambda r: r["id"] < 100 and r["a"] is not None and r["a"] ** 2 == r["b"],
}


def expected(holds: Callable[[Row], bool | None], table: Table) -> list[int]:
    return [row["id"] for row in table.scan(ordered=True).to_arrow().to_pylist() if holds(row)]


@pytest.mark.parametrize("where", FILTERS)
def test_every_kind_of_read_selects_the_same_rows(table: Table, where: str) -> None:
    ids = expected(FILTERS[where], table)
    assert ids or where.startswith("id < 60"), "a filter that selects nothing shows little"
    assert table.scan(["id"], where=where, ordered=True).to_arrow()["id"].to_pylist() == ids
    assert sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist()) == ids
    assert table.count(where) == len(ids)
    assert table.scan(["s"], where=where, order_by="id", limit=3).to_arrow().num_rows == min(3, len(ids))
    total = table.scan(where=where).aggregate({"n": ("*", "count"), "sum": ("id", "sum")}).to_pylist()
    assert total == [{"n": len(ids), "sum": sum(ids) if ids else None}]
    groups = table.scan(where=where).aggregate({"n": ("*", "count")}, ["s"])
    assert sum(groups["n"].to_pylist()) == len(ids)
    changed = table.changes(SINCE[0], where=where).to_arrow()
    assert sorted(changed.filter(pc.equal(changed["_op"], "insert"))["id"].to_pylist()) == ids
    tree = {"op": "not", "arg": {"op": "not", "arg": {"op": "sql", "text": where}}}
    assert table.count(tree) == len(ids)


def test_explain_says_what_is_pushed_and_what_is_evaluated(table: Table) -> None:
    scan = table.scan(["id"], where="id >= 100 + 50 AND a > b AND (id < 190 OR s = upper(s)) AND s IS NOT NULL")
    explained = scan.explain()
    assert explained["filter_pushed"] == ["id >= (100 + 50)", "NOT (s IS NULL)"]
    assert explained["filter_evaluated"] == ["a > b", "(id < 190) OR (s = UPPER(s))"]
    assert "\n  pushed   id >= (100 + 50) AND NOT (s IS NULL)\n  evaluated a > b AND" in str(explained)
    spans = table.scan(where="at > now() - INTERVAL '36 hours' AND at < at + INTERVAL '14' DAY").explain()
    assert spans["filter_pushed"] == ["at > (NOW() - INTERVAL '36' HOUR)"]
    assert spans["filter_evaluated"] == ["at < (at + INTERVAL '2' WEEK)"]
    assert explained["key_range"]["lower"] is not None
    assert sorted(explained["columns_read"]) == ["a", "b", "id", "s"]
    assert "evaluated" not in str(table.scan(where="id > 3").explain())


def test_parts_that_compare_with_literals_still_skip_pages(one: Store) -> None:
    wide = Database(one).create_table("wide", pa.schema([("id", pa.int64()), ("n", pa.int64())]), ["id"])
    wide.insert({"id": list(range(140_000)), "n": [i // 65_536 for i in range(140_000)]})
    wide.maintain("flush")
    explained = wide.scan(["id"], where="n = 2 - 1 AND id % 1000 = n").explain()
    assert (explained["chunks"], explained["chunks_pruned_by_zone_map"]) == (3, 2)
    assert wide.count("n = 2 - 1 AND id % 1000 = n") == 66
    assert wide.scan(where="id = 7 AND n < id").explain()["key_range"]["lower"] is not None
    assert wide.scan(where="id = 7 AND n < id").to_arrow().to_pylist() == [{"id": 7, "n": 0}]
    wide.update_where({"n": "id"}, where="id = 7 AND n < id")
    assert wide.count("n = id") == 2  # 0 and 7


def test_now_is_the_time_of_the_snapshot(table: Table) -> None:
    moment = NOON.replace(tzinfo=dt.UTC) + dt.timedelta(minutes=30, seconds=30)
    count = table.count("at > now() - INTERVAL '1' HOUR")
    assert count == 0
    microseconds = int(moment.timestamp() * 1_000_000)
    spec = table.scan(["id"], where="at > now() - INTERVAL '10' MINUTE AND at <= now()")._spec
    scan = type(table.scan())(table._store, spec.model_copy(update={"now": microseconds << 12}))
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(21, 31))


def test_rows_that_are_gone_or_ruled_out_are_not_evaluated(db_of: Callable[[], Table]) -> None:
    table = db_of()
    table.insert({"id": [1, 2, 3, 4], "n": [0, 1, 2, 0]})
    table.maintain("flush")
    table.delete({"id": [1]})
    with pytest.raises(InvalidArgumentError, match="division by zero; write NULLIF"):
        table.count("10 / n > 4")
    table.update({"id": [4], "n": [10]})
    assert table.count("10 / n > 4") == 2
    table.insert({"id": [5], "n": [0]})
    assert table.count("id < 5 AND 10 / n > 4") == 2
    assert table.count("10 / n > 4 AND (id = 1 OR id BETWEEN 2 AND 4)") == 2
    assert table.count("10 / nullif(n, 0) > 4") == 2


@pytest.fixture
def db_of(one: Store) -> Iterator[Callable[[], Table]]:
    def make() -> Table:
        return Database(one).create_table("small", pa.schema([("id", pa.int64()), ("n", pa.int64())]), ["id"])

    yield make
    Database(one).drop_table("small")


def test_statements_take_such_conditions(db_of: Callable[[], Table]) -> None:
    table = db_of()
    table.insert({"id": list(range(10)), "n": [i % 4 for i in range(10)]})
    assert table.update_where({"n": "n + id"}, where="n * 2 > id").applied == 3
    assert table.delete_where("id % 2 = n % 2").applied == 8
    assert table.count() == 2


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("a + s > 3", r"'\(a \+ s\) > 3': \+ takes numbers, not text"),
        ("a = s", "an integer and text cannot be compared"),
        ("upper(s)", "a condition must be true or false, not text"),
        ("a + 1", "a condition must be true or false, not an integer"),
        ("a + nothing > 3", "no column 'nothing'"),
        ("a > 1 AND year(s) = 1", "YEAR takes a date or a timestamp, not text"),
        ("a + 1 > 'x'", "an integer cannot be compared with 'x'; expected a number"),
        ("length(s) IN ('x')", "an integer cannot be compared with 'x'"),
        ({"op": "sql", "text": "a >"}, "invalid filter at character 4"),
    ],
)
def test_what_has_no_meaning_is_refused_before_rows_are_read(table: Table, where: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        table.scan(where=where).explain()
    with pytest.raises(InvalidArgumentError, match=why):
        table.count(where)
