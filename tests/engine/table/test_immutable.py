"""Immutable columns: a row takes its cell when it is new, and keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.column import ColumnOptions, ColumnSchema
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([("k", pa.int64()), ("born", pa.string()), ("v", pa.int32())])
Row = dict[str, Any]


@pytest.fixture
def store() -> Iterator[Store]:
    fs, options = MemoryFileSystem(), StoreOptions(maintenance="off")
    definition = TableDefinition.from_arrow("t", SCHEMA, ["k"], {"born": ColumnOptions(immutable=True)})
    with Store.open(fs, options) as store:
        store.create_table(definition)
    with Store.open(fs, options) as store:
        yield store


def write(store: Store, op: str, *rows: Row, atomic: bool = False) -> WriteResult:
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema([SCHEMA.field(name) for name in rows[0]]))
    return store.write(WriteCommand(table="t", op=Operation(op), atomic=atomic), batch)


def rows(store: Store) -> list[tuple[Any, ...]]:
    found = store.scan(ScanSpec(table="t", ordered=True)).to_reader().read_all().to_pylist()
    return [tuple(row.values()) for row in found]


def outcome(result: WriteResult) -> tuple[int, int, list[tuple[int, str]]]:
    return result.applied, result.ignored, [(error.row, error.code) for error in result.errors]


@pytest.fixture(params=["memory", "disk"])
def live(store: Store, request: pytest.FixtureRequest) -> Store:
    """A store with a row of key 1."""
    assert outcome(write(store, "insert", {"k": 1, "born": "a", "v": 1})) == (1, 0, [])
    if request.param == "disk":
        store.maintain("t", "flush")
    return store


@pytest.mark.parametrize("op", ["update", "upsert"])
def test_a_live_row_refuses_it_and_its_neighbours_apply(live: Store, op: str) -> None:
    result = write(live, op, {"k": 1, "born": "b", "v": 2}, {"k": 2, "born": "c", "v": 3})
    missing = [(1, "NOT_FOUND")] if op == "update" else []
    assert outcome(result) == (0 if missing else 1, 0, [(0, "IMMUTABLE"), *missing])
    assert "'born'" in result.errors[0].message and "k=1" in result.errors[0].message
    assert rows(live)[0] == (1, "a", 1)


def test_the_same_value_is_refused_too(live: Store) -> None:
    assert outcome(write(live, "update", {"k": 1, "born": "a"}))[2] == [(0, "IMMUTABLE")]


def test_columns_that_are_not_sent_do_not_count(live: Store) -> None:
    assert outcome(write(live, "update", {"k": 1, "v": 5})) == (1, 0, [])
    assert outcome(write(live, "upsert", {"k": 1, "v": 6})) == (1, 0, [])
    assert rows(live) == [(1, "a", 6)]


@pytest.mark.parametrize("op", ["update_ignore", "upsert_ignore"])
def test_the_ignore_forms_leave_the_cell_out(live: Store, op: str) -> None:
    assert outcome(write(live, op, {"k": 1, "born": "b", "v": 2})) == (1, 0, [])
    assert rows(live) == [(1, "a", 2)]
    assert outcome(write(live, op, {"k": 1, "born": "c"})) == (0, 1, [])
    assert rows(live) == [(1, "a", 2)]


def test_one_key_twice_in_an_upsert_ignore_keeps_the_first_cell_and_the_last_values(live: Store) -> None:
    twice = [{"k": 2, "born": "x", "v": 1}, {"k": 1, "born": "y", "v": 7}, {"k": 2, "born": "z", "v": 2}]
    assert outcome(write(live, "upsert_ignore", *twice)) == (3, 0, [])
    assert rows(live) == [(1, "a", 7), (2, "x", 2)]


def test_one_key_twice_in_an_upsert_meets_its_own_row(live: Store) -> None:
    result = write(live, "upsert", {"k": 2, "born": "x", "v": 1}, {"k": 2, "born": "z", "v": 2})
    assert outcome(result) == (1, 0, [(1, "IMMUTABLE")])
    assert rows(live) == [(1, "a", 1), (2, "x", 1)]


def test_a_row_that_comes_back_takes_a_new_cell(live: Store) -> None:
    write(live, "delete", {"k": 1})
    assert outcome(write(live, "upsert", {"k": 1, "born": "again", "v": 3})) == (1, 0, [])
    assert rows(live) == [(1, "again", 3)]


def test_an_atomic_batch_is_refused_whole(live: Store) -> None:
    result = write(live, "upsert", {"k": 2, "born": "x", "v": 1}, {"k": 1, "born": "b", "v": 2}, atomic=True)
    assert (result.applied, result.error_count) == (0, 1) and rows(live) == [(1, "a", 1)]


def test_columns_described_before_there_were_immutable_ones_are_not() -> None:
    old = '{"id":1,"name":"v","type":"int8","nullable":true,"encoding":"plain","compression":"none"}'
    assert not ColumnSchema.model_validate_json(old).immutable


def test_a_description_says_it(store: Store) -> None:
    assert [column.immutable for column in store.describe_table("t").columns] == [False, True, False]
