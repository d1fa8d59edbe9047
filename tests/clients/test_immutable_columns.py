"""Immutable columns through the Python API, embedded and over Flight, and across a restart of the store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database

SCHEMA = pa.schema([("k", pa.int64()), ("born", pa.string()), ("v", pa.int32())])
OPTIONS = {"born": nyala.ColumnOptions(immutable=True)}


def test_a_row_keeps_the_cell_that_it_was_born_with(db: Database) -> None:
    table = db.create_table("t", SCHEMA, ["k"], column_options=OPTIONS)
    assert [column["immutable"] for column in table.describe()["columns"]] == [False, True, False]
    table.insert({"k": [1], "born": ["a"], "v": [1]})
    with pytest.raises(nyala.RowErrors, match="IMMUTABLE") as caught:
        table.upsert({"k": [1, 2], "born": ["b", "c"], "v": [2, 2]})
    assert (caught.value.result.applied, caught.value.result.errors[0].row) == (1, 0)
    result = table.update_ignore({"k": [1, 3], "born": ["b", "c"], "v": [5, 5]})
    assert (result.applied, result.ignored, result.error_count) == (1, 1, 0)
    rows = table.scan(ordered=True).to_arrow().to_pylist()
    assert rows == [{"k": 1, "born": "a", "v": 5}, {"k": 2, "born": "c", "v": 2}]


def test_it_stays_immutable_after_a_restart(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "data") as db:
        db.create_table("t", SCHEMA, ["k"], column_options=OPTIONS).insert({"k": [1], "born": ["a"], "v": [1]})
    with nyala.open(tmp_path / "data") as db:
        table = db.table("t")
        with pytest.raises(nyala.RowErrors, match="IMMUTABLE"):
            table.update({"k": [1], "born": ["b"]})
        assert table.get((1,)) == {"k": 1, "born": "a", "v": 1}
