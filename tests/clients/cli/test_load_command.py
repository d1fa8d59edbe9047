"""`nyala load`: what files hold that no table holds is told before anything is made."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.clients.cli.command import Done, Run

LINES = ['{"id": 1, "tags": ["a", "\\u00e6"], "where": {"x": 1.5, "ok": null}}', '{"id": 2, "tags": [], "where": null}']
TEXT = [[1, '["a", "\u00e6"]', '{"x": 1.5, "ok": null}'], [2, "[]", None]]


def rows_of(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.lines]


def nested(folder: Path, suffix: str) -> Path:
    """Rows with a list and an object, in a file."""
    path = folder / f"rows.{suffix}"
    if suffix == "parquet":
        rows = [
            {"id": 1, "tags": ["a", "\u00e6"], "where": {"x": 1.5, "ok": None}},
            {"id": 2, "tags": [], "where": None},
        ]
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(LINES) if suffix == "jsonl" else f"[{','.join(LINES)}]")
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_lists_and_objects_are_told_before_a_table_or_a_store_is_made(run: Run, tmp_path: Path, suffix: str) -> None:
    file, store = nested(tmp_path, suffix), tmp_path / "store"
    for words in (["load", "rows", file, "--create"], ["create", "rows", "--like", file]):
        refused = run(*words, "--key", "id", "--data", store)
        assert (
            refused.code == 3 and "column 'tags' is list<" in refused.err and "column 'where' is struct<" in refused.err
        )
        assert "add --as-json" in refused.err and not store.exists()
    made = run("load", "rows", file, "--create", "--key", "id", "--as-json", "--data", store)
    assert made.code == 0 and "created rows: id int64, tags string, where string" in made.out
    rows = rows_of(run("scan", "rows", "--ordered", "--json", "--data", store))
    assert [list(row.values()) for row in rows] == TEXT
    again = run("load", "rows", file, "--as-json", "--data", store)
    assert "2 skipped" in again.out


def test_lists_that_come_later_are_told_with_the_way_to_keep_them(run: Run, tmp_path: Path) -> None:
    """The table is made of the first rows; a row that it cannot hold is refused alone."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1, "x": "a"}\n{"id": 2, "x": ["b"]}\n{"id": 3, "x": 4}\n')
    store = ["--data", tmp_path / "store"]
    assert run("create", "rows", "--schema", "id int64 primary key, x string", *store).code == 0
    refused = run("load", "rows", file, *store)
    assert (
        refused.code == 1 and "['b'] is not a valid string; as_json (--as-json) keeps it as text of JSON" in refused.err
    )
    assert run("load", "rows", file, "--as-json", *store).code == 0
    rows = rows_of(run("scan", "rows", "--ordered", "--json", *store))
    assert [row["x"] for row in rows] == ["a", '["b"]', "4"]


def test_changes_keep_lists_too(run: Run, tmp_path: Path) -> None:
    store = ["--data", tmp_path / "store"]
    assert run("create", "rows", "--schema", "id int64 primary key, x string", *store).code == 0
    (tmp_path / "c.jsonl").write_text('{"_op": "u", "id": 1, "x": {"a": [1]}}\n')
    assert run("job", "apply", "rows", tmp_path / "c.jsonl", "--as-json", *store).code == 0
    assert rows_of(run("get", "rows", "1", "--json", *store))[0]["x"] == '{"a": [1]}'


TIMES: dict[str, Any] = {"id": [1], "at": [dt.time(1, 2)], "took": [dt.timedelta(1)]}


def test_columns_that_no_type_holds_are_told_before_a_table_is_made(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table(TIMES), tmp_path / "times.parquet")
    refused = run("load", "t", tmp_path / "times.parquet", "--create", "--key", "id", "--data", tmp_path / "store")
    assert refused.code == 3 and "'at' is time64[us]; column 'took' is duration[us]: convert them" in refused.err
    assert not (tmp_path / "store").exists()


def test_a_key_that_is_no_column_makes_no_store(run: Run, tmp_path: Path) -> None:
    """As where the key of a store was meant: the store would stay without encryption."""
    (tmp_path / "rows.csv").write_text("id,x\n1,2\n")
    words = ["load", "rows", tmp_path / "rows.csv", "--create", "--data", tmp_path / "store"]
    assert "there is no column 'store.key' for the key" in run(*words, "--key", "store.key").err
    assert "give its primary key" in run(*words).err
    assert not (tmp_path / "store").exists()
    assert run(*words, "--key", "id").code == 0
    assert run(*words, "--key", "nothing", "--again").code == 0, "the table is there"
