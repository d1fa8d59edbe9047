"""Jobs on rows whose key is a timestamp outside the years 1 to 9999, for which Python has no datetime."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cli.output import write_scan
from nyala.jobs import backup, checksum, copy_table, export, load, restore, verify

FAR = 1 << 62
CELLS = [-(1 << 63), -FAR, 0, FAR, (1 << 63) - 1]
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("v", pa.int64())])


def far_table(database: Database, name: str = "far") -> Table:
    """An empty table."""
    bounds = [(None, (-FAR,)), ((-FAR,), (FAR,)), ((FAR,), None)]
    options = {"v": nyala.ColumnOptions(write_default=7)}
    made = database.create_table(
        name, SCHEMA, ["at"], column_options=options, partition_by=[nyala.range("at", bounds=bounds)]
    )
    made.alter().add_column("seen", "timestamp[us]", read_default=-FAR, write_default=FAR).apply()
    return made


@pytest.fixture
def far(source: Database) -> Table:
    made = far_table(source)
    made.insert(pa.table({"at": pa.array(CELLS, pa.int64()).cast(pa.timestamp("us"))}))
    return made


def test_they_are_copied_backed_up_and_compared(source: Database, target: Database, far: Table, tmp_path: Path) -> None:
    backup(source, far.name, tmp_path)
    far.update_where({"v": "8"}, where=f"at = {FAR}")
    backup(source, far.name, tmp_path)
    restore(target, tmp_path, "far")
    copy_table(source, target, "far", name="copy")
    for name in ("far", "copy"):
        assert checksum(target, name).is_same(checksum(source, "far"))
    target.table("far").delete([{"at": FAR}])
    target.table("far").update_where({"v": "1"}, where="at < 0")
    found = verify(source, target, "far")
    assert {(each.key["at"], each.what) for each in found.differences} == {
        (FAR, "only_left"),
        (-FAR, "values"),
        (-(1 << 63), "values"),
    }


def test_they_are_exported_and_loaded(source: Database, target: Database, far: Table, tmp_path: Path) -> None:
    export(source, "far", tmp_path)
    far_table(target)
    assert load(target, "far", tmp_path).rows == len(CELLS)
    assert checksum(target, "far").is_same(checksum(source, "far"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow"])
def test_files_of_a_scan_are_loaded(
    source: Database, target: Database, far: Table, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"rows{suffix}"
    assert write_scan(far.scan(), path) == len(CELLS)
    assert b"out of range" not in path.read_bytes()
    far_table(target)
    assert load(target, "far", path).rows == len(CELLS)
    assert checksum(target, "far").is_same(checksum(source, "far"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_rows_that_are_refused_go_to_a_file_that_can_be_loaded(target: Database, tmp_path: Path, suffix: str) -> None:
    path, rejects = tmp_path / "rows.parquet", tmp_path / f"rejects{suffix}"
    table = target.create_table("t", pa.schema([("at", pa.timestamp("us")), pa.field("v", pa.int64())]), ["at"])
    table.insert([{"at": FAR, "v": 1}])
    import pyarrow.parquet as pq

    pq.write_table(table.scan().to_arrow(), path)
    result = load(target, "t", path, op="insert", rejects=rejects)
    assert result.rejected == 1
    if suffix == ".jsonl":
        assert json.loads(rejects.read_text())["at"] == FAR
    table.delete([{"at": FAR}])
    load(target, "t", rejects)
    assert table.get(FAR) == {"at": FAR, "v": 1}
