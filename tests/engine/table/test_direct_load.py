"""Large batches of new rows that go to disk at once: what they show, and that nobody loses by it."""

from __future__ import annotations

import errno
import json
import threading
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance.upkeep import name_rowsets
from nyala.engine.table import direct_load
from nyala.engine.tablet import attach
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.errors import SnapshotTooOldError, StoreError
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import CommitMode, WriteCommand
from tests.dose import by_night
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import EVERY_CALL, READS, FaultRule, FaultyFileSystem
from tests.engine.phases import at
from tests.engine.subject import Subject, batch

DIRECT: dict[str, Any] = {"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1}
ORDINARY: dict[str, Any] = {"direct_load_bytes": 1 << 30}
MOMENT = 1_700_000_000_000_000


def direct(**options: Any) -> Subject:
    return Subject(**{**DIRECT, **options})


def is_direct(subject: Subject) -> bool:
    """Whether the last write left a rowset that was attached."""
    return bool(subject.tablet.version.attached)


def manifest_of(subject: Subject) -> str:
    """Return the body of the manifest on disk."""
    return subject.fs.open("manifest").pread(24, 1 << 20).decode()


def load_directly(subject: Subject, every: bool) -> None:
    """Let every batch be loaded directly from here on, or none."""
    at_least = 1 if every else 1 << 40
    subject.store._writes.direct_load = direct_load.DirectLoad(subject.environment, at_least, at_least)


def changes(subject: Subject, since: int, **feed: bool) -> list[tuple]:
    spec = ChangeSpec(since=since, until=None, **feed)
    return [row[:1] + row[2:] for row in subject.scan(changes=spec)]


def test_rows_are_on_disk_and_in_no_memory_store() -> None:
    subject = direct()
    before = subject.store.now()
    result = subject.upsert(3, 1, 2, v=7)
    assert result.applied == 3 and is_direct(subject) and not len(subject.tablet.version.active)
    assert [rowset.born for rowset in subject.tablet.version.attached] == [result.timestamp]
    assert subject.scan(as_of=result.timestamp - 1) == [] == subject.scan(as_of=before)
    assert changes(subject, before) == [("insert", 1, 7, "s"), ("insert", 2, 7, "s"), ("insert", 3, 7, "s")]
    assert changes(subject, result.timestamp) == []
    stats = subject.store.table_stats("t").tablets[0]
    assert (stats.live_rows, stats.rowsets) == (3, 1) and stats.bytes_on_disk
    subject.close()


def test_what_is_not_all_new_goes_the_ordinary_way() -> None:
    subject = direct()
    subject.upsert(1, 2)
    subject.upsert(2, 3)  # one is there
    assert len(subject.tablet.version.active) == 1
    command = WriteCommand(table="t", op=Operation.INSERT)
    result = subject.store.write(command, batch([(9, 1, ""), (9, 2, ""), (8, 3, "")]))
    assert [error.row for error in result.errors] == [1] and len(subject.tablet.version.active) == 3
    incomplete = subject.store.write(command, batch([(7, 1, "")]).select(["k"]))
    assert incomplete.applied == 1
    subject.delete(1)
    subject.upsert(1, v=5)  # its row is there, dead
    subject.state |= {9: (9, 1, ""), 8: (8, 3, ""), 7: (7, None, None)}
    subject.history = [(subject.store.now(), subject.state)]
    subject.close()


def test_rows_that_are_refused_are_refused_alike() -> None:
    answers = []
    for options in (ORDINARY, DIRECT):
        subject = Subject(**options)
        rows = pa.record_batch(
            {"k": pa.array([5, None, 6], pa.int64()), "v": pa.array([1, 2, 3], pa.int32()), "s": ["a", "b", "c"]}
        )
        for atomic in (True, False):
            result = subject.store.write(WriteCommand(table="t", op=Operation.INSERT, atomic=atomic), rows)
            answers.append(result.model_dump(exclude={"timestamp"}))
        assert is_direct(subject) == (options is DIRECT)
        assert subject.scan(ordered=True) == [(5, 1, "a"), (6, 3, "c")]
        subject.store.close()
    assert answers[:2] == answers[2:]


def test_a_whole_stream_is_one_rowset() -> None:
    subject = direct(direct_load_bytes=400)
    command = WriteCommand(table="t", commit=CommitMode.STREAM)
    parts = [batch([(key, key, "s") for key in range(first, first + 10)]) for first in (0, 10, 20)]
    (result,) = subject.store.write_all(command, parts)
    assert result.applied == 30 and len(subject.tablet.version.attached) == 1
    subject.store.close()


def test_small_batches_and_such_in_another_order_gather_in_memory() -> None:
    subject = Subject(direct_load_bytes=200, direct_load_unsorted_bytes=2_000)
    subject.upsert(1, 2)
    assert len(subject.tablet.version.active) == 2
    subject.upsert(*range(60, 30, -1))
    assert len(subject.tablet.version.active) == 32
    subject.upsert(*range(100, 130))
    assert is_direct(subject) and len(subject.tablet.version.active) == 32
    subject.upsert(*range(900, 600, -1))
    assert len(subject.tablet.version.attached) == 2
    subject.close()


@pytest.mark.parametrize("seed", by_night(range(12), range(4)))
def test_any_history_reads_the_same_through_everything(seed: int) -> None:
    random = Random(seed)
    subject = direct(flush_bytes=random.choice([1, 1 << 20]))
    kinds = ["flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc"]
    fresh = iter(range(0, 10_000, 7))
    for _ in range(14):
        if random.random() < 0.5:
            subject.upsert(*(next(fresh) for _ in range(random.randint(1, 5))), v=random.randint(0, 99))
        else:
            subject.some_writes(random, range(0, 70, 5), commits=1)
        if random.random() < 0.5:
            subject.store.maintain("t", random.choice(kinds))
        if random.random() < 0.2:
            subject.crash(random)
        elif random.random() < 0.1:
            subject.restart()
        subject.check()
    subject.close()


def test_every_change_is_in_the_feed_before_and_after_a_merge() -> None:
    subject = direct()
    start = subject.store.now()
    subject.upsert(1, 2, 3, v=1)
    subject.upsert(2, v=2)
    subject.delete(3)
    subject.upsert(10, 11)
    feeds = []
    for kind in ("flush_deltas", "major_compact", "compact"):
        feeds.append((changes(subject, start, every=True), changes(subject, start)))
        subject.store.maintain("t", kind)
        subject.check()
    feeds.append((changes(subject, start, every=True), changes(subject, start)))
    assert all(feed == feeds[0] for feed in feeds)
    assert [row[0] for row in sorted(feeds[0][0], key=lambda row: row[1])] == [
        "insert", "insert", "update", "insert", "delete", "insert", "insert",
    ]  # fmt: skip
    (entry,) = subject.environment.manifest.current.tables[0].tablets[0].rowsets
    assert entry.born is None and entry.undo
    subject.close()


def test_history_gc_drops_dead_rowsets_and_their_births() -> None:
    clock = ManualClock(MOMENT)
    subject = direct(clock=clock, table_options={"history_max_age_seconds": 10})
    subject.upsert(1, 2)
    born = subject.upsert(3, 4).timestamp
    subject.delete(1, 2)
    subject.flush_deltas()
    clock.advance(20_000_000)
    assert subject.store.maintain("t", "gc")["rows"] == 2
    with pytest.raises(SnapshotTooOldError):
        subject.scan(as_of=born)
    subject.upsert(1, v=8)
    subject.store.maintain("t", "compact")
    subject.history = [(subject.store.now(), subject.state)]
    subject.crash(Random(0))
    subject.close()


def test_history_gc_forgets_births_that_no_snapshot_can_ask_for() -> None:
    clock = ManualClock(MOMENT)
    subject = direct(clock=clock, table_options={"history_max_age_seconds": 10})
    born = subject.upsert(1, 2).timestamp
    clock.advance(20_000_000)
    late = subject.upsert(3, 4).timestamp
    subject.store.maintain("t", "gc")
    assert [rowset.born for rowset in subject.tablet.version.disk] == [None, late]
    assert '"born":null' in manifest_of(subject) and str(born) not in manifest_of(subject)
    with pytest.raises(SnapshotTooOldError):
        subject.scan(as_of=born)
    subject.history = subject.history[-1:]
    subject.upsert(1, v=5)
    subject.delete(2)
    for kind in ("flush_deltas", "major_compact", "compact"):
        subject.check()
        subject.crash(Random(0))
        subject.store.maintain("t", kind)
    subject.close()


def test_the_clock_goes_on_above_births_that_were_forgotten() -> None:
    clock = ManualClock(MOMENT)
    subject = direct(clock=clock, table_options={"history_max_age_seconds": 10}, wal_segment_bytes=1 << 12)
    subject.upsert(1, 2)
    clock.advance(20_000_000)
    subject.store.maintain("t", "gc")
    floor = subject.tablet.version.history_floor
    subject.clock = ManualClock(MOMENT - 50_000_000)  # set back while the store was down
    subject.crash(Random(0))
    assert subject.upsert(3).timestamp > floor
    subject.store.close()


def test_a_key_of_a_dropped_rowset_may_come_in_an_attached_one_though_the_log_knows_both_lives() -> None:
    """The old life is replayed first: it must not leave a second row of the key."""
    clock = ManualClock(MOMENT)
    table_options = {"history_max_age_seconds": 10}
    subject = Subject(clock=clock, wal_segment_bytes=1 << 20, table_options=table_options)
    subject.upsert(1)
    subject.flush()
    subject.delete(1)
    subject.upsert(1, v=2)
    subject.delete(1)
    subject.flush_deltas()
    clock.advance(20_000_000)
    assert subject.store.maintain("t", "gc")["rows"] == 1
    load_directly(subject, True)
    subject.upsert(1, v=3)
    assert is_direct(subject)
    subject.history = [(subject.store.now(), subject.state)]
    for _ in range(2):
        subject.crash(Random(1))
        subject.check()
    subject.flush()
    subject.store.maintain("t", "compact")
    subject.close()


# The race for a key


def test_a_key_that_comes_while_the_file_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = direct()

    def other() -> None:
        load_directly(subject, False)
        subject.store.write(WriteCommand(table="t", op=Operation.INSERT), batch([(2, 99, "first")]))

    at(monkeypatch, (direct_load, "_write_base"), False, other)
    result = subject.store.write(WriteCommand(table="t", op=Operation.INSERT), batch([(k, 0, "") for k in (1, 2, 3)]))
    assert [(error.row, error.code) for error in result.errors] == [(1, "ALREADY_PRESENT")]
    assert subject.scan(ordered=True) == [(1, 0, ""), (2, 99, "first"), (3, 0, "")]
    assert not is_direct(subject)
    subject.state = {row[0]: row for row in subject.scan()}
    subject.history = [(subject.store.now(), subject.state)]
    subject.close()


def test_writers_of_the_same_keys_get_them_once() -> None:
    subject = direct()
    results, barrier = [], threading.Barrier(4)

    def load(number: int) -> None:
        rows = batch([(key, number, "") for key in range(2_000)])
        barrier.wait()
        results.append(subject.store.write(WriteCommand(table="t", op=Operation.INSERT), rows))

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.applied for result in results) == [0, 0, 0, 2_000]
    assert len({row[1] for row in subject.scan()}) == 1
    subject.state = {row[0]: row for row in subject.scan()}
    subject.history = [(subject.store.now(), subject.state)]
    subject.close()


def test_work_goes_on_while_a_rowset_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its slot: flushes, merges and look-ups must not meet it."""
    subject = direct()
    subject.upsert(1, 5, v=1)

    def meanwhile() -> None:
        load_directly(subject, False)
        subject.upsert(5, 20, v=2)
        subject.delete(1)
        subject.store.maintain("t", "flush")
        subject.store.maintain("t", "compact")
        assert subject.store.get("t", pa.record_batch({"k": pa.array([2, 20], pa.int64())})).num_rows == 1

    at(monkeypatch, (attach.StagedRowSet, "__init__"), False, meanwhile)
    subject.upsert(2, 3, 4, v=3)
    subject.history = [(subject.store.now(), subject.state)]
    assert sorted(subject.scan()) == [(2, 3, "s"), (3, 3, "s"), (4, 3, "s"), (5, 2, "s"), (20, 2, "s")]
    subject.close()


# The disk


def test_the_log_tells_of_it_until_the_manifest_does() -> None:
    subject = direct()
    subject.upsert(1, 2, v=1)
    subject.upsert(2, v=5)
    rowset = subject.tablet.version.attached[0].rowset_id
    assert '"rowsets":[]' in manifest_of(subject)
    subject.crash(Random(3))
    (found,) = subject.tablet.version.disk
    assert found.rowset_id == rowset and subject.environment.manifest.new_id() > rowset
    subject.check()
    subject.restart()
    manifest = json.loads(manifest_of(subject))
    assert [entry["born"] for entry in manifest["tables"][0]["tablets"][0]["rowsets"]] == [found.born]
    subject.close()


def test_rowsets_of_one_commit_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance comes when the first is in the tablet and the second is not: neither may be left out for good."""
    subject = direct()
    monkeypatch.setattr(direct_load, "TARGET_BYTES", 200)
    attach_one, naming = Tablet.attach, []

    def with_maintenance(tablet: Tablet, *rowset: Any) -> None:
        attach_one(tablet, *rowset)
        if not naming:
            naming.append(threading.Thread(target=name_rowsets, args=(tablet, subject.environment)))
            naming[0].start()
            naming[0].join(0.1)

    monkeypatch.setattr(Tablet, "attach", with_maintenance)
    subject.upsert(*range(30))
    naming[0].join()
    subject.flush()
    assert len(subject.tablet.version.disk) > 1
    subject.restart()
    subject.close()


def test_the_log_is_not_freed_before_the_manifest_names_the_rowset() -> None:
    subject = direct()
    for number in range(40):
        subject.upsert(*range(number * 10, number * 10 + 10))
    load_directly(subject, False)
    for number in range(40):
        subject.upsert(*range(1_000 + number * 10, 1_010 + number * 10), s="x" * 100)
    segments = subject.store._wal.stats().segment_count
    subject.flush()
    assert subject.store._wal.stats().segment_count < segments
    subject.crash(Random(5))
    subject.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_every_call_of_a_load_may_fail(error: int) -> None:
    """What was refused is not there, and no file of it; what was acknowledged is, whatever the disk does then."""
    counted = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=EVERY_CALL - READS, nth=1 << 30)])
    loaded(counted).store.close()
    calls = counted._matched[0]
    failed = 0
    for nth in range(1, calls + 1):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject = loaded(fs)
        fs.rules.append(FaultRule(calls=EVERY_CALL - READS, nth=nth, error=error))
        fs._matched.append(0)
        state = subject.state
        try:
            subject.upsert(1, 2, 3)
        except StoreError:
            failed += 1
            subject.state = state
            if not subject.store._log.read_only_reason:
                subject.check()
                subject.upsert(1, 2, 3)
        if fs.injected:
            subject.fs, image = disk, disk.crash_image(Random(nth))
            subject.store.close()
            rows = Subject(fs=image).scan(ordered=True)
            assert rows in (sorted(state.values()), sorted({**state, **{k: (k, 0, "s") for k in (1, 2, 3)}}.values()))
            assert rows == sorted(subject.state.values()) or subject.state == state
    assert failed > 3


def loaded(fs: FaultyFileSystem) -> Subject:
    subject = direct(fs=fs)
    subject.upsert(100, 101)
    return subject
