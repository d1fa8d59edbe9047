"""Timestamps outside the years 1 to 9999: they are written, found, changed, restored and shown like any other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

FAR = 1 << 62
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("v", pa.int64()), ("seen", pa.timestamp("us")), ("day", pa.date32())])
MOMENTS = (-(1 << 63), -FAR, FAR, FAR + 1, (1 << 63) - 1)
NOON = dt.datetime(2024, 2, 29, 12)


def moments(*cells: int) -> pa.Array:
    return pa.array(cells, pa.int64()).cast(pa.timestamp("us"))


@pytest.fixture
def table(db: Database) -> Table:
    defaults = {"seen": nyala.ColumnOptions(write_default=FAR, read_default=-FAR)}
    made = db.create_table("t", SCHEMA, ["at"], column_options=defaults)
    made.insert(pa.table({"at": moments(*MOMENTS), "v": pa.array(range(5), pa.int64()), "seen": moments(*MOMENTS)}))
    made.maintain("flush")
    made.update(pa.table({"at": moments(FAR), "v": pa.array([20], pa.int64())}))
    return made


def cells(data: pa.Table, name: str) -> list[int]:
    return data[name].cast(pa.int64()).to_pylist()


def test_rows_are_written_one_by_one_and_in_batches_and_read_back(table: Table) -> None:
    for number, rows in enumerate(
        ([{"at": NOON}], [{"at": FAR + 2}], [{"at": FAR + 3}, {"at": NOON.replace(hour=13)}])
    ):
        assert table.upsert([{**row, "v": number} for row in rows]).applied == len(rows)
    table.upsert({"at": [FAR + 4, FAR + 5], "v": [7, 8]})
    table.upsert(pa.table({"at": moments(FAR + 6)}))
    assert table.get(FAR + 2) == {"at": FAR + 2, "v": 1, "seen": FAR, "day": None}
    assert table.get(NOON) == {"at": NOON, "v": 0, "seen": FAR, "day": None}
    row = table.get({"at": -FAR})
    assert row is not None and row["seen"] == -FAR
    table.upsert([{**row, "v": 100}])
    table.upsert([{**row, "at": FAR + number, "v": 100} for number in range(7, 100)])  # more than go the short way
    assert cells(table.get_many([-FAR, FAR + 99]), "v") == [100, 100]
    assert cells(table.get_many(pa.table({"at": moments(FAR + 6)})), "seen") == [FAR]
    with pytest.raises(nyala.RowErrors, match=r"\(at=4611686018427387904\) is already present"):
        table.insert(pa.table({"at": moments(FAR)}))


@pytest.mark.parametrize(
    ("where", "count"),
    [
        (f"at >= {FAR}", 3),
        (f"at = '{FAR}'", 1),
        (f"at in ({FAR}, {-FAR})", 2),
        ([("at", "=", FAR)], 1),
        ([("at", "in", [FAR, -FAR])], 2),
        (pc.field("at") >= moments(FAR)[0], 3),
        (pc.field("at") >= pa.scalar(FAR, pa.timestamp("us", "UTC")), 3),
        (pc.field("at") >= pa.scalar(1 << 60, pa.timestamp("s")), 0),
        (pc.field("at") < pa.scalar(-(1 << 60), pa.timestamp("ms")), 0),
        (pc.field("at").isin(moments(FAR, -FAR, 0)), 2),
        (pc.field("at") < pa.array([1 << 30], pa.int32()).cast(pa.date32())[0], 5),
        ([("at", "<", dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-2))))], 2),
        ([("at", "<", dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))))], 2),
    ],
    ids=str,
)
def test_filters_compare_with_them(table: Table, where: Any, count: int) -> None:
    assert table.count(where) == count
    assert "where" in str(table.scan(where=where).explain())


def test_statements_change_and_restore_them(db: Database, table: Table) -> None:
    before = db.now()
    assert table.update_where({"v": "v + 1"}, where=pc.field("at") == moments(FAR)[0]).applied == 1
    assert table.update_where({"seen": "at"}, where="at < 0").applied == 2
    table.delete_where(f"at = {FAR + 1}")
    table.delete(pa.table({"at": moments(-FAR)}))
    assert cells(table.changes(before, before=True, ordered=True).to_arrow(), "at") == list(MOMENTS[:4])
    assert table.restore(before).applied == 3
    found = table.scan(ordered=True).to_arrow()
    assert (cells(found, "at"), cells(found, "v"), cells(found, "seen")) == (
        list(MOMENTS),
        [0, 1, 20, 3, 4],
        list(MOMENTS),
    )


def test_restore_reads_again_what_others_change_meanwhile(table: Table, store: Any, monkeypatch: Any) -> None:
    """The rows that change while it computes are named by their keys."""
    before = store.now()
    table.update_where({"v": "0"})
    let_in, calls = store._gate.let_in, []

    def writing_before(*args: Any) -> Any:
        calls.append(args)
        Database(store).table("t").update(pa.table({"at": moments(FAR), "v": pa.array([-1], pa.int64())}))
        return let_in(*args)

    monkeypatch.setattr(store._gate, "let_in", writing_before)
    assert table.restore(before).applied == 4 and calls
    assert cells(table.scan(ordered=True).to_arrow(), "v") == [0, 1, 20, 3, 4]


def test_defaults_outside_the_calendar_are_shown_and_used(table: Table) -> None:
    said = table.alter().add_column("n", "timestamp[us]", read_default=FAR, write_default=-FAR).apply()
    assert [(column["read_default"], column["write_default"]) for column in said["columns"]][2:] == [
        (-FAR, FAR),
        (None, None),
        (FAR, -FAR),
    ]
    table.insert([{"at": NOON}])
    table.insert([{"at": NOON.replace(hour=hour)} for hour in range(3)])
    assert table.count(f"n = {FAR}") == 5 and table.count(pc.field("n") == moments(-FAR)[0]) == 4
    assert cells(table.scan(columns=["n"], order_by=["n"], limit=1).to_arrow(), "n") == [-FAR]
    assert cells(table.scan().aggregate({"most": ("seen", "max"), "least": ("at", "min")}), "least") == [-(1 << 63)]


LAST = dt.datetime.max


@pytest.mark.parametrize(
    ("lower", "upper", "is_inclusive", "inside", "outside"),
    [
        (FAR, FAR + 5, False, FAR + 4, FAR + 5),
        (FAR, FAR + 5, True, FAR + 5, FAR + 6),
        ("2024-01-01", LAST.isoformat(), True, LAST, 253_402_300_800_000_000),
        (LAST.isoformat(), (1 << 63) - 1, False, FAR, (1 << 63) - 1),
        ("-99999999999999999", 0, False, -99_999_999_999_999_999, -100_000_000_000_000_000),
    ],
)
def test_ranges_end_outside_the_calendar(
    db: Database, lower: Any, upper: Any, is_inclusive: bool, inside: Any, outside: Any
) -> None:
    bound = {"lower": [lower], "upper": [upper], "upper_inclusive": is_inclusive}
    table = db.create_table("r", SCHEMA, ["at"], partition_by=[{"range": ["at"], "bounds": [bound]}])
    table.insert([{"at": inside, "v": 1}])
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.insert([{"at": outside, "v": 1}])
    assert table.get(inside) is not None and table.scan(where=[("at", "=", inside)]).count() == 1
    table.alter().add_range_partition(outside, None).apply() if outside != -100_000_000_000_000_000 else None


@pytest.mark.parametrize("write", ["to_pandas", "to_polars", "to_arrow"])
def test_results_leave_as_frames(table: Table, write: str) -> None:
    leave: Callable[[], Any] = getattr(table.scan(), write)
    assert leave().shape == (5, 4)
