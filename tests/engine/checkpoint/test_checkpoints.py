"""Checkpoints of a store that is in use: what they show, what they share with it, and what they refuse."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.checkpoint.checkpoints import Checkpoints
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.encryption.opening import opened
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.subdirectory import DirectoryFileSystem
from nyala.engine.manifest.manifest import read_manifest
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StorageFullError, UnavailableError
from nyala.schemas.rows.write import Durability, WriteCommand
from nyala.schemas.store.checkpoint import Checkpoint, MakeCheckpoint
from nyala.schemas.store.placement import Placement
from nyala.schemas.table.alter import AddColumn, Alteration, Step
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.crash.images import contents
from tests.campaigns.crash.workloads import DIRECT, OPTIONS, SCHEMA, TABLE, WRITER, open_store, read, row, write
from tests.doubles.encrypted import KEY
from tests.doubles.faulty import FaultRule, FaultyFileSystem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(LocalFileSystem(tmp_path / "store")) as opened:
        opened.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        yield opened


def make(store: Store, directory: Path) -> Checkpoint:
    return store.checkpoint(MakeCheckpoint(directory=str(directory)))


@contextmanager
def copy_of(directory: Path) -> Iterator[Store]:
    """Open a checkpoint, which must be sound."""
    report = verify_store(LocalFileSystem(directory))
    assert report.is_sound and not report.notes, report
    with open_store(LocalFileSystem(directory)) as opened:
        yield opened


def put(store: Store, *ids: int, op: str = "upsert", batch: int = 0) -> None:
    write(store, op, [row(each, batch) for each in ids])


def flush(store: Store) -> None:
    store.maintain(TABLE, "flush")
    store.maintain(TABLE, "flush_deltas")


def test_a_copy_has_what_is_in_files_and_what_is_only_in_the_log(store: Store, tmp_path: Path) -> None:
    put(store, 1, 2, 3)
    flush(store)
    put(store, 2, 4, batch=1)
    write(store, "delete", [{"id": 3}])
    expected, moment = read(store), store.now()
    done = make(store, tmp_path / "copy")
    put(store, 5)
    assert (done.files, done.linked, done.copied) == (2, 2, 0) and done.log_bytes > 0
    assert done.timestamp >= moment
    with copy_of(tmp_path / "copy") as copy:
        assert read(copy) == expected
        assert copy.health().store_uuid == done.store_uuid != store.health().store_uuid
        put(copy, 6)
        assert copy.now() > done.timestamp
    assert {key for (key,) in read(store)} == {1, 2, 4, 5}


def test_column_files_are_shared_until_one_of_both_drops_them(store: Store, tmp_path: Path) -> None:
    put(store, 1)
    flush(store)
    make(store, tmp_path / "copy")
    (file,) = (tmp_path / "copy/tablets").rglob("*.base")
    assert os.stat(file).st_nlink == 2
    put(store, 2)
    flush(store)
    store.maintain(TABLE, "compact")
    assert os.stat(file).st_nlink == 1
    with copy_of(tmp_path / "copy") as copy:
        assert {key for (key,) in read(copy)} == {1}


def test_a_second_checkpoint_adds_what_is_new_and_removes_what_is_gone(store: Store, tmp_path: Path) -> None:
    put(store, 1)
    flush(store)
    first = make(store, tmp_path / "copy")
    put(store, 2)
    flush(store)
    second = make(store, tmp_path / "copy")
    assert (second.files, second.linked) == (4, 2) and second.store_uuid != first.store_uuid
    store.maintain(TABLE, "compact")
    third = make(store, tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy/tablets").rglob("*") if path.is_file()}
    assert len(names) == third.files == third.linked < 4
    assert sorted(os.listdir(tmp_path / "copy")) == ["authors", "checkpoint", "lock", "manifest", "tablets", "wal"]
    with copy_of(tmp_path / "copy") as copy:
        assert {key for (key,) in read(copy)} == {1, 2}


def test_answers_to_numbered_writes_are_remembered(store: Store, tmp_path: Path) -> None:
    first = write(store, "insert", [row(1, 0)], seq=1)
    flush(store)
    make(store, tmp_path / "copy")
    with copy_of(tmp_path / "copy") as copy:
        assert write(copy, "insert", [row(1, 0)], seq=1) == first
        assert len(copy.commits(TABLE)) == 1 and WRITER in copy.commits(TABLE).column("writer").to_pylist()


def test_rowsets_that_only_the_log_names_are_taken_along(tmp_path: Path) -> None:
    with open_store(LocalFileSystem(tmp_path / "store"), DIRECT) as store:
        store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        put(store, *range(100), op="insert")
        named = [tablet.rowsets for table in store._environment.manifest.current.tables for tablet in table.tablets]
        assert named == [()], "the manifest does not name it yet"
        assert make(store, tmp_path / "copy").files == 1
        put(store, *range(100, 200), op="insert")
    with copy_of(tmp_path / "copy") as copy:
        assert len(read(copy)) == 100
        put(copy, *range(100, 150))
        flush(copy)
        assert len(read(copy)) == 150


def test_writes_that_are_acknowledged_before_they_are_durable_are_in_it(store: Store, tmp_path: Path) -> None:
    command = WriteCommand(table=TABLE, durability=Durability.OS)
    for number in range(20):
        store.write(command, pa.RecordBatch.from_pylist([row(number, 0)], SCHEMA))
    make(store, tmp_path / "copy")
    with copy_of(tmp_path / "copy") as copy:
        assert len(read(copy)) == 20


def test_an_empty_store_and_dropped_tables(tmp_path: Path) -> None:
    with open_store(LocalFileSystem(tmp_path / "store")) as store:
        make(store, tmp_path / "copy")
        store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        put(store, 1)
        store.drop_table(TABLE, 3600)
        make(store, tmp_path / "kept")
    with copy_of(tmp_path / "copy") as copy:
        assert copy.tables() == []
    with copy_of(tmp_path / "kept") as copy:
        copy.recall_table(TABLE)
        assert len(read(copy)) == 1


def test_a_copy_after_a_restart_and_after_the_log_was_freed(tmp_path: Path) -> None:
    where = LocalFileSystem(tmp_path / "store")
    with open_store(where) as store:
        store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        put(store, 1)
    with open_store(where) as store:
        for number in range(200):
            put(store, number)
        flush(store)
        assert store._environment.manifest.current.log_needed_from > 1
        put(store, 777)
        make(store, tmp_path / "copy")
    with copy_of(tmp_path / "copy") as copy:
        assert len(read(copy)) == 201
    assert read_manifest(LocalFileSystem(tmp_path / "copy")).last_timestamp > 0


class _CutBetween(Checkpoints):
    """Does something to the store between the cut and the next step."""

    act: Any = None

    def _bring(self, *given: Any) -> Any:
        if self.act and self.acts:
            self.acts -= 1
            self.act()
        return super()._bring(*given)

    acts = 0


def interrupted(store: Store, act: Any, times: int) -> None:
    store._checkpoints.__class__ = _CutBetween
    store._checkpoints.act, store._checkpoints.acts = act, times  # type: ignore[attr-defined]


def test_files_that_a_compaction_removes_meanwhile(store: Store, tmp_path: Path) -> None:
    put(store, 0)
    flush(store)
    numbers = iter(range(1, 100))

    def compact() -> None:
        put(store, next(numbers))
        flush(store)
        store.maintain(TABLE, "compact")

    interrupted(store, compact, 5)
    make(store, tmp_path / "copy")
    expected = read(store)
    with copy_of(tmp_path / "copy") as copy:
        assert read(copy).items() <= expected.items() and len(read(copy)) >= 5
    interrupted(store, compact, 50)
    with pytest.raises(UnavailableError, match="keep changing"):
        make(store, tmp_path / "other")
    with pytest.raises(InvalidArgumentError, match="unfinished checkpoint"):
        open_store(LocalFileSystem(tmp_path / "other"))


def test_a_file_that_is_lost_is_named(store: Store, tmp_path: Path) -> None:
    put(store, 1)
    flush(store)
    (file,) = (tmp_path / "store/tablets").rglob("*.base")
    file.unlink()
    with pytest.raises(CorruptionError, match=file.name):
        make(store, tmp_path / "copy")


def test_the_log_is_not_freed_while_it_is_read(store: Store, tmp_path: Path) -> None:
    with store._log_freeing.kept():
        for number in range(200):
            put(store, number)
        flush(store)
        assert store._environment.wal.first_lsn == 1
    put(store, 1)
    flush(store)
    assert store._environment.wal.first_lsn > 1


def test_a_table_is_altered_and_written_while_checkpoints_are_made(tmp_path: Path) -> None:
    """No cut may have a row of a column, or of a table, that its manifest does not know."""
    with Store.open(tmp_path / "store", StoreOptions(wal_segment_bytes=1 << 14, flush_bytes=1 << 14)) as store:
        stop = threading.Event()

        def work() -> None:
            for number in range(1, 10_000):
                if stop.is_set():
                    return
                name = f"t{number % 3}"
                if name not in store.tables():
                    store.create_table(TableDefinition.from_arrow(name, SCHEMA, ["id"]))
                columns = [column.name for column in store.describe_table(name).columns][len(SCHEMA) :]
                rows = [row(number, number) | dict.fromkeys(columns, number)]
                batch = pa.RecordBatch.from_pylist(rows)
                assert not store.write(WriteCommand(table=name), batch).errors
                if number % 7 == 0:
                    steps: list[Step] = [AddColumn(name=f"c{number}", type="int64")]
                    store.alter_table(Alteration(table=name, steps=steps))
                if number % 11 == 0:
                    store.maintain(name, ("flush", "flush_deltas", "compact")[number % 3])
                if number % 20 == 0:
                    store.drop_table(name)

        writer = threading.Thread(target=work)
        writer.start()
        try:
            for number in range(12):
                make(store, tmp_path / f"copy{number % 3}")
                if number % 3 == 2:
                    for each in range(3):
                        with copy_of(tmp_path / f"copy{each}") as copy:
                            for name in copy.tables():
                                copy.table_stats(name)
                            assert not copy.health().damaged
                        os.rename(tmp_path / f"copy{each}", tmp_path / f"opened{number}.{each}")
        finally:
            stop.set()
            writer.join()


@pytest.mark.parametrize("what", ["store", "opened", "file", "within", "around", "relative", "foreign", "used"])
def test_directories_that_are_refused(store: Store, tmp_path: Path, what: str) -> None:
    target = tmp_path / "target"
    if what == "store":
        open_store(LocalFileSystem(target)).close()
    elif what == "opened":
        make(store, target)
        open_store(LocalFileSystem(target)).close()
    elif what == "file":
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    elif what == "within":
        target = tmp_path / "store/copies"
    elif what == "around":
        target = tmp_path
    elif what == "relative":
        target = Path("target")
    elif what == "foreign":
        with open_store(LocalFileSystem(tmp_path / "other")) as other:
            make(other, target)
    else:
        target.mkdir()
        lock = LocalFileSystem(target).lock("lock")
        with lock, pytest.raises(UnavailableError):
            make(store, target)
        return
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidArgumentError):
        make(store, target)
    assert sorted(tmp_path.rglob("*")) == before


def on_faulty(rules: list[FaultRule]) -> tuple[FaultyFileSystem, Store]:
    """Return a store whose files go to other file systems under these rules."""
    fs = FaultyFileSystem(MemoryFileSystem())
    store = open_store(fs)
    store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
    put(store, 1, 2)
    flush(store)
    put(store, 3)
    fs.rules, fs._matched = rules, [0] * len(rules)
    return fs, store


def opened_copy(target: FileSystem) -> dict[Any, Any]:
    assert verify_store(target).is_sound
    with open_store(target) as copy:
        return read(copy)


def test_a_disk_without_links_gets_copies_and_keeps_them() -> None:
    _, store = on_faulty([])
    target = MemoryFileSystem()
    first = store._checkpoints.make_in(target)
    assert (first.linked, first.copied) == (0, 2) and first.bytes_copied == first.bytes > 0
    put(store, 4)
    flush(store)
    second = store._checkpoints.make_in(target)
    assert (second.files, second.copied) == (4, 2)
    assert opened_copy(target) == read(store)


def test_a_copy_that_was_interrupted_is_made_again() -> None:
    """Also one of which all bytes were written but not yet synced."""
    _, store = on_faulty([])
    expected = read(store)
    for call in ("append", "sync", "rename"):
        disk = MemoryFileSystem()
        target = FaultyFileSystem(disk, [FaultRule(calls=frozenset({call}), path="tablets/*", error=errno.ENOSPC)])
        with pytest.raises(StorageFullError):
            store._checkpoints.make_in(target)
        with pytest.raises(InvalidArgumentError, match="unfinished checkpoint"):
            open_store(disk)
        with pytest.raises(InvalidArgumentError, match="unfinished checkpoint"):
            verify_store(disk)
        store._checkpoints.make_in(disk)
        assert opened_copy(disk) == expected


def test_a_full_disk_leaves_the_earlier_checkpoint() -> None:
    _, store = on_faulty([])
    expected = read(store)
    disk = MemoryFileSystem()
    store._checkpoints.make_in(disk)
    put(store, 9)
    flush(store)
    target = FaultyFileSystem(disk, [FaultRule(calls=frozenset({"create"}), path="wal.next/*", error=errno.ENOSPC)])
    with pytest.raises(StorageFullError):
        store._checkpoints.make_in(target)
    assert opened_copy(disk) == expected


def test_files_of_another_life_of_the_store_are_replaced() -> None:
    """A store that was put back to an older copy of its directory gives the same numbers to other files."""
    disk = MemoryFileSystem()
    source = DirectoryFileSystem(disk, "store")
    with open_store(source) as store:
        store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        put(store, 1)
    lives = [disk.crash_image(Random(0)) for _ in range(2)]
    target = MemoryFileSystem()
    for number, life in enumerate(lives):
        with open_store(DirectoryFileSystem(life, "store")) as store:
            put(store, 100 + number, batch=number)
            flush(store)
            assert store._checkpoints.make_in(target).copied >= 1
            expected = read(store)
    assert opened_copy(target) == expected


def test_the_store_stays_as_it_is(store: Store, tmp_path: Path) -> None:
    put(store, 1, 2)
    flush(store)
    put(store, 3)
    files = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    make(store, tmp_path / "copy")
    assert files == {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}


def test_a_directory_in_use_refuses(store: Store, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    put(store, 1)
    make(store, copy)
    with LocalFileSystem(copy).lock("lock"), pytest.raises(UnavailableError) as caught:
        make(store, copy)
    assert "another checkpoint is made in it" in caught.value.message and str(copy) in caught.value.message
    assert caught.value.retry_after_seconds
    make(store, copy)


def test_a_store_that_shares_its_tables_refuses(tmp_path: Path) -> None:
    placement = Placement(servers={"a": ("grpc://127.0.0.1:1",), "b": ("grpc://127.0.0.1:2",)})
    options = OPTIONS.model_copy(update={"placement": placement, "server": "a"})
    store = open_store(LocalFileSystem(tmp_path / "store"), options)
    with store, pytest.raises(InvalidArgumentError, match="job backup"):
        make(store, tmp_path / "copy")


def test_a_copy_of_an_encrypted_store_has_its_keys(tmp_path: Path) -> None:
    options = OPTIONS.model_copy(update={"key": KEY})
    disk = MemoryFileSystem()
    with open_store(LocalFileSystem(tmp_path / "store"), options) as store:
        store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"]))
        put(store, 1)
        flush(store)
        put(store, 2)
        for _ in range(2):
            assert make(store, tmp_path / "copy").copied == 0
            store._checkpoints.make_in(disk)
        expected = read(store)
    for copy in (LocalFileSystem(tmp_path / "copy"), disk):
        for path, content in contents(copy):
            assert (
                content is None
                or path == "lock"
                or content.startswith(b"NYALAENC" if "keys" not in path else b"NYALAKEY")
            )
        with pytest.raises(InvalidArgumentError, match="encrypted with the key"):
            open_store(copy)
        assert verify_store(opened(copy, KEY)).is_sound
        with open_store(copy, options) as other:
            assert read(other) == expected
