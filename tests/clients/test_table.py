"""Database and Table, in this process and over Flight: the same calls, the same answers, the same errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.cells.timestamp import datetime_of

NOON = dt.datetime(2026, 1, 31, 12)
ROW = {
    "id": 1,
    "city": "Oslo",
    "price": 2.5,
    "at": NOON,
    "day": NOON.date(),
    "cents": Decimal("1.25"),
    "small": -3,
    "raw": b"\x00\xff",
    "ok": True,
}


def ids(table: Table, **scan: Any) -> list[int]:
    return table.scan(columns=["id"], ordered=True, **scan).to_arrow()["id"].to_pylist()


def test_tables_come_and_go(db: Database) -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int32()})
    options = {"v": nyala.ColumnOptions(encoding="plain", compression="lz4")}
    made = db.create_table("b", schema, ["k"], column_options=options, history_max_age_seconds=60)
    assert (made.name, made.primary_key) == ("b", ["k"])
    assert made.schema.field("k").nullable is False
    assert made.describe()["columns"][1]["encoding"] == "plain"
    assert made.describe()["options"]["history_max_age_seconds"] == 60
    db.create_table("a", schema, ["k"])
    assert db.tables() == ["a", "b"]
    with pytest.raises(nyala.AlreadyPresentError):
        db.create_table("a", schema, ["k"])
    assert db.create_table("a", schema, ["k"], if_not_exists=True).name == "a"
    db.drop_table("a")
    assert db.tables() == ["b"]
    with pytest.raises(nyala.NotFoundError):
        db.table("a")
    with pytest.raises(nyala.NotFoundError):
        db.drop_table("a")


@pytest.mark.parametrize(
    "arguments",
    [
        {"schema": pa.schema({"k": pa.duration("s")})},
        {"schema": {"k": "int64"}},
        {"primary_key": []},
        {"primary_key": "v"},
        {"primary_key": ["v"]},
        {"column_options": {"x": {}}},
        {"column_options": {"k": {"encodng": "plain"}}},
        {"column_options": {"k": {"encoding": "prefix"}}},
        {"partition_by": [{"hash": ["k"]}]},
        {"history_max_age": 3},
        {"maintenance": "sometimes"},
        {"name": ""},
        {"name": 5},
    ],
)
def test_wrong_table(db: Database, arguments: dict[str, Any]) -> None:
    good = {"name": "t", "schema": pa.schema({"k": pa.int64(), "v": pa.int64()}), "primary_key": ["k"]}
    with pytest.raises(nyala.InvalidArgumentError):
        db.create_table(**good | arguments)
    assert db.tables() == []


def test_row_of_every_type(homes: Table) -> None:
    homes.insert([ROW])
    assert homes.get((1,)) == ROW
    assert homes.get({"id": 1}) == ROW
    assert homes.get([2]) is None
    assert homes.get(1) == ROW and homes.get(2) is None
    assert homes.scan().to_arrow().to_pylist() == [ROW]
    assert homes.scan().to_arrow().schema.equals(homes.schema, check_metadata=True)


def test_eight_operations(homes: Table) -> None:
    two = {"id": [1, 2], "price": [1.0, 2.0]}
    three = {"id": [1, 2, 3], "price": [10.0, 20.0, 30.0]}
    assert homes.insert(two).applied == 2
    ignored = homes.insert_ignore(three)
    assert (ignored.applied, ignored.ignored) == (1, 2)
    assert homes.upsert({"id": [1], "city": ["Oslo"]}).applied == 1
    assert homes.get((1,)) == dict.fromkeys(ROW) | {"id": 1, "price": 1.0, "city": "Oslo"}
    assert homes.upsert_ignore({"id": [4], "price": [4.0]}).applied == 1
    assert homes.update({"id": [4], "price": [5.0]}).applied == 1
    missing = homes.update_ignore({"id": [4, 9], "price": [6.0, 9.0]})
    assert (missing.applied, missing.ignored) == (1, 1)
    assert homes.delete({"id": [1]}).applied == 1
    gone = homes.delete_ignore({"id": [1, 2]})
    assert (gone.applied, gone.ignored) == (1, 1)
    assert ids(homes) == [3, 4]
    assert homes.write({"id": [7]}, "insert").applied == 1
    with pytest.raises(nyala.InvalidArgumentError, match="upsert_ignore"):
        homes.write({"id": [7]}, "blend")


def test_refused_rows_are_raised_and_their_neighbours_applied(homes: Table) -> None:
    homes.insert({"id": [3]})
    with pytest.raises(nyala.RowErrors, match="ALREADY_PRESENT") as caught:
        homes.insert({"id": [1, 3, 5]})
    result = caught.value.result
    assert (result.rows, result.applied, result.error_count) == (3, 2, 1)
    assert (result.errors[0].row, result.errors[0].code) == (1, "ALREADY_PRESENT")
    assert ids(homes) == [1, 3, 5]
    returned = homes.insert({"id": [3]}, on_error="return")
    assert returned.error_count == 1 and returned.timestamp > 0
    with pytest.raises(nyala.InvalidArgumentError):
        homes.insert({"id": [3]}, on_error="ignore")  # pyright: ignore[reportArgumentType]


def test_atomic_is_all_or_nothing(homes: Table) -> None:
    homes.insert({"id": [150_000]})
    with pytest.raises(nyala.RowErrors) as caught:
        homes.insert({"id": range_of(200_000)}, atomic=True)
    assert caught.value.result.applied == 0
    assert homes.scan().count() == 1


def test_error_rows_count_over_all_the_data(homes: Table) -> None:
    taken = [5, 70_000, 199_999]
    homes.insert({"id": taken})
    result = homes.insert({"id": range_of(200_000)}, on_error="return")
    assert [error.row for error in result.errors] == taken
    assert (result.rows, result.applied, result.error_count) == (200_000, 199_997, 3)
    assert homes.scan(as_of=result.timestamp).count() == 200_000


def range_of(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


@pytest.mark.parametrize("empty", [[], {"id": []}, pd.DataFrame({"id": []})])
def test_write_of_nothing(homes: Table, empty: Any) -> None:
    result = homes.upsert(empty)
    assert (result.rows, result.applied) == (0, 0) and result.timestamp > 0


def test_data_that_breaks_in_the_middle_says_how_far_it_came(homes: Table) -> None:
    def batches():
        whole = pa.record_batch({"at": pa.array(["2024-01-01"] * 65_536), "id": range_of(65_536)})
        yield from (whole,) * 3
        yield pa.record_batch({"at": ["noon"], "id": [9]})

    schema = pa.schema({"at": pa.string(), "id": pa.int64()})
    with pytest.raises(nyala.InvalidArgumentError, match="'at'"):
        homes.upsert(pa.RecordBatchReader.from_batches(schema, batches()))
    assert homes.scan(where="at IS NOT NULL").count() in (0, 65_536)
    homes.upsert({"id": [1]})


def test_values_that_do_not_fit_refuse_their_rows_and_no_others(homes: Table) -> None:
    count = 150_000
    small = np.arange(count, dtype=np.int64) % 1000
    small[[5, 70_000, 149_999]] = 100_000
    data = pa.table({"small": small, "id": np.arange(count)})
    result = homes.upsert(data, on_error="return")
    assert (result.applied, result.error_count) == (count - 3, 3)
    assert [(error.row, error.code) for error in result.errors] == [
        (row, "INVALID_ARGUMENT") for row in (5, 70_000, 149_999)
    ]
    assert "'small' is int16, whole numbers from -32,768 to 32,767" in result.errors[0].message
    assert homes.scan().count() == count - 3
    with pytest.raises(nyala.RowErrors, match="3 of 150,000 rows rejected: row 5"):
        homes.delete_ignore({"id": np.arange(count)})
        homes.insert(data, atomic=True)
    assert homes.scan().count() == 0


def test_time_travel(homes: Table, db: Database) -> None:
    first = homes.insert({"id": [1, 2]})
    between = db.now()
    homes.delete({"id": [1]})
    assert ids(homes) == [2]
    assert ids(homes, as_of=first.timestamp) == ids(homes, as_of=between) == [1, 2]
    assert ids(homes, as_of=db.now()) == [2]
    assert ids(homes, as_of=datetime_of(db.now() + (1 << 12))) == [2]
    assert ids(homes, as_of=datetime_of(db.now() + (1 << 12)).isoformat()) == [2]
    with pytest.raises(nyala.SnapshotTooOldError):
        ids(homes, as_of="2001-01-01T00:00:00Z")
    for wrong in (NOON, "noon", -1, True):
        with pytest.raises(nyala.InvalidArgumentError):
            homes.scan(as_of=wrong)


def test_scan_in_every_shape(homes: Table) -> None:
    homes.insert({"id": range_of(5000), "city": [f"city {i % 3}" for i in range(5000)]})
    scan = homes.scan(columns=["city", "id"], where="id < 4000 and city = 'city 1'", ordered=True)
    expected = list(range(1, 4000, 3))
    assert scan.to_arrow()["id"].to_pylist() == expected
    assert scan.to_reader().read_all()["id"].to_pylist() == expected
    assert [value for batch in scan for value in batch["id"].to_pylist()] == expected
    assert scan.to_pandas()["id"].tolist() == expected
    assert scan.to_polars()["id"].to_list() == expected
    assert pl.DataFrame(scan)["id"].to_list() == expected
    assert pa.table(scan).column_names == ["city", "id"]
    assert scan.count() == len(expected)
    assert homes.scan(limit=7).count() == 7
    assert homes.scan(columns=[]).to_arrow().num_columns == 0
    about = scan.explain()
    assert about["schema_version"] == 1 and about["snapshot"] > 0 and about["splits"][0]["rows"] > 0


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id in (1, 3)", [1, 3]),
        ({"op": ">=", "column": "at", "value": NOON}, [2, 3]),
        ({"op": "or", "args": [{"op": "=", "column": "raw", "value": b"\xff1"}]}, [1]),
        ([("id", ">", 1), ("id", "<", 3)], [2]),
        ([[("id", "=", 1)], [("id", "=", 3)]], [1, 3]),
        ([("at", "<", NOON)], [1]),
        ([("id", "in", {1, 2})], [1, 2]),
        (None, [1, 2, 3]),
    ],
)
def test_filter_in_every_form(homes: Table, where: Any, expected: list[int]) -> None:
    moments = [NOON - dt.timedelta(1), NOON, NOON + dt.timedelta(1)]
    homes.insert({"id": [1, 2, 3], "at": moments, "raw": [b"\xff1", b"\xff2", b"\xff3"]})
    assert ids(homes, where=where) == expected


def test_a_filter_of_an_unknown_form_is_refused_with_what_works(homes: Table) -> None:
    with pytest.raises(
        nyala.InvalidArgumentError, match=r"type set: give SQL text .* list of tuples, as in .* pc.field"
    ):
        homes.scan(where={"id"})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("where", [5, ("id", "=", 1), [("id", "~", 1)], [5], {"op": "=", "column": "id", "value": {1}}])
def test_filter_of_a_wrong_form(homes: Table, where: Any) -> None:
    with pytest.raises(nyala.InvalidArgumentError):
        homes.scan(where=where)


@pytest.mark.parametrize(
    "arguments",
    [{"where": "id ="}, {"where": "town = 1"}, {"columns": ["town"]}, {"where": {"op": "nor"}}, {"where": "id = 'x'"}],
)
def test_scan_that_cannot_run(homes: Table, arguments: dict[str, Any]) -> None:
    with pytest.raises((nyala.InvalidArgumentError, nyala.NotFoundError)):
        homes.scan(**arguments).to_arrow()


@pytest.mark.parametrize("arguments", [{"columns": ["id", "id"]}, {"limit": -1}])
def test_scan_of_wrong_arguments(homes: Table, arguments: dict[str, Any]) -> None:
    with pytest.raises(nyala.InvalidArgumentError):
        homes.scan(**arguments)


def test_scan_that_is_left_early(homes: Table) -> None:
    homes.insert({"id": range_of(300_000)})
    for _ in range(5):
        for batch in homes.scan():
            assert batch.num_rows
            break
    assert homes.scan().count() == 300_000


@pytest.mark.parametrize(
    "key", [(), (1, 2), {"city": "x"}, {}, None, "x", 1.5, (None,), ("x",), (1.5,), {"id": 1, "city": ""}]
)
def test_what_is_no_key(homes: Table, key: Any) -> None:
    with pytest.raises(nyala.InvalidArgumentError):
        homes.get(key)


def test_keys_of_several_columns(db: Database) -> None:
    schema = pa.schema({"at": pa.timestamp("us"), "who": pa.string(), "n": pa.int32()})
    table = db.create_table("t", schema, ["at", "who"])
    table.insert({"at": [NOON, NOON], "who": ["a", "b"], "n": [1, 2]})
    assert table.get((NOON, "b")) == {"at": NOON, "who": "b", "n": 2}
    assert table.get({"who": "a", "at": NOON.isoformat()}) == {"at": NOON, "who": "a", "n": 1}
    assert table.get((NOON, "c")) is None
    for key in (NOON, "a", None, ("a",)):
        with pytest.raises(nyala.InvalidArgumentError, match="as a dict or a tuple"):
            table.get(key)
    names = db.create_table("names", pa.schema({"who": pa.string(), "n": pa.int32()}), ["who"])
    names.insert({"who": ["ab"], "n": [1]})
    assert names.get("ab") == names.get(("ab",)) == {"who": "ab", "n": 1}


def test_stats_and_maintenance(homes: Table) -> None:
    homes.insert({"id": range_of(100)})
    assert homes.maintain("flush")["rows"] == 100
    about = homes.stats()
    assert about["live_rows"] == 100 and about["bytes_on_disk"] > 0
    assert about["tablets"][0]["rowsets"] == 1
    with pytest.raises(nyala.InvalidArgumentError):
        homes.maintain("explode")


def test_table_to_table(homes: Table, db: Database) -> None:
    homes.insert({"id": range_of(1000)})
    copy = db.create_table("copy", homes.schema, ["id"])
    assert copy.insert(homes.scan()).applied == 1000


def test_what_is_closed_says_so(db: Database, homes: Table) -> None:
    db.close()
    with pytest.raises((nyala.UnavailableError, nyala.InvalidArgumentError)):
        homes.scan().to_arrow()
    db.close()


@pytest.mark.parametrize(("where", "ids"), [("name = '' or tiny > 127", []), ("name = 'x' or tiny > 127", [0])])
def test_zone_maps_of_a_column_that_the_filter_lost_tell_nothing(db: Database, where: str, ids: list[int]) -> None:
    """``tiny > 127`` is never true of an int8 and goes; that it is NULL everywhere does not make the rest true."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tiny", pa.int8())])
    table = db.create_table("lost", schema, ["id"])
    table.insert(pa.table({"id": [0, 1], "name": ["x", "y"], "tiny": [None, None]}, schema))
    table.maintain("flush")
    found = table.scan(["id"], where=where)
    assert found.to_arrow()["id"].to_pylist() == ids
    assert found.count() == len(ids)
