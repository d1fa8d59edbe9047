"""Ranges that come and go while a table is used, through the Python API, embedded and over Flight."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store

SCHEMA = pa.schema([("host", pa.string()), ("time", pa.int64()), ("value", pa.int64())])


def create(db: Database, bounds=((0, 10), (10, 20))) -> Table:
    levels = [nyala.hash("host", buckets=2), nyala.range("time", bounds=bounds)]
    return db.create_table("t", SCHEMA, ["host", "time"], partition_by=levels)


def rows(*times: int) -> list[dict]:
    return [{"host": host, "time": time, "value": time} for time in times for host in ("a", "b", "c")]


def times(table: Table, **spec) -> list[int]:
    return sorted(set(table.scan(["time"], **spec).to_arrow()["time"].to_pylist()))


def ranges(table: Table) -> list:
    return [(each["lower"], each["upper"]) for each in table.describe()["partitions"][-1]["bounds"]]


def test_ranges_come_and_go_in_one_change_with_other_steps(db: Database) -> None:
    table = create(db)
    table.insert(rows(1, 11))
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.insert(rows(25))
    alteration = table.alter().drop_range_partition(0, 10).add_range_partition(20, None)
    told = alteration.add_column("note", "string", read_default="?").apply(if_version=1)
    assert told["schema_version"] == 2
    assert ranges(table) == [([10], [20]), ([20], None)]
    table.insert(rows(25))
    assert times(table) == [11, 25] and times(table, ordered=True) == [11, 25]
    assert table.get(("a", 1)) is None and table.get(("a", 25)) == {"host": "a", "time": 25, "value": 25, "note": None}
    assert table.get(("a", 11)) == {"host": "a", "time": 11, "value": 11, "note": "?"}
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.upsert(rows(1))
    assert table.scan(where="time >= 20").explain()["tablets_to_read"] == 2
    assert len(table.stats()["tablets"]) == 4


def test_a_range_has_hash_levels_of_its_own_and_ends_turned_round(db: Database) -> None:
    table = create(db)
    step = table.alter().add_range_partition(
        29, 39, lower_inclusive=False, upper_inclusive=True, hash=[nyala.hash("host", buckets=5)]
    )
    step.apply()
    assert ranges(table)[-1] == ([30], [40]) and len(table.stats()["tablets"]) == 9
    table.insert(rows(30, 39))
    assert times(table) == [30, 39]
    table.alter().drop_range_partition(30, 40).apply()
    assert times(table) == [] and len(table.stats()["tablets"]) == 4


def test_what_cannot_be_is_refused_and_nothing_changes(db: Database) -> None:
    table = create(db)
    before = table.describe()
    wrong = [
        (table.alter().add_range_partition(5, 12), "overlap"),
        (table.alter().add_range_partition(None, 1), "overlap"),
        (table.alter().add_range_partition(9, 9), "is empty"),
        (table.alter().drop_range_partition(0, 20), "there is no range"),
        (table.alter().drop_range_partition(0, 10).drop_range_partition(0, 10), "step 2 .*there is no range"),
        (table.alter().add_range_partition((1, 2), None), "a value for each of time"),
        (table.alter().widen_column("time", "int64"), "part of the primary key"),
        (table.alter().widen_column("host", "string"), "part of the primary key"),
        (table.alter().add_range_partition(30, 40, hash=[nyala.hash("value", buckets=2)]), "key columns"),
        (table.alter().add_range_partition(30, 40, hash=[nyala.hash("host", buckets=20_000)]), "at most 10,000"),
    ]
    for alteration, why in wrong:
        with pytest.raises(nyala.InvalidArgumentError, match=why):
            alteration.add_column("x", "int8").apply()
    assert table.describe() == before
    plain = db.create_table("plain", SCHEMA, ["host"])
    with pytest.raises(nyala.InvalidArgumentError, match="not partitioned by range"):
        plain.alter().add_range_partition("a", "b").apply()
    with pytest.raises(nyala.ConflictError):
        table.alter().drop_range_partition(0, 10).apply(if_version=7)


def test_a_table_without_any_range_refuses_rows_until_it_gets_one(db: Database) -> None:
    schema = pa.schema([("time", pa.int64()), ("value", pa.int64())])
    levels = [nyala.range("time", bounds=[(0, 10)])]
    table = db.create_table("bare", schema, ["time"], partition_by=levels)
    table.alter().drop_range_partition(0, 10).apply()
    for count in (1, 2, 100):
        with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
            table.upsert([{"time": number, "value": 1} for number in range(count)])
    table.alter().add_range_partition(0, 10).apply()
    assert table.upsert([{"time": number, "value": 1} for number in range(2)]).applied == 2


def test_a_range_dropped_and_added_in_one_change_is_empty(db: Database) -> None:
    table = create(db)
    table.insert(rows(1, 11))
    table.alter().drop_range_partition(0, 10).add_range_partition(0, 5).add_range_partition(5, 10).apply()
    table.alter().drop_range_partition(10, 20).add_range_partition(10, 20).apply()
    assert times(table) == []
    table.insert(rows(1, 6, 11))
    assert times(table) == [1, 6, 11]


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_table_may_have_no_tablet(db: Database, is_hashed: bool) -> None:
    levels = [nyala.hash("host", buckets=2)] if is_hashed else []
    table = db.create_table(
        "t", SCHEMA, ["host", "time"], partition_by=[*levels, nyala.range("time", bounds=[(0, 10)])]
    )
    table.insert(rows(1))
    moment = db.now()
    table.alter().drop_range_partition(0, 10).apply()
    where = "host = 'a' AND time = 1"
    for scan in (table.scan(), table.scan(ordered=True), table.scan(where=where), table.scan(limit=3)):
        assert scan.to_arrow().num_rows == 0
    assert table.scan(as_of=moment).to_arrow().num_rows == 0
    assert table.scan().count() == 0 and table.get(("a", 1)) is None
    assert table.scan(where="time = 1").explain()["tablets"] == 0
    assert table.changes(since=moment).to_arrow().num_rows == 0
    for op in ("insert", "upsert", "delete_ignore", "update"):
        row = {"host": "a", "time": 1} if op == "delete_ignore" else {"host": "a", "time": 1, "value": 1}
        with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
            table.write([row], op)
        with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
            table.write([row], op, atomic=True)
    assert table.maintain("flush")["rows"] == 0 and table.stats()["live_rows"] == 0
    table.alter().add_column("more", "int8").add_range_partition(None, None).apply()
    table.insert(rows(1, 1000))
    assert times(table) == [1, 1000]


def test_a_running_scan_keeps_the_rows_of_a_range_that_was_dropped(embedded: Database) -> None:
    table = create(embedded)
    table.insert(rows(*range(20)))
    table.maintain("flush")
    table.insert([{"host": "z", "time": 5, "value": 0}])
    running = table.scan().to_reader()
    table.alter().drop_range_partition(0, 10).apply()
    assert running.read_all().num_rows == 61
    assert table.scan().count() == 30


def test_dropped_ranges_stay_away_after_a_restart_and_their_ids_are_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with nyala.open(path) as db:
        schema = pa.schema([SCHEMA.field("time"), SCHEMA.field("host"), SCHEMA.field("value")])
        levels = [nyala.range("time", bounds=[(0, 10), (10, 20)])]
        table = db.create_table("t", schema, ["time"], partition_by=levels, unique_key=False)
        table.insert(rows(11))
        table.insert(rows(1))
        table.alter().drop_range_partition(0, 10).apply()
    Store.open(path, StoreOptions(maintenance="off")).close()
    with nyala.open(path) as db:
        table = db.table("t")
        assert ranges(table) == [([10], [20])] and times(table) == [11]
        table.insert(rows(12)[:1])
        assert table.scan(where="time = 12").to_arrow()["auto_incrementing_id"].to_pylist() == [7]


def test_a_range_is_split_in_each_of_its_buckets(db: Database) -> None:
    table = create(db)
    table.insert(rows(*range(20)))
    table.maintain("flush")
    table.upsert([row | {"value": -1} for row in rows(3, 13)])
    before = table.scan(ordered=True).to_arrow()
    assert table.alter().split_partition(5).apply(if_version=1)["schema_version"] == 2
    assert ranges(table) == [([0], [5]), ([5], [10]), ([10], [20])] and len(table.stats()["tablets"]) == 6
    assert table.scan(ordered=True).to_arrow() == before
    assert table.scan(where="time < 5").explain()["tablets_to_read"] == 2
    table.alter().drop_range_partition(0, 5).apply()
    assert times(table) == list(range(5, 20))


def test_a_table_without_ranges_gets_them_by_its_leading_key_columns(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["host", "time"])
    table.insert(rows(*range(20)))
    table.alter().split_partition(("b", 10)).apply()
    assert table.describe()["partitions"] == [
        {
            "range": ["host", "time"],
            "bounds": [{"lower": None, "upper": ["b", 10]}, {"lower": ["b", 10], "upper": None}],
        }
    ]
    table.alter().split_partition("b").apply()
    assert [tablet["live_rows"] for tablet in table.stats()["tablets"]] == [30, 20, 10]
    assert table.scan(where="host = 'b' AND time = 3").explain()["tablets_to_read"] == 1
    assert table.scan(ordered=True).to_arrow().to_pylist() == sorted(
        rows(*range(20)), key=lambda row: (row["host"], row["time"])
    )


def test_a_split_that_cannot_be_is_refused(db: Database) -> None:
    table = create(db)
    before = table.describe()
    wrong = [
        (table.alter().split_partition(10), "lies outside all ranges, or on the bound"),
        (table.alter().split_partition(99), "lies outside all ranges"),
        (table.alter().split_partition((1, "x")), "a value for each of time"),
        (table.alter().split_partition("x"), "time"),
        (table.alter().split_partition(5).add_column("x", "int8"), "cannot be combined with other steps"),
    ]
    for alteration, why in wrong:
        with pytest.raises(nyala.InvalidArgumentError, match=why):
            alteration.apply()
    with pytest.raises(nyala.InvalidArgumentError):
        table.alter().split_partition(None)
    assert table.describe() == before


def test_a_ticket_of_a_tablet_that_was_split_gives_all_of_its_rows(embedded: Database, url: str) -> None:
    table = create(embedded)
    table.insert(rows(*range(20)))
    client = fl.connect(url)
    info = client.get_flight_info(fl.FlightDescriptor.for_command(b'{"table": "t"}'))
    table.alter().split_partition(5).apply()
    parts = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert sorted(map(str, pa.concat_tables(parts).to_pylist())) == sorted(map(str, rows(*range(20))))
