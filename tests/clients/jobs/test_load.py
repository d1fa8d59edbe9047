"""Files loaded by many tasks: every row once, whatever happened to the run before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert import batching
from nyala.clients.flight import staging_put
from nyala.clients.jobs.files import load_job
from nyala.jobs import checksum, load
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from tests.clients.jobs.job_rows import SCHEMA, rows


@pytest.fixture
def table(target: Database) -> Table:
    return target.create_table("homes", SCHEMA, ["id"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two Parquet files in folders, with more row groups than a task takes; and what is to be overlooked."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    pq.write_table(rows(range(600)), tmp_path / "in" / "a.parquet", row_group_size=50)
    pq.write_table(rows(range(600, 700)), tmp_path / "in" / "deep" / "b.parquet")
    (tmp_path / "in" / "_SUCCESS").write_text("")
    return tmp_path / "in"


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_job, "TASK_ROWS", 120)
    monkeypatch.setattr(load_job, "BATCH_ROWS", 20)


def test_a_folder_is_loaded(target: Database, table: Table, folder: Path, source: Database) -> None:
    made = load(target, "homes", folder, op="insert")
    assert (made.files, made.rows, made.applied, made.error_count) == (2, 700, 700, 0)
    source.create_table("homes", SCHEMA, ["id"]).insert(rows(range(700)))
    assert checksum(target, "homes").is_same(checksum(source, "homes"))
    table.delete({"id": [5]})
    again = load(target, "homes", [str(folder / "a.parquet"), folder / "deep"], op="insert")
    assert (again.rows, again.applied, again.skipped, again.error_count) == (700, 0, 700, 0)  # an earlier run did it
    assert table.get(5) is None
    other = load(target, "homes", folder, op="insert", run="second")
    assert (other.applied, other.error_count) == (1, 699)
    assert other.errors[0].code == "ALREADY_PRESENT"
    assert {error.row for error in other.errors if error.file.endswith("a.parquet")} == set(range(600)) - {5}


def test_a_killed_load_is_gone_on_with(
    target: Database, table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = load_job.load_part, []

    def run_or_die(task: load_job.LoadTask) -> object:
        if len(begun) == 3:
            raise StoreError("killed")
        begun.append(task)
        return run(task)

    with monkeypatch.context() as patch:
        patch.setattr(load_job, "load_part", run_or_die)
        with pytest.raises(StoreError, match="killed"):
            load(target, "homes", folder, op="insert", workers=1)
    assert 0 < (before := table.scan().count()) < 700
    made = load(target, "homes", folder, op="insert")
    assert (made.applied, made.skipped, made.error_count) == (700 - before, before, 0)
    assert table.scan().count() == 700


def test_all_files_as_one_commit(target: Database, table: Table, folder: Path) -> None:
    table.insert(rows(range(620, 621)))
    refused = load(target, "homes", folder, op="insert", atomic=True)
    (error,) = refused.errors
    assert (refused.applied, refused.error_count, error.code, error.row) == (0, 1, "ALREADY_PRESENT", 20)
    assert error.file.endswith("b.parquet") and table.scan().count() == 1
    table.delete({"id": [620]})
    before = target.now()
    made = load(target, "homes", folder, op="insert", atomic=True)
    assert (made.rows, made.applied) == (700, 700)
    assert len(table.changes(before).to_arrow()["_timestamp"].unique()) == 1
    table.delete({"id": [1]})
    again = load(target, "homes", folder, op="insert", atomic=True)
    assert (again.applied, again.skipped) == (0, 700)
    assert table.scan().count() == 699


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_all_rows_of_one_commit_are_there_when_tasks_stage_several_parts(
    target: Database, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", 1 << 10)
    monkeypatch.setattr(batching, "COMMIT_ROWS", 20)
    for first in (0, 300):
        given = rows(range(first, first + 300)).select(["id", "city"])
        if format == "csv":
            csv.write_csv(given, tmp_path / f"{first}.csv")
        else:
            pq.write_table(given, tmp_path / f"{first}.parquet", row_group_size=50)
    table.insert(rows(range(570, 571)))
    refused = load(target, "homes", tmp_path, op="insert", atomic=True)
    (error,) = refused.errors
    assert (refused.applied, error.code, error.row) == (0, "ALREADY_PRESENT", 270)
    assert Path(error.file).stem == "300" and table.count() == 1
    table.delete({"id": [570]})
    assert load(target, "homes", tmp_path, op="insert", atomic=True).applied == 600
    assert table.scan(["id"], ordered=True).to_arrow()["id"].to_pylist() == list(range(600))
    again = load(target, "homes", tmp_path, op="insert", atomic=True)
    assert (again.applied, again.skipped) == (0, 600)


def test_more_batches_than_a_writer_is_remembered_for(
    target: Database, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_job, "BATCH_ROWS", 1)
    pq.write_table(rows(range(100)), tmp_path / "a.parquet")
    assert load(target, "homes", tmp_path / "a.parquet", op="insert").applied == 100
    again = load(target, "homes", tmp_path / "a.parquet", op="insert")
    assert (again.applied, again.skipped, again.error_count) == (0, 100, 0)


def test_csv_with_the_types_of_the_table(target: Database, table: Table, tmp_path: Path) -> None:
    given = rows(range(50)).select(["id", "city", "day", "cents", "at"])
    csv.write_csv(given, tmp_path / "a.csv")
    assert load(target, "homes", tmp_path / "a.csv").applied == 50
    read = table.scan(["id", "day", "cents", "at"], ordered=True).to_arrow()
    assert read.to_pylist() == given.select(["id", "day", "cents", "at"]).to_pylist()


def test_data_frames(target: Database, table: Table) -> None:
    made = load(target, "homes", rows(range(10)).to_pandas())
    assert (made.files, made.applied) == (0, 10)
    assert load(target, "homes", pa.table({"id": [3, 99]}), op="delete").errors[0].row == 1


def test_what_cannot_be_loaded(target: Database, table: Table, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file or folder"):
        load(target, "homes", tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InvalidArgumentError, match="unknown suffix"):
        load(target, "homes", tmp_path)
    (tmp_path / "a.txt").rename(tmp_path / "a.parquet")
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        load(target, "homes", tmp_path)
    pq.write_table(pa.table({"id": [1], "colour": ["red"]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgumentError, match="no column 'colour'"):
        load(target, "homes", tmp_path)
    with pytest.raises(InvalidArgumentError, match="unknown operation 'paint'"):
        load(target, "homes", tmp_path, op="paint")
