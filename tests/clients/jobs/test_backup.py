"""Backups and restores: every increment shows the table as it was then, whatever happened to it and to the runs."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs.backup import parts
from nyala.clients.jobs.folder import Folder
from nyala.clients.jobs.link import StoreLink
from nyala.jobs import backup, checksum, restore
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
)
from tests.clients.jobs.job_rows import SCHEMA, rows

Make = Callable[[], Database]


def assert_restored(source: Database, target: Database, root: Path, until: int, table: str = "homes") -> None:
    """Restore what was backed up until then, and compare it with what the source shows at that moment."""
    name = f"at {until}"
    made = restore(target, root, table, at=until, name=name)
    assert made.until == until
    wanted, found = checksum(source, table, as_of=until), checksum(target, name)
    assert found.is_same(wanted)


def test_ten_increments_under_writes(source: Database, homes: Table, target: Database, tmp_path: Path) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        chance = random.Random(5)
        try:
            while not stop.is_set():
                start = chance.randrange(1_500)
                homes.upsert(rows(range(start, start + 60), chance.randrange(9)))
                homes.delete_ignore({"id": [chance.randrange(1_500) for _ in range(25)]})
                if chance.random() < 0.1:
                    homes.maintain(chance.choice(["flush", "flush_deltas", "minor_compact", "major_compact"]))
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [backup(source, "homes", tmp_path, split_bytes=20_000) for _ in range(11)]
    finally:
        stop.set()
        writer.join()
    assert not failed
    assert [each.kind for each in made] == ["full"] + ["increment"] * 10
    assert len({checksum(source, "homes", as_of=each.until).checksum for each in made}) > 5
    for each in made:
        assert_restored(source, target, tmp_path, each.until)


def test_the_table_comes_back_as_it_was_defined(source: Database, target: Database, tmp_path: Path) -> None:
    source.create_table(
        "homes",
        SCHEMA,
        ["id"],
        [nyala.hash("id", buckets=2, seed=7)],
        {
            "city": nyala.ColumnOptions(encoding="prefix", comment="where it stands", write_default="Oslo"),
            "price": {"compression": "zstd"},
            "small": {"immutable": True},
        },
        comment="all of them",
        history_max_age_seconds=999,
    )
    backup(source, "homes", tmp_path)
    restore(target, tmp_path, "homes")
    was, now = source.table("homes").describe(), target.table("homes").describe()
    own = {"table_id": 0, "schema_version": 0, "stores": []}
    assert now | own == was | own


def test_columns_that_were_changed_between_increments(
    source: Database, homes: Table, target: Database, tmp_path: Path
) -> None:
    made = [backup(source, "homes", tmp_path)]
    before = checksum(source, "homes")
    homes.alter().add_column("stars", "int16", nullable=False, read_default=3).widen_column("small", "int64").apply()
    homes.update({"id": [1], "stars": [5], "small": [1 << 40]})
    made.append(backup(source, "homes", tmp_path))
    homes.alter().drop_column("city").rename_column("raw", "city").drop_not_null("stars").apply()
    homes.upsert({"id": [2, 9_000], "stars": [None, 1], "city": [b"x", b"y"]})
    made.append(backup(source, "homes", tmp_path))
    homes.alter().rename("houses").apply()
    homes.delete({"id": [9_000]})
    made.append(backup(source, "houses", tmp_path))
    assert [each.kind for each in made] == ["full", "increment", "increment", "increment"]
    for each in made[2:]:
        assert_restored(source, target, tmp_path, each.until, "houses")
    # The source shows its past with the columns of now; the backup knows those of then.
    assert restore(target, tmp_path, "houses", at=made[0].until, name="first").verified
    assert checksum(target, "first").is_same(before)
    restore(target, tmp_path, "houses", at=made[1].until, name="second")
    second = target.table("second").scan(["id", "stars", "small"], "id in (1, 2)", ordered=True).to_arrow().to_pylist()
    assert second == [{"id": 1, "stars": 5, "small": 1 << 40}, {"id": 2, "stars": 3, "small": -48}]
    assert target.table("second").schema.field("stars").nullable is False


def test_ranges_dropped_added_and_split(source: Database, target: Database, tmp_path: Path) -> None:
    table = source.create_table(
        "homes", SCHEMA, ["id"], [nyala.range("id", bounds=[(0, 100), (100, 200), (200, None)])]
    )
    table.insert(rows(range(300)))
    made = [backup(source, "homes", tmp_path)]
    table.alter().drop_range_partition(0, 100).apply()
    made.append(backup(source, "homes", tmp_path))
    assert_restored(source, target, tmp_path, made[-1].until)
    table.alter().drop_range_partition(100, 200).add_range_partition(100, 200).apply()
    table.insert(rows(range(150, 160), 4))
    made.append(backup(source, "homes", tmp_path))
    assert_restored(source, target, tmp_path, made[-1].until)
    table.alter().split_partition(250).apply()
    table.delete({"id": [249, 250]})
    made.append(backup(source, "homes", tmp_path))
    table.upsert(rows(range(240, 260), 5))
    made.append(backup(source, "homes", tmp_path))
    assert [each.kind for each in made[1:]] == ["increment"] * 4
    for each in made[3:]:
        assert_restored(source, target, tmp_path, each.until)
    restore(target, tmp_path, "homes", name="unsplit", partition_by=[nyala.hash("id", buckets=2)])
    assert checksum(target, "unsplit").is_same(checksum(source, "homes"))


def test_immutable_cells_and_numbered_rows(source: Database, target: Database, tmp_path: Path) -> None:
    table = source.create_table(
        "log",
        pa.schema([("at", pa.int64()), ("text", pa.string()), ("by", pa.string())]),
        ["at"],
        column_options={"by": {"immutable": True}},
        unique_key=False,
    )
    table.insert({"at": [1, 1, 2], "text": ["a", "b", "c"], "by": ["x", "y", "z"]})
    backup(source, "log", tmp_path)
    first = table.scan(where="text = 'a'").to_arrow().select(["at", "auto_incrementing_id"])
    table.delete(first)
    table.upsert(first.append_column("text", [["again"]]).append_column("by", [["other"]]))
    last = backup(source, "log", tmp_path)
    assert last.rows == 1  # an update, for the feed
    restore(target, tmp_path, "log")
    assert checksum(target, "log").is_same(checksum(source, "log"))
    target.table("log").insert({"at": [1], "text": ["new"]})
    assert target.table("log").scan().count() == 4


class Killed(BaseException):
    """What no code of ours catches."""


def killing(monkeypatch: pytest.MonkeyPatch, name: str, after: int = 0) -> None:
    """Stop the run where a file of that name is to be written, once ``after`` of them are."""
    write, seen = Folder.write_model, [0]

    def write_or_die(folder: Folder, file: str, model: object, **options: bool) -> None:
        if name in file:
            seen[0] += 1
            if seen[0] > after:
                raise Killed
        write(folder, file, model, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Folder, "write_model", write_or_die)


@pytest.mark.parametrize(("file", "after"), [("metadata", 0), ("note", 0), ("note", 2)])
def test_a_killed_backup_is_gone_on_with(
    source: Database,
    homes: Table,
    target: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    after: int,
) -> None:
    before = source.now()
    with monkeypatch.context() as patch:
        killing(patch, file, after)
        with pytest.raises(Killed):
            backup(source, "homes", tmp_path, workers=1)
    with pytest.raises(NotFoundError, match="no backup"):
        restore(target, tmp_path, "homes")
    homes.delete({"id": [5]})
    kept = {path.name for path in tmp_path.rglob("*.parquet")}
    read = []
    written = parts._write_file
    monkeypatch.setattr(parts, "_write_file", lambda *given: read.append(given) or written(*given))
    made = backup(source, "homes", tmp_path)
    assert made.resumed == (file == "metadata" or after > 0)
    assert len(read) == {("metadata", 0): 0, ("note", 0): 3, ("note", 2): 1}[(file, after)]
    assert made.files == 3 == len(list(tmp_path.rglob("*.parquet")))
    assert file == "note" or kept == {path.name for path in tmp_path.rglob("*.parquet")}
    assert not list(tmp_path.rglob("*note*")) and not list(tmp_path.rglob("plan*"))
    assert_restored(source, target, tmp_path, made.until)
    assert checksum(source, "homes", as_of=before).is_same(checksum(source, "homes", as_of=made.until))


KILL_ITSELF = """
import os, sys
from nyala.jobs import backup, load, restore
from nyala.clients.jobs.folder import Folder
from nyala.clients.jobs.under_way import TableUnderWay

seen = 0

def dying(function):
    def call(*given, **options):
        global seen
        seen += any(sys.argv[1] in str(each) for each in given)
        if seen > int(sys.argv[2]):
            os._exit(9)  # as kill -9: nothing is cleaned up
        return function(*given, **options)
    return call

Folder.write_model = dying(Folder.write_model)
TableUnderWay.note = dying(TableUnderWay.note)
job, url, root = sys.argv[3:]
backup(url, "homes", root, workers=1) if job == "backup" else restore(url, root, "homes", name="restored", workers=1)
"""


def test_processes_that_are_killed(target: Database, tmp_path: Path) -> None:
    """A backup dies after two files, then before its metadata; a restore before it notes the first of two backups."""
    url = StoreLink.to(target).url
    homes = target.create_table("homes", SCHEMA, ["id"], [nyala.hash("id", buckets=3)])
    homes.insert(rows(range(300)))

    def run(job: str, what: str, after: int) -> int:
        command = [sys.executable, "-c", KILL_ITSELF, what, str(after), job, str(url), str(tmp_path)]
        return subprocess.run(command, timeout=120).returncode

    assert run("backup", "note.json", 2) == 9
    until = int(next(tmp_path.rglob("plan.json")).parent.name.partition("-")[0])
    homes.delete({"id": [1]})
    assert run("backup", "metadata.json", 0) == 9
    assert run("backup", "nothing", 0) == 0
    homes.upsert(rows(range(200, 400), 1))
    last = backup(target, "homes", tmp_path)
    assert (last.kind, last.since) == ("increment", until)
    assert run("restore", "[1]", 0) == 9
    assert target.tables() == ["homes", f"restored.restoring-{last.until}"]
    assert run("restore", "nothing", 0) == 0
    assert target.tables() == ["homes", "restored"]
    assert checksum(target, "restored").is_same(checksum(target, "homes"))


def test_columns_changed_under_a_killed_backup(
    source: Database, homes: Table, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        killing(patch, "metadata")
        with pytest.raises(Killed):
            backup(source, "homes", tmp_path)
    homes.alter().drop_column("city").apply()
    made = backup(source, "homes", tmp_path)
    assert not made.resumed
    assert_restored(source, target, tmp_path, made.until)


def test_columns_changed_while_a_backup_runs(
    source: Database, homes: Table, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = parts._write_file

    def write_and_alter(*given: object) -> object:
        monkeypatch.setattr(parts, "_write_file", write)
        homes.alter().rename_column("city", "town").apply()
        return write(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(parts, "_write_file", write_and_alter)
    made = backup(source, "homes", tmp_path)
    assert_restored(source, target, tmp_path, made.until)


@pytest.mark.parametrize("stage", ["restore homes, 1 of 2", "restore homes, 2 of 2"])
def test_a_killed_restore_is_gone_on_with(
    source: Database, homes: Table, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from nyala.clients.jobs import under_way

    backup(source, "homes", tmp_path)
    homes.upsert(rows(range(400, 700), 3))
    homes.delete({"id": list(range(50))})
    made = backup(source, "homes", tmp_path)
    run = under_way.run_tasks

    def run_and_die(executor: object, function: object, tasks: list[object], count: object, what: str, show: object):
        yield from run(executor, function, tasks[:2] if what == stage else tasks, count, what, show)  # pyright: ignore[reportArgumentType]
        if what == stage:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(under_way, "run_tasks", run_and_die)
        with pytest.raises(Killed):
            restore(target, tmp_path, "homes")
    assert "homes" not in target.tables() and f"homes.restoring-{made.until}" in target.tables()
    again = restore(target, tmp_path, "homes")
    assert again.resumed == (stage == "restore homes, 2 of 2")
    assert target.tables() == ["homes"]
    assert checksum(target, "homes").is_same(checksum(source, "homes"))
    with pytest.raises(AlreadyPresentError, match="another name"):
        restore(target, tmp_path, "homes")


def test_a_broken_chain_is_refused(source: Database, homes: Table, target: Database, tmp_path: Path) -> None:
    made = []
    for turn in range(3):
        made.append(backup(source, "homes", tmp_path))
        homes.upsert(rows(range(10), turn + 1))
    Folder.at(made[1].folder).remove_all()
    with pytest.raises(ConflictError, match=r"chain of backups .* is broken.*full backup"):
        restore(target, tmp_path, "homes")
    assert target.tables() == []
    assert_restored(source, target, tmp_path, made[0].until)
    full = backup(source, "homes", tmp_path, force_full=True)
    assert full.kind == "full"
    assert_restored(source, target, tmp_path, full.until)


def test_history_that_is_gone(make_database: Make, tmp_path: Path) -> None:
    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.options import StoreOptions
    from nyala.engine.store import Store
    from tests.doubles.clock import ManualClock

    clock = ManualClock(1_700_000_000_000_000)
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"), clock)
    source = Database(store)
    homes = source.create_table("homes", SCHEMA, ["id"], history_max_age_seconds=60)
    homes.insert(rows(range(20)))
    backup(source, "homes", tmp_path)
    clock.advance(3_600_000_000)
    homes.delete({"id": [3]})
    homes.maintain("flush")
    homes.maintain("gc")
    with pytest.raises(SnapshotTooOldError, match=r"take a full backup \(force_full"):
        backup(source, "homes", tmp_path)
    made = backup(source, "homes", tmp_path, force_full=True)
    assert_restored(source, make_database(), tmp_path, made.until)
    store.close()


def test_files_that_are_not_what_was_written(source: Database, homes: Table, target: Database, tmp_path: Path) -> None:
    backup(source, "homes", tmp_path)
    victim = next(iter(tmp_path.rglob("*.parquet")))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    with pytest.raises(CorruptionError, match="SHA-256"):
        restore(target, tmp_path, "homes")
    victim.unlink()
    with pytest.raises(CorruptionError, match="missing"):
        restore(target, tmp_path, "homes")
    assert "homes" not in target.tables()


def test_what_cannot_be_backed_up_or_restored(source: Database, homes: Table, target: Database, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        backup(source, "nothing", tmp_path)
    made = backup(source, "homes", tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"the last backup ended at .* must be later"):
        backup(source, "homes", tmp_path, as_of=made.until)
    with pytest.raises(NotFoundError, match="there are backups of: homes"):
        restore(target, tmp_path, "houses")
    early = dt.datetime(2001, 1, 1, tzinfo=dt.UTC).isoformat()
    with pytest.raises(NotFoundError, match="no backup that ended by"):
        restore(target, tmp_path, "homes", at=early)
    with pytest.raises(InvalidArgumentError, match="invalid folder or URI"):
        backup(source, "homes", "nowhere://x/y")
    target.create_table("homes", pa.schema([("id", pa.string())]), ["id"])
    with pytest.raises(InvalidArgumentError, match="backups of another store"):
        backup(target, "homes", tmp_path)
