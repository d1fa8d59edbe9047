"""Flushes asked for by name: after a failure, side by side, and what of the log they free."""

import errno
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance.together import table_operations
from nyala.engine.manifest.manifest import Manifest
from nyala.schemas.errors import StorageFullError, UnavailableError
from tests.dose import by_night
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.subject import Subject


def full_once(path: str) -> Subject:
    """Return a store whose first file of that kind finds no room."""
    rule = FaultRule(calls=frozenset({"create"}), path=path, error=errno.ENOSPC)
    return Subject(FaultyFileSystem(MemoryFileSystem(), [rule]))


def test_a_flush_takes_the_rows_that_a_failed_one_left_and_those_since() -> None:
    subject = full_once("*.base")
    subject.upsert(1, 2)
    with pytest.raises(StorageFullError):
        subject.flush()
    subject.upsert(2, 3, v=5)
    assert [len(memrowset) for memrowset in subject.tablet.version.in_memory] == [2, 1]
    subject.check()
    assert subject.flush() == 3
    assert [len(memrowset) for memrowset in subject.tablet.version.in_memory] == [0]
    subject.close()


def test_a_flush_of_deltas_takes_those_that_a_failed_one_left_and_those_since() -> None:
    subject = full_once("*.redo")
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(1, 2, v=1)
    with pytest.raises(StorageFullError):
        subject.flush_deltas()
    subject.upsert(2, 3, v=2)
    subject.check()
    assert subject.flush_deltas() == 4
    assert not any(rowset.deltas.memory_bytes for rowset in subject.tablet.version.disk)
    assert subject.flush_deltas() == 0
    subject.close()


def test_the_manifest_never_asks_for_log_that_another_flush_has_freed() -> None:
    manifest = Manifest(store_uuid="0" * 32).with_log_from(50)
    assert manifest.with_log_from(20) == manifest
    assert manifest.with_log_from(51).log_needed_from == 51


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_the_log_is_freed_and_never_too_much_of_it(seed: int) -> None:
    random = Random(seed)
    subject = Subject(wal_segment_bytes=1 << 12)
    for _ in range(random.randint(5, 15)):
        subject.some_writes(random, range(16), commits=random.randint(1, 4))
        work = random.choice([subject.flush, subject.flush_deltas, subject.restart, lambda: subject.crash(random)])
        work()
    subject.flush()
    subject.flush_deltas()
    assert subject.store._wal.stats().segment_count <= 2
    subject.crash(random)
    subject.close()


@pytest.mark.parametrize("op", ["flush", "flush_deltas"])
@pytest.mark.parametrize("seed", by_night(range(6), range(2)))
def test_files_never_hold_what_the_log_may_lose(op: str, seed: int) -> None:
    """A write that is acknowledged before its sync, the sync fails, the flush comes, the power goes."""
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    subject = Subject(fs, durability="os")
    subject.upsert(1)
    subject.flush()
    subject.store._wal.wait(subject.store._wal.writer.last_lsn)
    fs.rules.append(FaultRule(calls=frozenset({"sync"}), path="wal/*", sticky=True))
    fs._matched.append(0)
    subject.upsert(1, 2, v=1)
    with suppress(UnavailableError):
        subject.store.maintain("t", op)
    image = disk.crash_image(Random(seed))
    after = Subject(image)
    assert after.scan(ordered=True) in ([(1, 0, "s")], [(1, 1, "s"), (2, 1, "s")])
    after.store.close()
    subject.store.close()


def test_what_frees_memory_goes_first_when_writers_wait_for_it() -> None:
    subject = Subject(redo_files_count=2, redo_share=1e-9, memory_bytes=1 << 20, memory_soft_share=1e-6)
    for _ in range(8):
        subject.upsert(*range(20), v=1)
        subject.flush()
        subject.upsert(*range(20), v=2)
        subject.flush_deltas()
    subject.upsert(1, v=3)  # few deltas, fewer than a flush is worth otherwise
    subject.upsert(*range(100, 200), s="x" * 2_000)  # so large that memory is counted
    assert subject.store._gate.is_pressed()
    done = [subject.store.run_maintenance_once() for _ in range(3)]
    assert [name.partition(" of")[0] for name in done[:2] if name] == ["flush tablet 2", "flush deltas"], done
    assert done[2] == "minor delta compaction of tablet 2", "which was worth more than a flush that nobody waits for"
    subject.close()


def test_an_empty_memrowset_is_not_flushed_however_small_the_limit() -> None:
    """Its pages take more than a byte: maintenance flushed nothing, again and again, without a pause."""
    subject = Subject(flush_bytes=1)
    subject.upsert(1)
    works = [subject.store.run_maintenance_once() or "nothing" for _ in range(5)]
    assert [work for work in works if work.startswith("flush")] == works[:1], works
    subject.close()


def test_work_that_was_chosen_before_its_table_was_dropped_does_nothing() -> None:
    subject = Subject()
    subject.upsert(1, 2)
    table = subject.store._catalog.table("t")
    parts = subject.environment, subject.options, lambda: False, lambda _: 0, lambda: None
    operations = list(table_operations(table, *parts))
    subject.store.drop_table("t")
    assert {"index keys of tablet 2", "flush tablet 2"} <= {operation.name for operation in operations}
    assert [operation.perform() for operation in operations] == [None] * len(operations)
    subject.store.close()
