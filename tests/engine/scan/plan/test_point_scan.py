"""Scans of one row by its whole key give what the batch lane gives, and take it where they cannot tell."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan.point_scan import PointScans
from nyala.engine.store import Store
from nyala.engine.tablet.point_read import UndecidedError
from nyala.schemas.errors import StoreError
from nyala.schemas.protocol.service import ScanStream
from nyala.schemas.rows.scan import ScanSpec

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int16(), False),
        pa.field("name", pa.string(), False),
        ("flag", pa.bool_()),
        ("cost", pa.decimal128(20, 3)),
        ("cents", pa.decimal128(9, 2)),
        ("price", pa.decimal128(18, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("x", pa.float32()),
        ("raw", pa.binary()),
    ]
)
NAMES = ["", "a", "\u00e4 b", "it is", "-- x"]


def row(k: int, name: str) -> dict[str, Any]:
    costs = [decimal.Decimal(each) for each in ("-1.125", "-7.25", "1234567890123456.78")]
    cells = True, *costs, dt.date(1, 1, 1), dt.datetime(9999, 12, 31), 0.5, b"\x00\xff"
    values = cells if k % 3 else (None,) * len(cells)
    return dict(zip(SCHEMA.names, (k, name, *values), strict=True))


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as opened:
        table = Database(opened).create_table(
            "t", SCHEMA, primary_key=["k", "name"], partition_by=[nyala.hash("k", buckets=3)]
        )
        table.insert([row(k, name) for k in range(10) for name in NAMES])
        table.maintain("flush")
        table.update([{"k": 2, "name": "a", "x": 2.5}])
        table.update([{"k": 3, "name": "", "flag": False}])
        table.delete([{"k": 4, "name": "a"}])
        table.insert([row(100, name) for name in NAMES])
        yield opened


def by_points(store: Store, spec: ScanSpec) -> Any:
    """Return the rows of a scan that needed no filter, None if one was needed; compare with the batch lane."""
    with patch.object(PointScans, "scan", lambda *_: None):
        expected = rows_or_error(store, spec)
    stream = by_plan(store, spec)
    found = None if stream is None else stream.to_reader().read_all()
    assert found is None or found.combine_chunks().equals(expected, check_metadata=True), (found, expected)
    again = rows_or_error(store, spec)
    assert again == expected if isinstance(expected, str) else again.equals(expected, check_metadata=True)
    return found


def by_plan(store: Store, spec: ScanSpec) -> ScanStream | None:
    ways = store._reads.ways
    try:
        return ways._points.scan(ways._table(spec.table), spec)
    except UndecidedError:
        return None


def rows_or_error(store: Store, spec: ScanSpec) -> Any:
    try:
        return store.scan(spec).to_reader().read_all().combine_chunks()
    except StoreError as error:
        return str(error)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    k=st.integers(-5, 12) | st.sampled_from([100, 40_000, -(1 << 15), 1 << 70]),
    name=st.sampled_from([*NAMES, "it''s", "nobody"]),
    form=st.sampled_from(["k = {k} AND name = '{name}'", "name='{name}' and k={k}", "k  = {k}  AND  name ='{name}'"]),
    columns=st.none() | st.lists(st.sampled_from(SCHEMA.names), unique=True),
    ordered=st.booleans(),
)
def test_a_row_is_what_a_filter_finds(
    store: Store, k: int, name: str, form: str, columns: list[str] | None, ordered: bool
) -> None:
    where = form.format(k=k, name=name)
    found = by_points(store, ScanSpec(table="t", where=where, columns=columns, ordered=ordered))
    if -(1 << 15) <= k < 1 << 15 and "'" not in name and columns != []:
        assert found is not None, "no filter is needed"


@pytest.mark.parametrize(
    "asked",
    [
        {"where": "k = 1"},
        {"where": "k = 1 AND k = 1"},
        {"where": "k = 1 AND name = 'a' AND x = 1"},
        {"where": "k = 1 OR name = 'a'"},
        {"where": "k = '1' AND name = 'a'"},
        {"where": "k = 1 AND name = 5"},
        {"where": "k = 1.0 AND name = 'a'"},
        {"where": "k = 1 AND name = 'a' -- AND name = 'b'"},
        {"where": "nothing = 1 AND name = 'a'"},
        {"where": "k = 1 AND name = 'a'", "columns": ["k", "k"]},
        {"where": "k = 1 AND name = 'a'", "columns": ["nothing"]},
        {"where": "k = 1 AND name = 'a'", "limit": 0},
        {"where": "k = 1 AND name = 'a'", "offset": 1},
        {"where": "k = 2 AND name = 'a'", "as_of": 5},
        {"where": "k = 1 AND name = 'a'", "aggregate": {"n": ("*", "count")}},
        {"where": {"op": "=", "column": "k", "value": 1}},
        {"where": {"op": "=", "column": "k", "value": 1, "x": 1}},
    ],
    ids=lambda asked: str(list(asked.values())),
)
def test_what_is_not_plain_goes_the_general_way(store: Store, asked: dict[str, Any]) -> None:
    assert by_points(store, ScanSpec(table="t", **asked)) is None


def test_names_that_are_words_of_sql_are_no_columns() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        for name in ("true", "null", "not", "Date", "id"):
            table = Database(store).create_table(
                name, pa.schema([pa.field(name, pa.int64(), False)]), primary_key=[name]
            )
            table.insert([{name: 7}])
            found = by_points(store, ScanSpec(table=name, where=f"{name} = 7"))
            tree = by_points(store, ScanSpec(table=name, where={"op": "=", "column": name, "value": 7}))
            assert tree is not None and tree.num_rows == 1
            assert (found is not None) == (name in ("Date", "id"))


def test_an_altered_table_is_read_with_its_new_columns() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        schema = pa.schema([pa.field("id", pa.int64(), False), ("s", pa.string())])
        table = Database(store).create_table("t", schema, primary_key=["id"])
        table.insert([{"id": 1, "s": "x"}])
        spec = ScanSpec(table="t", where="id = 1")
        assert by_points(store, spec).to_pylist() == [{"id": 1, "s": "x"}]
        table.alter().drop_column("s").add_column("s", pa.int8(), read_default=5).apply()
        assert by_points(store, spec).to_pylist() == [{"id": 1, "s": 5}]
        table.alter().rename_column("id", "key").apply()
        assert by_points(store, spec) is None
