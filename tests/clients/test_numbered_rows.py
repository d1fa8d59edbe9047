"""Numbered writes of few rows, given as dicts: they go the short way, and are applied once all the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.store import Store
from nyala.engine.table.small.row_writes import RowWrites
from nyala.engine.table.table import Table as EngineTable
from nyala.schemas.errors import InvalidArgumentError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32()), ("text", pa.string())])
"""An int is no int32 by itself."""
ROWS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "a row": lambda key: [{"k": key, "v": key, "text": "one"}],
    "two rows": lambda key: [{"k": key, "v": key, "text": "one"}, {"k": key + 100, "v": None, "text": "two"}],
}
FORMS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "Arrow": lambda rows: pa.Table.from_pylist(rows, SCHEMA),
}


@pytest.fixture
def table(db: Database) -> Table:
    table = db.create_table("t", SCHEMA, ["k"])
    table.insert([{"k": -1, "v": 0, "text": ""}])  # from now on, a client knows how the server takes rows
    return table


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("the batch lane is slower")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_few_numbered_rows_need_no_batch_lane(
    table: Table, monkeypatch: pytest.MonkeyPatch, rows: str, form: str
) -> None:
    monkeypatch.setattr(EngineTable, "begin_write", _never)
    data = FORMS[form](ROWS[rows](1))
    first = table.insert(data, writer="w", seq=0)
    assert (first.rows, first.applied) == (len(ROWS[rows](1)),) * 2
    assert table.insert(data, writer="w", seq=0) == first
    assert table.count() == 1 + first.rows


def test_a_numbered_row_given_as_a_dict_becomes_no_arrow_batch(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowWrites, "begin_batch", _never)
    table.upsert([{"k": 1, "v": 1, "text": "one"}], writer="w", seq=0)
    assert table.get(1) == {"k": 1, "v": 1, "text": "one"}


@pytest.mark.parametrize("rows", ROWS)
def test_the_first_answer_stands_whatever_the_columns_are_now(table: Table, rows: str) -> None:
    first = table.insert(ROWS[rows](1), writer="w", seq=0)
    table.alter().drop_column("text").add_column("more", pa.int64()).apply()
    assert table.insert(ROWS[rows](1), writer="w", seq=0) == first
    with pytest.raises(InvalidArgumentError, match="text"):
        table.insert(ROWS[rows](2), writer="w", seq=1)
    answer = table.insert([{"k": 2, "v": 1, "more": 5}], writer="w", seq=1)
    assert table.insert([{"k": 2, "v": 1, "more": 5}], writer="w", seq=1) == answer
    assert table.get(2) == {"k": 2, "v": 1, "more": 5}


def test_a_number_belongs_to_as_many_rows(table: Table) -> None:
    table.insert(ROWS["a row"](1), writer="w", seq=0)
    with pytest.raises(InvalidArgumentError, match="already used for a batch of 1 rows"):
        table.insert(ROWS["two rows"](1), writer="w", seq=0)


def test_a_rejected_row_is_rejected_again(table: Table) -> None:
    for _ in range(2):
        answer = table.insert([{"k": -1, "v": 1, "text": "new"}], writer="w", seq=0, on_error="return")
        assert (answer.applied, answer.error_count) == (0, 1)
    assert table.get(-1) == {"k": -1, "v": 0, "text": ""}


@pytest.mark.parametrize("data", [[{1: 2}], [{"k": 1, None: 2}], [{1: 2}, {1: 3}]])
@pytest.mark.parametrize("number", [{}, {"writer": "w", "seq": 0}])
def test_names_of_columns_are_strings(table: Table, data: list[dict[Any, Any]], number: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="column names must be strings"):
        table.upsert(data, **number)


def test_a_row_without_columns_is_no_row_under_any_number(table: Table) -> None:
    table.upsert(ROWS["two rows"](1), writer="w", seq=0)
    assert table.upsert([{}], writer="w", seq=0).rows == table.upsert([{}], writer="w", seq=1).rows == 0


@pytest.mark.parametrize("rows", ROWS)
def test_a_number_survives_a_crash(rows: str) -> None:
    disk = MemoryFileSystem()
    database = Database(Store.open(disk))
    first = database.create_table("t", SCHEMA, ["k"]).insert(ROWS[rows](1), writer="w", seq=7)
    image = disk.crash_image(Random(1))
    database.close()
    with Database(Store.open(image)) as after:
        assert after.table("t").insert(ROWS[rows](1), writer="w", seq=7) == first
        assert after.table("t").count() == first.rows
