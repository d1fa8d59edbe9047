"""Columns that begin with ``_``, as ingestion tools write them: all are taken but the names of the change feed."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import ReadOptions, apply_changes, backup, copy_table, export, load, restore, verify

SCHEMA = pa.schema(
    [
        ("_id", pa.int64()),
        ("_file", pa.string()),
        ("_line", pa.int64()),
        ("_fivetran_synced", pa.timestamp("us")),
        ("_kind", pa.string()),
        ("_place", pa.int64()),
        ("_hash", pa.int64()),
        ("_", pa.string()),
        ("_right", pa.string()),
    ]
)
AT = dt.datetime(2026, 3, 8, 2, 30)


def row(number: int, file: str = "a.csv") -> dict[str, Any]:
    named = {"_id": number, "_file": file, "_line": number * 2, "_fivetran_synced": AT, "_kind": "k"}
    return {**named, "_place": number, "_hash": -number, "_": "x", "_right": "r"}


@pytest.fixture
def events(db: Database) -> Table:
    table = db.create_table("events", SCHEMA, ["_id"], [nyala.hash("_id", buckets=2)])
    table.insert([row(1), row(2)])
    return table


def test_rows_are_written_read_and_changed(events: Table) -> None:
    assert events.get(1) == row(1)
    assert events.scan(["_file"], where="_id = 2 and _fivetran_synced >= '2026-01-01'").count() == 1
    assert events.scan(["_line"], order_by="_line desc", limit=1).to_arrow().to_pylist() == [{"_line": 4}]
    events.update_where({"_line": "_line + _place", "_": "upper(_)"}, "_id = 1")
    assert events.get(1) == row(1) | {"_line": 3, "_": "X"}
    assert events.scan().aggregate({"_n": ("*", "count")}, group_by=["_kind"]).to_pylist() == [{"_kind": "k", "_n": 2}]
    events.alter().add_column("_dlt_id", "string").rename_column("_", "_dlt_load_id").apply()
    assert events.get(2)["_dlt_load_id"] == "x"  # pyright: ignore[reportOptionalSubscript]


def test_the_change_feed_tells_them_from_its_own(events: Table) -> None:
    since = events.upsert({"_id": [1], "_file": ["b"]}).timestamp - 1
    (change,) = events.changes(since, before=True).to_arrow().to_pylist()
    assert (change["_op"], change["_file"], change["_before__file"]) == ("update", "b", "a.csv")
    assert list(change)[:3] == ["_op", "_timestamp", "_id"]


@pytest.mark.parametrize("name", ["_op", "_timestamp", "_TimeStamp", "_before_x", "_Before_"])
def test_the_names_of_the_change_feed_are_refused(db: Database, events: Table, name: str) -> None:
    why = f"column '{name}': the change feed has columns of this name"
    with pytest.raises(nyala.InvalidArgumentError, match=why):
        db.create_table("t", pa.schema([("id", pa.int64()), (name, pa.string())]), ["id"])
    with pytest.raises(nyala.InvalidArgumentError, match=why):
        events.alter().rename_column("_", name).apply()


def test_jobs_take_them(db: Database, events: Table, tmp_path: Path) -> None:
    export(db, "events", tmp_path / "out")
    assert load(db, "events", tmp_path / "out", op="insert_ignore").ignored == 2
    backup(db, "events", tmp_path / "backups")
    events.upsert([row(1, "b.csv")])
    backup(db, "events", tmp_path / "backups")
    restore(db, tmp_path / "backups", "events", name="restored")
    copy_table(db, db, "events", name="copied")
    assert verify(db, db, "events", right_table="restored").equal
    db.table("copied").update({"_id": [2], "_hash": [9]})
    found = verify(db, db, "events", right_table="copied")
    assert [each.key for each in found.differences] == [{"_id": 2}]


def test_the_notes_of_rejected_rows_have_other_names_then(db: Database, events: Table, tmp_path: Path) -> None:
    """A file of them, corrected, is loaded again."""
    lines = [json.dumps({"_id": n, "_file": "f", "_line": n}) for n in (7, 8)] + ['{"_id": "x", "_file": "g"}', "no"]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    made = load(db, "events", tmp_path / "rows.jsonl", rejects=tmp_path / "bad.jsonl")
    assert (made.applied, made.rejected) == (2, 2)
    first, second = map(json.loads, (tmp_path / "bad.jsonl").read_text().splitlines())
    assert (first["_id"], first["_file"], first["_rejected_line"]) == ("x", "g", 3)
    assert "not a valid int64" in first["_rejected_error"] and first["_rejected_file"].endswith("rows.jsonl")
    assert (second["_rejected_text"], second["_rejected_error"]) == ("no", "it is no JSON")
    (tmp_path / "bad.jsonl").write_text(json.dumps(first | {"_id": 9}))
    assert load(db, "events", tmp_path / "bad.jsonl").applied == 1
    assert events.get(9) == dict.fromkeys(SCHEMA.names) | {"_id": 9, "_file": "g"}
    (tmp_path / "rows.csv").write_text("_id,_file\n10,h\nx,i\n11,j,k\n")
    load(db, "events", tmp_path / "rows.csv", rejects=tmp_path / "bad.csv", options=ReadOptions())
    heading, *others = (tmp_path / "bad.csv").read_text().splitlines()
    assert heading == '"_id","_file","_rejected_file","_line","_error","_text"'.replace(
        '"_line","_error","_text"', '"_rejected_line","_rejected_error","_rejected_text"'
    )
    assert len(others) == 2 and others[1].endswith('"11,j,k"')


def test_changes_from_files_set_them(db: Database, events: Table, tmp_path: Path) -> None:
    """Those of the table are columns; others that begin so are left out."""
    columns = {"_op": ["u", "d", "c"], "_id": [1, 2, 3], "_file": ["n", None, "m"], "_lsn": [1, 2, 3]}
    pq.write_table(pa.table(columns), tmp_path / "changes.parquet")
    apply_changes(db, "events", tmp_path / "changes.parquet", order_by="_lsn")
    rows = {each["_id"]: each["_file"] for each in events.scan(["_id", "_file"]).to_arrow().to_pylist()}
    assert rows == {1: "n", 3: "m"}
