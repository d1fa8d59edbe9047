"""Tables copied between stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.executors import executor as executors
from nyala.clients.executors.spark_executor import SparkExecutor
from nyala.clients.jobs.copy_job import SplitTask
from nyala.jobs import checksum, copy_table
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    InvalidArgumentError,
    SnapshotTooOldError,
    StoreError,
    UnavailableError,
)
from tests.clients.jobs.job_rows import SCHEMA, rows

KILLED = "killed"


def test_a_copy_has_the_rows_of_the_snapshot(source: Database, homes: Table, target: Database) -> None:
    before = source.now()
    homes.delete({"id": [3]})
    made = copy_table(source, target, "homes", as_of=before, split_bytes=10_000)
    assert (made.snapshot, made.rows, made.resumed) == (before, 500, False)
    assert checksum(target, "homes").is_same(checksum(source, "homes", as_of=before))
    assert target.table("homes").describe()["partitions"] == homes.describe()["partitions"]
    with pytest.raises(AlreadyPresentError):
        copy_table(source, target, "homes")


def test_a_copy_may_be_cut_otherwise(source: Database, homes: Table, target: Database) -> None:
    levels = [nyala.range("id", splits=[100, 200, 300])]
    copy_table(target=source, source=source, table="homes", name="ranged", partition_by=levels)
    assert len(source.table("ranged").stats()["tablets"]) == 4
    assert checksum(source, "ranged").is_same(checksum(source, "homes"))


def test_other_processes_reach_no_embedded_store(source: Database, homes: Table, target: Database) -> None:
    executor = object.__new__(SparkExecutor)  # the error comes before it needs Spark
    with pytest.raises(InvalidArgumentError, match="an embedded database cannot be used by other processes"):
        copy_table(source, target, "homes", executor=executor)
    copy_table(source, target, "homes")
    with pytest.raises(InvalidArgumentError, match="an embedded database cannot be used by other processes"):
        copy_table(target, source, "homes", name="again", executor=executor)


def test_a_source_that_goes_away_is_read_again(
    source: Database, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 900_000
    source.create_table("homes", pa.schema([("id", pa.int64())]), ["id"]).insert({"id": list(range(count))})
    read, reads = SplitTask.batches, []

    def read_once_in_part(task: SplitTask) -> Iterator[pa.RecordBatch]:
        reads.append(task.split)
        rows = pa.Table.from_batches(read(task))
        yield from rows.to_batches(max_chunksize=60_000)[: 14 if len(reads) == 1 else None]
        if len(reads) == 1:
            raise UnavailableError("the source is away")

    monkeypatch.setattr(SplitTask, "batches", read_once_in_part)
    monkeypatch.setattr(executors, "_PAUSE_SECONDS", 0.01)
    assert copy_table(source, target, "homes", workers=1).rows == count
    assert len(reads) == 2 and target.table("homes").count() == count


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Let the copy fail at a split once ``after`` are copied; return the list of splits' tablets that were copied."""
    copy, copied = SplitTask.write, []

    def copy_or_die(task: SplitTask) -> int:
        if len(copied) == after:
            raise StoreError(KILLED)
        copied.append(task.split.label)
        return copy(task)

    monkeypatch.setattr(SplitTask, "write", copy_or_die)
    return copied


def test_a_killed_copy_is_gone_on_with(source: Database, target: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"small": {"immutable": True}}
    homes = source.create_table("homes", SCHEMA, ["id"], [nyala.hash("id", buckets=5)], options, comment="all")
    homes.insert(rows(range(500)))
    with monkeypatch.context() as patch:
        first = dying(patch, 3)
        with pytest.raises(StoreError, match=KILLED):
            copy_table(source, target, "homes", workers=1)
    (unfinished,) = target.tables()
    assert unfinished.startswith("homes.copying-")
    snapshot = int(unfinished.rpartition("-")[2])
    homes.upsert(rows(range(100), 1).drop_columns("small"))
    with monkeypatch.context() as patch:
        second = dying(patch, 99)
        made = copy_table(source, target, "homes", workers=1)
    assert made.resumed and made.snapshot == snapshot
    assert len(first) + len(second) == len(set(first) | set(second)) == 5
    assert target.tables() == ["homes"]
    assert target.table("homes").describe()["options"]["comment"] == "all"
    assert checksum(target, "homes").is_same(checksum(source, "homes", as_of=snapshot))


ANOTHER_CITY = [
    lambda homes: homes.alter().drop_column("city").add_column("city", "string").apply(),
    lambda homes: homes.alter().rename_column("city", "town").add_column("city", "string").apply(),
    lambda homes: homes.alter().drop_column("city").apply(),
]


@pytest.mark.parametrize("alter", ANOTHER_CITY)
def test_a_copy_does_not_go_on_with_other_columns(
    source: Database, homes: Table, target: Database, monkeypatch: pytest.MonkeyPatch, alter: Callable[[Table], object]
) -> None:
    """The tablets that are left would get cells of another column, or none."""
    with monkeypatch.context() as patch:
        dying(patch, 2)
        with pytest.raises(StoreError, match=KILLED):
            copy_table(source, target, "homes", workers=1)
    alter(homes)
    (unfinished,) = target.tables()
    with pytest.raises(InvalidArgumentError, match="begun with other columns: drop it"):
        copy_table(source, target, "homes")
    assert target.tables() == [unfinished]
    target.drop_table(unfinished)
    copy_table(source, target, "homes")
    assert checksum(target, "homes").is_same(checksum(source, "homes"))


@pytest.mark.parametrize("alter", ANOTHER_CITY[:2])
def test_a_copy_ends_if_a_column_becomes_another_one(
    source: Database, homes: Table, target: Database, monkeypatch: pytest.MonkeyPatch, alter: Callable[[Table], object]
) -> None:
    write, written = SplitTask.write, []

    def alter_between(task: SplitTask) -> int:
        written.append(task)
        if len(written) == 2:
            alter(homes)
        return write(task)

    monkeypatch.setattr(SplitTask, "write", alter_between)
    with pytest.raises(ConflictError, match="columns of table 'homes' changed during the copy"):
        copy_table(source, target, "homes", workers=1)
    assert "homes" not in target.tables()


def test_a_column_that_is_added_meanwhile_does_not_end_a_copy(
    source: Database, homes: Table, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = SplitTask.write, []

    def alter_between(task: SplitTask) -> int:
        written.append(task)
        if len(written) == 2:
            homes.alter().add_column("more", "string").apply()
        return write(task)

    monkeypatch.setattr(SplitTask, "write", alter_between)
    columns = homes.schema.names
    copy_table(source, target, "homes", workers=1)
    assert target.table("homes").schema.names == columns


def test_what_lies_in_the_way(source: Database, homes: Table, target: Database) -> None:
    now = source.now()
    target.create_table(f"homes.copying-{now}", SCHEMA, ["id"], comment="mine")
    with pytest.raises(InvalidArgumentError, match="does not come from"):
        copy_table(source, target, "homes")
    assert target.table(f"homes.copying-{now}").scan().count() == 0
    with pytest.raises(SnapshotTooOldError, match="copy again"):
        copy_table(source, target, "homes", as_of=1)
