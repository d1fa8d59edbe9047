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
        assert refused.code == 3 and "column 'where' is struct<x: double, ok: null>" in refused.err
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


def test_lists_and_times_make_a_table(run: Run, tmp_path: Path) -> None:
    rows = {"id": [1], "at": [dt.time(1, 2)], "took": [dt.timedelta(1)], "tags": [["a", None]], "who": [{"x": 1}]}
    pq.write_table(pa.table(rows), tmp_path / "times.parquet")
    made = run("load", "t", tmp_path / "times.parquet", "--create", "--key", "id", "--data", tmp_path / "store")
    assert made.code == 0 and "took duration[us], tags list<string>, who struct<x: int64>" in made.out
    (row,) = rows_of(run("scan", "t", "--json", "--data", tmp_path / "store"))
    assert (row["tags"], row["who"]) == (["a", None], {"x": 1})
    text = run("scan", "t", "--where", "who.x = 1", "--data", tmp_path / "store").out
    assert '["a", null]' in text and '{"x": 1}' in text


def test_a_key_that_is_no_column_makes_no_store(run: Run, tmp_path: Path) -> None:
    """As where the key of a store was meant: the store would stay without encryption."""
    (tmp_path / "rows.csv").write_text("id,x\n1,2\n")
    words = ["load", "rows", tmp_path / "rows.csv", "--create", "--data", tmp_path / "store"]
    assert "the key names column 'store.key', which does not exist" in run(*words, "--key", "store.key").err
    assert "give its primary key" in run(*words).err
    assert not (tmp_path / "store").exists()
    assert run(*words, "--key", "id").code == 0


def test_another_key_than_that_of_the_table_is_refused(run: Run, tmp_path: Path) -> None:
    """Not ignored: whoever gives a key means it."""
    (tmp_path / "rows.csv").write_text("id,x\n1,2\n")
    words = ["load", "t", tmp_path / "rows.csv", "--data", tmp_path / "store"]
    assert run(*words, "--create", "--key", "id").code == 0
    for create in (["--create"], []):
        for key in ("x", "nope", "id,x"):
            refused = run(*words, *create, "--key", key, "--again")
            assert refused.code == 3
            assert refused.err == (
                "INVALID_ARGUMENT: table t has the key id: leave --key out, or load into another table\n"
            )
        assert "1 applied" in run(*words, *create, "--key", "id", "--again").out


def test_the_key_of_rows_that_may_share_it_is_that_without_the_number_of_the_store(run: Run, tmp_path: Path) -> None:
    store = ["--data", tmp_path / "store"]
    assert run("create", "t", "--schema", "k int64, x string", "--key", "k", "--no-unique-key", *store).code == 0
    (tmp_path / "rows.csv").write_text("k,x\n1,a\n1,b\n")
    words = ["load", "t", tmp_path / "rows.csv", "--op", "insert", *store]
    assert "2 applied" in run(*words, "--key", "k").out
    assert "table t has the key k: leave --key out" in run(*words, "--key", "x", "--again").err


def test_a_row_that_the_table_refuses_is_told_by_its_line(run: Run, tmp_path: Path) -> None:
    """As one with a cell that cannot be read is: a row is counted from 0, without the header."""
    store = ["--data", tmp_path / "store"]
    made = run("create", "t", "--schema", "id int64 primary key, x string", "--range", "id", "--bound", "0..10", *store)
    assert made.code == 0
    (tmp_path / "a.csv").write_text('id,x\n1,"two\nlines"\n20,no range\nword,x\n3,"a\n\nb"\n4,too,many\n30,no range\n')
    refused = run("load", "t", tmp_path / "a.csv", "--rejects", tmp_path / "bad.jsonl", *store)
    told = [line.removeprefix(f"{tmp_path / 'a.csv'}, ") for line in refused.err.splitlines() if "a.csv" in line]
    assert sorted(int(line.partition(":")[0].removeprefix("line ")) for line in told) == [4, 5, 9, 10]
    assert sum("describe shows the ranges, add_range_partition adds one" in line for line in told) == 2
    assert {json.loads(line)["_line"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()} == {4, 5, 9, 10}
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n\n{"id": 20}\n{"id": 2}\n{"id": 21}')
    for option in ([], ["--atomic"]):
        refused = run("load", "t", tmp_path / "a.jsonl", *option, *store)
        assert refused.code == 1
        for line in (3, 5):
            assert f"a.jsonl, line {line}: NO_PARTITION: no range partition covers" in refused.err, refused.err


def test_nanoseconds_are_refused_with_what_helps(run: Run, tmp_path: Path) -> None:
    nanoseconds = pa.array([1_001, 2_000], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1, 2], "at": nanoseconds}), tmp_path / "t.parquet")
    refused = run("load", "t", tmp_path / "t.parquet", "--create", "--key", "id", "--data", tmp_path / "store")
    assert refused.code == 1 and "1 applied, 0 ignored, 1 rejected" in refused.out
    assert "the timestamp[ns] does not fit; round it, as with pandas' dt.round('us')" in refused.err
    empty = tmp_path / "one.parquet"
    pq.write_table(pa.table({"id": [1], "at": nanoseconds[:1]}), empty)
    refused = run("load", "none", empty, "--create", "--key", "id", "--data", tmp_path / "store")
    assert refused.code == 1 and "created none: " in refused.out
    assert run("scan", "none", "--count", "--data", tmp_path / "store").out == "0\n"


def test_an_unknown_suffix_names_the_option(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.dat").write_text("id\n1\n")
    assert "otherwise give a format (--format)" in run("load", "t", tmp_path / "rows.dat", "--data", tmp_path).err
