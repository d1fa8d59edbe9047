"""Aggregates through the front door: in this process and over Flight, from memory, disk and under deltas."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.aggregate import merge
from nyala.engine.aggregate.merge import Merger
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan import few_groups
from nyala.engine.store import Store
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.scan import ScanSpec

ROWS = [
    {"id": 1, "city": "Oslo", "price": 1.5, "cents": Decimal("0.10"), "small": 1, "ok": True, "raw": b"\0"},
    {"id": 2, "city": "Oslo", "price": None, "cents": None, "small": -5, "ok": None, "raw": b""},
    {"id": 3, "city": None, "price": math.nan, "cents": Decimal("-7.25"), "small": None, "ok": False, "raw": None},
    {"id": 4, "city": "Bergen", "price": math.inf, "cents": Decimal("99999999.99"), "small": 7, "ok": True},
    {"id": 5, "city": "", "price": -0.0, "cents": Decimal("0.00"), "small": 7, "day": dt.date(2024, 5, 1)},
]


@pytest.fixture(params=["memory", "disk", "deltas"])
def filled(homes: Table, request: pytest.FixtureRequest) -> Table:
    """The rows, in each place where rows can be."""
    columns = homes.schema.names
    rows = [{name: row.get(name) for name in columns} for row in ROWS]
    if request.param == "deltas":
        homes.insert([{**row, "price": 8.0, "city": "?", "small": 100} for row in rows])
        homes.insert({"id": [6, 7]})
        homes.maintain("flush")
        homes.delete({"id": [6, 7]})
        homes.upsert(rows)
    else:
        homes.insert(rows)
    if request.param == "disk":
        homes.maintain("flush")
    return homes


def one(table: Table, measures: dict[str, tuple[str, str]], where: str | None = None) -> dict[str, Any]:
    (row,) = table.scan(where=where).aggregate(measures).to_pylist()
    return row


def test_every_function_of_every_type_that_has_it(filled: Table) -> None:
    assert one(filled, {"n": ("*", "count"), "known": ("city", "count")}) == {"n": 5, "known": 4}
    assert one(filled, {"a": ("id", "sum"), "b": ("small", "sum"), "c": ("cents", "sum")}) == {
        "a": Decimal(15),
        "b": 10,
        "c": Decimal("99999992.84"),
    }
    assert one(filled, {"a": ("id", "avg"), "b": ("small", "avg"), "c": ("cents", "avg")}) == {
        "a": 3.0,
        "b": 2.5,
        "c": 24999998.21,
    }
    bounds = {name: (name, "min") for name in ("id", "city", "cents", "small", "ok", "raw", "day", "at")}
    assert one(filled, bounds) == {
        "id": 1,
        "city": "",
        "cents": Decimal("-7.25"),
        "small": -5,
        "ok": False,
        "raw": b"",
        "day": dt.date(2024, 5, 1),
        "at": None,
    }
    bounds = {name: (name, "max") for name in ("id", "city", "cents", "small", "ok", "raw")}
    assert list(one(filled, bounds).values()) == [5, "Oslo", Decimal("99999999.99"), 7, True, b"\0"]


def test_floats(filled: Table) -> None:
    whole = one(filled, {"low": ("price", "min"), "high": ("price", "max"), "total": ("price", "sum")})
    assert (whole["low"], whole["high"]) == (0.0, math.inf), "a NaN is passed over"
    assert math.isnan(whole["total"])
    only_nan = one(filled, {"low": ("price", "min"), "mean": ("price", "avg")}, "id = 3")
    assert math.isnan(only_nan["low"]) and math.isnan(only_nan["mean"])
    assert one(filled, {"low": ("price", "min"), "total": ("price", "sum")}, "id = 2") == {"low": None, "total": None}


def test_of_no_rows_all_but_count_is_null(filled: Table) -> None:
    for where in ("id = 9", "id = 9 or city = 'x'", "FALSE"):
        found = one(
            filled, {"n": ("*", "count"), "m": ("city", "count"), "s": ("id", "sum"), "b": ("city", "max")}, where
        )
        assert found == {"n": 0, "m": 0, "s": None, "b": None}
        assert filled.scan(where=where).aggregate({"n": ("*", "count")}, ["city"]).num_rows == 0


def test_groups_are_null_too(filled: Table) -> None:
    found = filled.scan().aggregate({"n": ("*", "count"), "s": ("small", "sum")}, group_by=["city"])
    assert found.schema.names == ["city", "n", "s"]
    assert {row["city"]: (row["n"], row["s"]) for row in found.to_pylist()} == {
        "Oslo": (2, -4),
        None: (1, None),
        "Bergen": (1, 7),
        "": (1, 7),
    }
    pairs = filled.scan(where="id < 4").aggregate({}, ["ok", "city"]).to_pylist()
    assert sorted(pairs, key=str) == sorted(
        [{"ok": True, "city": "Oslo"}, {"ok": None, "city": "Oslo"}, {"ok": False, "city": None}], key=str
    )


def test_all_nan_are_one_group_and_both_zeros(homes: Table) -> None:
    cells = [math.nan, -math.nan, 0.0, -0.0, 1.0]
    homes.insert({"id": range(5), "price": cells})
    homes.maintain("flush")
    homes.insert({"id": range(5, 10), "price": cells})
    counts = homes.scan().aggregate({"n": ("*", "count")}, ["price"])["n"].to_pylist()
    assert sorted(counts) == [2, 4, 4]


def test_sums_are_exact_beyond_64_bits(db: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("d", pa.decimal128(38, 2))])
    table = db.create_table("wide", schema, ["id"])
    big, small = Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")
    numbers = [2**63 - 1, 2**63 - 1, -(2**63), 1, -1, None]
    amounts = [big, small, Decimal("0.01"), Decimal(2) ** 64, Decimal(-(2**64)), None]
    table.insert(pa.table({"id": range(6), "n": numbers, "d": amounts}, schema))
    table.maintain("flush")
    sums = {"n": ("n", "sum"), "d": ("d", "sum"), "low": ("d", "min"), "high": ("d", "max")}
    assert one(table, sums) == {"n": Decimal(2**63 - 2), "d": Decimal("0.01"), "low": small, "high": big}
    table.upsert(pa.table({"id": [1, 2], "d": [big, big]}, pa.schema([schema.field("id"), schema.field("d")])))
    with pytest.raises(nyala.InvalidArgumentError, match="'d' has more than 38 digits"):
        one(table, sums)


def test_at_a_snapshot(filled: Table) -> None:
    before = filled.scan().aggregate({"n": ("*", "count"), "high": ("small", "max")}).to_pylist()
    moment = filled.update({"id": [1], "city": ["Oslo"]}).timestamp
    filled.update({"id": [4, 5], "small": [50, 60]})
    filled.delete({"id": [1]})
    filled.maintain("flush")
    assert filled.scan(as_of=moment).aggregate({"n": ("*", "count"), "high": ("small", "max")}).to_pylist() == before
    assert one(filled, {"n": ("*", "count"), "high": ("small", "max")}) == {"n": 4, "high": 60}


def test_count_is_that_of_the_rows(filled: Table) -> None:
    for where in (None, "city = 'Oslo'", "id > 1", "price is null", "FALSE"):
        assert filled.scan(where=where).count() == filled.scan(where=where).to_arrow().num_rows
    assert filled.scan(limit=2).count() == 2
    assert filled.scan(columns=["city"], ordered=True).count() == 5
    assert filled.changes(since=filled._store.now()).count() == 0


@pytest.mark.parametrize(
    ("measures", "group_by", "why"),
    [
        ({"s": ("city", "sum")}, [], "'s': column 'city' has the type string; sum needs numbers"),
        ({"s": ("ok", "avg")}, [], "avg needs numbers"),
        ({"s": ("*", "max")}, [], r"only count takes '\*'"),
        ({"s": ("price", "median")}, [], "'s': unknown aggregate function 'median'; known: count, sum"),
        ({"s": ("town", "max")}, [], "no column 'town'"),
        ({"s": ("price", "max")}, ["town"], "no column 'town'"),
        ({"city": ("price", "max")}, ["city"], "two columns named 'city'"),
        ({}, [], "needs a measure"),
        ({"s": "price"}, [], "must be {name: "),
        ({"s": ("price", "max")}, "town", "no column 'town'"),
    ],
    ids=str,
)
def test_what_cannot_be(homes: Table, measures: Any, group_by: Any, why: str) -> None:
    with pytest.raises((nyala.InvalidArgumentError, nyala.NotFoundError), match=why):
        homes.scan().aggregate(measures, group_by)


def test_limit_and_changes_do_not_go_with_it(homes: Table) -> None:
    for scan in (homes.scan(limit=1), homes.changes(since=homes._store.now())):
        with pytest.raises(nyala.InvalidArgumentError, match="cannot be combined with aggregate"):
            scan.aggregate({"n": ("*", "count")})


def test_more_groups_than_memory_is_allowed_for() -> None:
    options = StoreOptions(maintenance="off", limits=Limits(aggregate_bytes=100_000))
    with Store.open(MemoryFileSystem(), options) as store:
        table = Database(store).create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), ["id"])
        table.insert({"id": range(20_000)})
        assert table.scan(where="id < 2000").aggregate({"n": ("*", "count")}, ["id"]).num_rows == 2000
        with pytest.raises(nyala.InvalidArgumentError, match=r"20,000 groups so far.*aggregate_bytes"):
            table.scan().aggregate({"n": ("*", "count")}, ["id"])


def test_many_groups_by_many_columns(homes: Table) -> None:
    """More combinations than 62 bits number, and more groups than a chunk has slots for."""
    count = 5_000
    homes.insert({"id": range(count), "city": [f"c{n}" for n in range(count)], "price": [n / 2 for n in range(count)]})
    keys = ["id", "city", "price", "small", "raw", "day", "at", "cents", "ok"]
    found = homes.scan().aggregate({"n": ("*", "count")}, keys)
    assert found.num_rows == count and set(found["n"].to_pylist()) == {1}
    assert sorted(found["city"].to_pylist()) == sorted(f"c{n}" for n in range(count))


def test_over_the_wire_it_is_one_ticket(remote: Database, url: str) -> None:
    homes = remote.create_table("homes", pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string())]), ["id"])
    homes.insert({"id": [1, 2, 3], "city": ["Oslo", "Oslo", "Bergen"]})
    asked = json.dumps({"table": "homes", "aggregate": {"n": ["*", "count"]}, "group_by": ["city"]})
    with fl.connect(url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(asked))
        (endpoint,) = info.endpoints
        assert info.schema == pa.schema([("city", pa.string()), pa.field("n", pa.int64(), False)])
        homes.delete({"id": [1]})
        for ticket, oslo in ((endpoint.ticket, 2), (fl.Ticket(asked), 1)):
            rows = client.do_get(ticket).read_all().to_pylist()
            assert sorted(rows, key=str) == [{"city": "Bergen", "n": 1}, {"city": "Oslo", "n": oslo}], "pinned or now"
        for wrong, why in (
            ({"group_by": ["city"]}, "group_by needs aggregate"),
            ({"partial": True}, "partial needs aggregate"),
            ({"aggregate": {"m": ["id", "avg"]}, "partial": True}, "'m': avg cannot be combined from parts"),
            ({"aggregate": {"n": ["*", "count"]}, "columns": ["city"]}, "columns cannot be combined with aggregate"),
            ({"aggregate": {"n": ["*", "count"]}, "ordered": True}, "combined with ordered or tablet"),
        ):
            with pytest.raises(fl.FlightServerError, match=why):
                client.do_get(fl.Ticket(json.dumps({"table": "homes", **wrong})))


@pytest.mark.parametrize("is_crowded", [False, True])
def test_partial_answers_of_all_parts_add_up(
    remote: Database, url: str, monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    monkeypatch.setattr(few_groups, "FEW", 100)
    if is_crowded:
        monkeypatch.setattr(merge, "_MERGE_ROWS", 100)
    schema = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string()), ("n", pa.int64())])
    homes = remote.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    homes.insert({"id": range(4_000), "city": [f"c{n % 700}" for n in range(4_000)], "n": range(4_000)})
    homes.maintain("flush")
    measures = {"n": ("*", "count"), "s": ("n", "sum"), "low": ("n", "min"), "high": ("n", "max")}
    asked = {"table": "homes", "aggregate": measures, "group_by": ["city"], "partial": True, "split_bytes": 5_000}
    with fl.connect(url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(asked)))
        assert len(info.endpoints) > 3, "tablets are read in parts"
        assert "groups_at_most" not in json.loads(info.app_metadata)
        homes.delete({"id": [0]})
        parts = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    added = (
        pa.concat_tables(parts)
        .group_by("city")
        .aggregate([("n", "sum"), ("s", "sum"), ("low", "min"), ("high", "max")])
    )
    found = {row["city"]: tuple(row.values())[1:] for row in added.to_pylist()}
    numbers = {f"c{n}": list(range(n, 4_000, 700)) for n in range(700)}
    assert found == {city: (len(some), sum(some), some[0], some[-1]) for city, some in numbers.items()}


def test_few_groups_are_combined_by_the_server(remote: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan says so: its only ticket has each group once."""
    monkeypatch.setattr(merge, "_MERGE_ROWS", 5)
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
    homes = remote.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    homes.insert({"id": range(4_000), "n": [None if n % 7 == 3 else n % 7 for n in range(4_000)]})
    asked = {"table": "homes", "aggregate": {"c": ("*", "count"), "s": ("id", "sum")}, "group_by": ["n"]}
    asked |= {"partial": True, "split_bytes": 5_000}
    with fl.connect(url) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(asked)))
        homes.update({"id": range(100), "n": [9] * 100})
        homes.maintain("flush")
        (endpoint,) = info.endpoints
        found = client.do_get(endpoint.ticket).read_all()
        assert json.loads(info.app_metadata)["groups_at_most"] == 7 + 1 and found.schema == info.schema
        of_parts = client.do_get(fl.Ticket(json.dumps({**asked, "key_lower": "8000000000000f00"}))).read_all()
    numbers = {None if n == 3 else n: list(range(n, 4_000, 7)) for n in range(7)}
    expected = {n: (len(some), sum(some)) for n, some in numbers.items()}
    assert found.num_rows == 7 and {row["n"]: (row["c"], row["s"]) for row in found.to_pylist()} == expected
    assert sum(of_parts["c"].to_pylist()) == 4_000 - 0xF00


def test_partial_answers_are_not_limited_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_MERGE_ROWS", 1_000)
    options = StoreOptions(maintenance="off", limits=Limits(aggregate_bytes=10_000))
    with Store.open(MemoryFileSystem(), options) as store:
        table = Database(store).create_table("t", pa.schema([("id", pa.int64()), ("v", pa.int64())]), ["id"])
        table.insert({"id": range(300_000), "v": [n % 150_000 for n in range(300_000)]})
        spec = ScanSpec(table="t", aggregate={"n": ("*", "count")}, group_by=["v"])
        with pytest.raises(nyala.InvalidArgumentError, match="group by fewer columns"):
            list(store.scan(spec).batches)
        batches = list(store.scan(spec.model_copy(update={"partial": True})).batches)
        assert len(batches) > 1
        counts = pa.Table.from_batches(batches).group_by("v").aggregate([("n", "sum")])
        assert counts.num_rows == 150_000 and set(counts["n_sum"].to_pylist()) == {2}


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(20, 0)])
def test_sums_of_billions_of_rows_are_exact(db: Database, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType) -> None:
    """Answers of few rows are added up so often that they stand for 4.6 billion."""
    real, times = Merger.add, 70_000
    monkeypatch.setattr(Merger, "add", lambda self, partial: real(self, pa.concat_tables([partial] * times)))
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    table = db.create_table("minus", schema, ["id"])
    table.insert({"id": list(range(65_536)), "v": [-1] * 65_536})
    table.maintain("flush")
    found = table.scan().aggregate({"s": ("v", "sum"), "a": ("v", "avg")}).to_pylist()
    assert found == [{"s": Decimal(-65_536 * times), "a": -1.0}]
