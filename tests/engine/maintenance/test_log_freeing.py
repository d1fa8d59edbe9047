"""The manifest says what of the log files hold, and never of a record that the log may lose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from nyala.engine.commit.commit_log import CommitLog
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.maintenance.upkeep import flush
from nyala.engine.options import StoreOptions
from nyala.engine.replica.opening import open_to_read
from nyala.engine.store import Store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.alter import Alteration
from nyala.schemas.table.table import TableDefinition
from tests.doubles.faulty import SYNCS, WRITES, FaultRule, FaultyFileSystem
from tests.doubles.waiting import until

OPTIONS = StoreOptions(maintenance="off", scan_threads=1, wal_segment_bytes=1 << 16)


class NothingKept(Random):
    """A chance by which nothing outlives the power failure that was not synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        return a


class SlowDisk(FaultyFileSystem):
    """The calls ``slow`` of the log take until ``is_fast`` is set."""

    def __init__(self, disk: FileSystem, slow: frozenset[str] = SYNCS) -> None:
        super().__init__(disk)
        self.slow = slow
        self.is_fast = threading.Event()
        self.is_fast.set()

    def fault_of(self, call: str, path: str) -> FaultRule | None:
        if call in self.slow and path.startswith("wal/"):
            assert self.is_fast.wait(60)
        return super().fault_of(call, path)


def upsert(store: Store, table: str, *keys: int) -> WriteResult:
    batch = pa.record_batch({"k": pa.array(keys, pa.int64())})
    return store.write(WriteCommand(table=table, op=Operation.UPSERT), batch)


def keys_of(store: Store, table: str, as_of: int | None = None) -> list[int]:
    return sorted(store.scan(ScanSpec(table=table, as_of=as_of)).to_reader().read_all()["k"].to_pylist())


def newest(store: Store) -> int:
    return store._wal.writer.last_lsn


@contextmanager
def in_flight(disk: SlowDisk, store: Store, *writes: tuple[str, int]) -> Iterator[None]:
    """Hold the slow calls of the log while rows wait for them, each of a table in a record of its own."""
    disk.is_fast.clear()
    threads = []
    for table, key in writes:
        position = newest(store)
        threads.append(threading.Thread(target=upsert, args=(store, table, key)))
        threads[-1].start()
        until(lambda position=position: newest(store) == position + 1)
    try:
        yield
    finally:
        disk.is_fast.set()
        for thread in threads:
            thread.join()


def opened(disk: SlowDisk | MemoryFileSystem) -> Store:
    store = Store.open(disk, OPTIONS)
    for name in {"a", "b"} - set(store.tables()):
        store.create_table(TableDefinition.from_arrow(name, pa.schema([pa.field("k", pa.int64(), False)]), ["k"]))
    return store


def test_a_row_at_a_position_that_the_log_lost_is_replayed() -> None:
    """The row of ``b`` waits in memory, so its files hold all before it, which was written down before the record of
    ``a`` was durable. The power failed, and the next row of ``b`` took the position of that record."""
    memory = MemoryFileSystem()
    disk = SlowDisk(memory)
    store = opened(disk)
    upsert(store, "a", 1)
    with in_flight(disk, store, ("a", 2), ("b", 1)):
        store._log_freeing.free()
        store._environment.manifest.commit(lambda manifest: manifest)  # as any ALTER does
        image = memory.crash_image(NothingKept())
    store.close()

    store = opened(image)
    assert (keys_of(store, "a"), keys_of(store, "b")) == ([1], [])
    upsert(store, "b", 7)
    image = image.crash_image(NothingKept())
    store.close()

    store = opened(image)
    assert (keys_of(store, "a"), keys_of(store, "b")) == ([1], [7])
    store.close()


def test_files_are_said_to_hold_no_record_that_is_not_durable() -> None:
    disk = SlowDisk(MemoryFileSystem())
    store = opened(disk)
    upsert(store, "a", 1)
    durable = newest(store)
    with in_flight(disk, store, ("a", 2), ("b", 1)):
        needed, in_files = store._log_freeing.needed()
    assert needed <= durable + 1
    assert max(in_files.values()) <= durable
    store.close()


def test_an_opening_takes_back_what_the_manifest_says_of_records_after_the_log() -> None:
    """A build before could write it."""
    disk = MemoryFileSystem()
    store = opened(disk)
    upsert(store, "a", 1)
    claims = {tablet.tablet_id: newest(store) + 5 for tablet in store._catalog.table("b").tablets}
    store._environment.manifest.commit(lambda manifest: manifest.with_in_files(claims))
    image = disk.crash_image(NothingKept())
    store.close()

    store = opened(image)
    upsert(store, "b", 7)
    image = image.crash_image(NothingKept())
    store.close()
    store = opened(image)
    assert (keys_of(store, "a"), keys_of(store, "b")) == ([1], [7])
    store.close()


def test_answers_are_saved_only_by_a_durable_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that saves them is interrupted while the note is synced. Then the power fails."""
    disk = SlowDisk(memory := MemoryFileSystem())
    store = opened(disk)
    numbered, batch = WriteCommand(table="a", op=Operation.UPSERT, writer="w"), pa.record_batch({"k": pa.array([1])})
    store.write(numbered, batch, 0)
    store.write(WriteCommand(table="a", op=Operation.DELETE), batch)
    upsert(store, "a", *range(100, 20_000))
    upsert(store, "a", *range(100, 20_000))
    for tablet in store._catalog.table("a").tablets:
        flush(tablet, store._environment)

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitLog, "acknowledge", interrupted)
    disk.is_fast.clear()
    for _ in range(2):  # the second time, after the next flush
        with pytest.raises(KeyboardInterrupt):
            store._log_freeing.free()
    image = memory.crash_image(NothingKept())
    disk.is_fast.set()
    monkeypatch.undo()
    store.close()

    store = opened(image)
    store.write(numbered, batch, 0)
    assert 1 not in keys_of(store, "a")
    store.close()


def alter(store: Store) -> None:
    steps = [{"op": "add_column", "name": "v", "type": "int64"}]
    store.alter_table(Alteration.model_validate({"table": "b", "steps": steps}))


def free(store: Store) -> None:
    store._log_freeing.free()


@pytest.mark.parametrize("work", [alter, free])
def test_the_manifest_names_no_moment_before_its_rows_are_there(work: Callable[[Store], None], tmp_path: Path) -> None:
    """A second process took the newest change that it names for a moment that may be read."""
    disk = SlowDisk(LocalFileSystem(tmp_path), WRITES)
    store = opened(disk)
    for first in range(10, 60_000, 10_000):
        upsert(store, "a", *range(first, first + 10_000))
    with store._log_freeing.kept():
        store.maintain("a", "flush")
    reader = open_to_read(str(tmp_path))
    with in_flight(disk, store, ("a", 2), ("b", 2)):
        worker = threading.Thread(target=work, args=(store,))
        worker.start()
        until(lambda: not worker.is_alive() or store._mvcc._waiting > 0)
        scan = reader.scan(ScanSpec(table="b"))
        keys = scan.to_reader().read_all()["k"].to_pylist()
    worker.join()
    assert keys == keys_of(store, "b", as_of=scan.snapshot)
    reader.close()
    store.close()
