"""The short way of single rows gives what the long way gives, or leaves the rows to it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert.few_rows import ROWS_MAX, FewRows, few_as_they_are
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, RowErrors
from nyala.schemas.limits.limits import Limits

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i32", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("v", pa.string()),
        ("x", pa.binary()),
        ("t", pa.timestamp("us")),
        ("day", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        pa.field("must", pa.int16(), False),
    ]
)
DAY = dt.date(2026, 1, 1)
CELLS: dict[str, list[Any]] = {
    "b": [True, False, None, 1],
    "i8": [-128, 127, None, 128, 1.0, 1.5, True, "1"],
    "i32": [-(2**31), 2**31 - 1, 2**31, None],
    "d": [1.5, float("nan"), float("-inf"), 1, None, 2**60 + 1],
    "s": ["text", "", "\ud800", None, b"bytes", 5],
    "v": ["abc", "abcdef", None],
    "x": [b"bytes", b"", "text", None],
    "t": [dt.datetime(2026, 1, 1), dt.datetime.min, None, "2026-01-01", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), DAY],
    "day": [DAY, dt.date.min, dt.date.max, None, dt.datetime(2026, 1, 1), "2026-01-01", 5],
    "m": [Decimal("1.23"), Decimal("1.234"), 5, None],
    "must": [1, None, 40_000],
    "nowhere": [1],
}


@pytest.fixture
def table(embedded: Database) -> Table:
    return embedded.create_table("t", SCHEMA, primary_key=["k"], column_options={"v": {"type": "varchar(3)"}})


def outcome(table: Table, data: Any) -> object:
    """Write; return what came of it, and remove it."""
    try:
        result = table.insert(data)
        found = result.applied, repr(table.scan(ordered=True).to_arrow().to_pylist())
    except RowErrors as error:
        found = [(each.row, each.code) for each in error.result.errors]
    except InvalidArgumentError as error:
        found = type(error), error.message
    table.delete_where("true")
    return found


@pytest.mark.parametrize("name", CELLS)
def test_both_ways_agree(table: Table, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"k": 1, "must": 1}
    lists = [[{**whole, name: cell}] for cell in CELLS[name]]
    lists += [[{**whole, name: cell}, {**whole, "k": 2, name: CELLS[name][0]}] for cell in CELLS[name]]
    short = [outcome(table, rows) for rows in lists]
    monkeypatch.setattr(FewRows, "batch", lambda few, data: None)
    assert short == [outcome(table, rows) for rows in lists]


def test_what_is_left_to_the_long_way(table: Table) -> None:
    few = FewRows(table._description.columns)
    row = {"k": 1, "must": 1}
    assert few.batch([row, {**row, "k": 2}]) == few.batch(({**row}, {**row, "k": 2}))
    left = ([], [row] * (ROWS_MAX + 1), {"k": [1]}, [row, {"k": 2}], [{}], [{"k": True}], [{1: 2}], [row, None])
    assert [few.batch(data) for data in left] == [None] * len(left)


def test_arrow_goes_as_it_is_where_its_types_are_the_table_s(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = pa.table({"k": [1, 2], "must": pa.array([1, None], pa.int16()), "v": ["abc", "long text"]})
    data = [
        fitting,
        fitting.to_batches()[0].slice(1),
        pa.concat_tables([fitting.slice(0, 1), fitting.slice(1)]),
        fitting.append_column("k", pa.array([1, 2])),
        fitting.append_column("nowhere", pa.array([1, 2])),
        fitting.drop_columns(["k"]),
        fitting.set_column(1, "must", pa.array([1, 2])),
        fitting.cast(pa.schema([("k", pa.int64()), ("must", pa.int16()), ("v", pa.large_string())])),
    ]
    columns = table._description.columns
    short = [few_as_they_are(each, columns) is not None for each in data]
    assert short == [True, True, False, False, False, True, False, False]
    assert few_as_they_are(pa.concat_tables([fitting] * 40).combine_chunks(), columns) is None
    found = [outcome(table, each) for each in data]
    monkeypatch.setattr(FewRows, "has_types_of", lambda few, schema: False)
    assert found == [outcome(table, each) for each in data]


def test_few_rows_of_many_bytes_are_split_as_ever() -> None:
    limits = Limits(cell_bytes=1 << 20, batch_bytes=16 << 20)
    with Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", limits=limits))) as database:
        table = database.create_table("t", SCHEMA.remove(len(SCHEMA) - 1), primary_key=["k"])
        data = pa.table({"k": range(ROWS_MAX), "s": ["x" * 400_000] * ROWS_MAX})
        assert table.upsert(data).applied == ROWS_MAX
        assert few_as_they_are(data, table._description.columns) is None
        assert few_as_they_are(data.slice(0, 2), table._description.columns) is not None


def test_the_columns_of_a_batch_follow_an_alteration(table: Table) -> None:
    table.upsert([{"k": 1, "must": 1}])
    table.alter().add_column("new", pa.int64()).apply()
    table.upsert([{"k": 2, "must": 1, "new": 7}])
    assert table.scan(["k", "new"], ordered=True).to_arrow().to_pylist() == [{"k": 1, "new": None}, {"k": 2, "new": 7}]
