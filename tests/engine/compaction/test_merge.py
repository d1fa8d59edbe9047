"""Merge compactions between all else that happens: every snapshot stays, and nothing that is acknowledged is lost."""

import errno
import gc
import weakref
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from nyala.engine.compaction import install as replacement
from nyala.engine.compaction import merge as merging
from nyala.engine.compaction import merge_rows
from nyala.engine.compaction import outputs as writing
from nyala.engine.compaction import switch_over as swapping
from nyala.engine.compaction.merge import compact
from nyala.engine.compaction.report import FlushReport
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.manifest.environment import Environment
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.tablet import key_lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.schemas.errors import StorageFullError, StoreError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from tests.dose import by_night, dose
from tests.doubles.faulty import CONTENT, FaultRule, FaultyFileSystem
from tests.engine.faults import assert_no_orphans, calls_of, fail_once, reopened, upsert_unless_in_doubt
from tests.engine.phases import at
from tests.engine.subject import Subject

PHASES = [
    (Environment, "wait_until_settled"),
    (merge_rows, "merged_rows"),
    (writing.OutputWriter, "end_run"),
    (writing.OutputWriter, "finish"),
    (writing, "open_rowset"),
    (swapping.SwitchOver, "catch_up"),
    (ManifestFile, "commit"),
    (swapping.SwitchOver, "put"),
    (key_lookup, "hash_keys"),
    (replacement, "remove_orphans"),
]
IDS = [name for _, name in PHASES]


def merge(subject: Subject, **how: Any) -> FlushReport | None:
    with subject.tablet.maintenance_lock:
        return compact(subject.tablet, subject.environment, **how)


def busy(seed: int, subject: Subject | None = None) -> Subject:
    """Return a store with rowsets that overlap, with REDO files, deltas in memory and rows that are in no file."""
    subject, random = subject or Subject(), Random(seed)
    for _ in range(random.randint(2, 4)):
        low = random.randint(0, 12)
        subject.some_writes(random, range(low, low + 12), commits=random.randint(1, 4))
        subject.flush()
        if random.random() < 0.7:
            subject.some_writes(random, range(24))
            subject.flush_deltas()
    subject.some_writes(random, range(24))
    return subject


def assert_disjoint(rowsets: tuple[DiskRowSet, ...]) -> None:
    ranges = sorted((rowset.min_key, rowset.max_key) for rowset in rowsets)
    assert all(first[1] < second[0] for first, second in pairwise(ranges))


@pytest.mark.parametrize("seed", by_night(range(12), range(4)))
def test_random_histories(seed: int) -> None:
    subject, random = busy(seed), Random(seed)
    rows = sum(len(rowset) for rowset in subject.tablet.version.disk)
    target = random.choice([3, 7, 1000])
    report = merge(subject, target_rows=target)
    assert report is not None and report.rows == rows
    rowsets = subject.tablet.version.disk
    assert_disjoint(rowsets)
    assert [len(rowset) for rowset in rowsets[:-1]] == [target] * (len(rowsets) - 1)
    assert not any(rowset.deltas.stores.redo or rowset.deltas.first_lsn for rowset in rowsets)
    subject.check()
    subject.some_writes(random, range(24))
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.check()
    merge(subject, target_rows=5)
    subject.flush()
    merge(subject)
    subject.close()
    assert_no_orphans(subject, subject.fs)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
@pytest.mark.parametrize("seed", by_night(range(2), [0]))
def test_writes_in_the_middle_of_a_merge(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool, seed: int
) -> None:
    subject, random = busy(seed), Random(seed)
    monkeypatch.setattr(key_lookup, "KEYS_AT_ONCE", 4)

    def meanwhile() -> None:
        subject.some_writes(random, range(30), commits=4)
        subject.check()

    at(monkeypatch, phase, before, meanwhile)
    merge(subject, target_rows=9)
    subject.check()
    subject.some_writes(random, range(30))
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.flush_deltas()
    merge(subject)
    subject.close()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
def test_the_power_fails_in_the_middle_of_a_merge_with_writes(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool
) -> None:
    subject, random = busy(7), Random(7)

    def meanwhile() -> None:
        subject.some_writes(random, range(24), commits=4)
        raise PowerFailure

    at(monkeypatch, phase, before, meanwhile)
    with pytest.raises(PowerFailure):
        merge(subject, target_rows=9)
    for seed in range(3):
        image = subject.fs.crash_image(Random(seed))  # pyright: ignore[reportAttributeAccessIssue]
        after = reopened(subject, image)
        after.check()
        after.some_writes(random, range(24))
        merge(after)
        after.close()
    subject.store.close()


def small(fs: FaultyFileSystem | MemoryFileSystem) -> Subject:
    subject = Subject(fs)
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.delete(3)
    subject.upsert(2, 4, v=9)
    subject.flush()
    subject.upsert(1, v=5)
    return subject


CALLS = calls_of(small, lambda subject: merge(subject, target_rows=2))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("nth", range(1, CALLS + 1))
def test_each_call_of_a_merge_fails_once(nth: int, error: int) -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    subject = small(fs)
    fail_once(fs, nth, error)
    try:
        merge(subject, target_rows=2)
    except StoreError as failed:
        in_doubt = subject.environment.manifest.failed is not None
        assert isinstance(failed, StorageFullError if error == errno.ENOSPC and not in_doubt else UnavailableError)
    else:
        in_doubt = False
        assert nth > CALLS - 4, "only a file that could not be removed is passed over"
    fs.rules.clear()
    subject.check()
    assert upsert_unless_in_doubt(subject, 3, 4, v=4) != in_doubt
    subject.check()
    if not in_doubt:
        merge(subject)
        assert len(subject.tablet.version.disk) == 1
        subject.check()
    subject.store.close()
    after = reopened(subject, disk)
    after.check()
    assert_no_orphans(after, disk)
    after.close()


def test_the_power_fails_at_each_call_of_a_merge() -> None:
    whole = MemoryFileSystem()
    subject = small(whole)
    first = whole.operations
    merge(subject, target_rows=2)
    last = whole.operations
    subject.close()
    assert last - first > 10
    for call in range(first + 1, last + 1, dose(3, 1)):
        disk = MemoryFileSystem(crash_at=call)
        subject = small(disk)
        with pytest.raises(PowerFailure):
            merge(subject, target_rows=2)
        for seed in range(3):
            after = reopened(subject, disk.crash_image(Random(call * 10 + seed)))
            after.check()
            after.upsert(1, 9, v=call)
            after.close()


def test_a_scan_goes_on_with_the_rowsets_that_it_started_with() -> None:
    subject = busy(3)
    expected = sorted(subject.state.values())
    stream = subject.store.scan(ScanSpec(table="t"))
    first = next(stream.batches)
    subject.upsert(*range(24), v=77)
    merge(subject)
    rows = [tuple(row.values()) for batch in [first, *stream.batches] for row in batch.to_pylist()]
    assert sorted(rows) == expected
    subject.close()


@pytest.mark.parametrize("work", ["compact", "flush"])
def test_changes_in_memory_go_once_their_rows_have_moved(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    subject = Subject()
    subject.upsert(*range(100))
    if work == "compact":
        subject.flush()
    subject.upsert(*range(50), v=2)
    version = subject.tablet.version
    (rowset,) = version.disk or [version.active]
    log = rowset.deltas.active.log(2)
    assert log is not None
    changes = weakref.ref(log)
    del version, rowset, log
    follow, gone = KeyLookup.follow, []

    def looked_at(*args: Any) -> None:
        gc.collect()
        gone.append(changes() is None)
        follow(*args)

    monkeypatch.setattr(KeyLookup, "follow", looked_at)
    subject.store.maintain("t", work)
    assert gone == [True], "the keys follow for seconds: nobody else may hold what has been carried over"
    subject.check()
    subject.close()


def test_only_the_rowsets_that_are_named_are_merged() -> None:
    subject = Subject()
    for key in range(4):
        subject.upsert(key, key + 10)
        subject.flush()
    one, two, three, four = subject.tablet.version.disk
    report = merge(subject, rowset_ids={two.rowset_id, four.rowset_id})
    assert report is not None and report.rows == 4
    assert subject.tablet.version.disk[:2] == (one, three)
    (merged,) = subject.tablet.version.disk[2:]
    assert (merged.min_key, merged.max_key) == (two.min_key, four.max_key)
    assert merge(subject, rowset_ids={two.rowset_id}) is None
    subject.close()


def test_an_output_is_cut_at_its_bytes() -> None:
    subject = Subject()
    for first in range(0, 40_000, 10_000):
        subject.upsert(*range(first, first + 10_000))
        subject.flush()
    merge(subject, target_bytes=1)
    assert [len(rowset) for rowset in subject.tablet.version.disk] == [10_000] * 4
    subject.close()


def test_what_lies_before_the_history_is_left_out_and_refused() -> None:
    subject = Subject()
    subject.upsert(*range(8), v=1)
    subject.flush()
    subject.delete(0, 1, 2)
    subject.upsert(3, v=2)
    mark = subject.history[-1][0]
    subject.upsert(4, v=3)
    subject.delete(5)
    report = merge(subject, ancient_history_mark=mark)
    assert report is not None and report.rows == 5 and report.bytes_freed > 0
    with pytest.raises(StoreError, match="history"):
        subject.scan(as_of=mark - 1)
    subject.history = [(timestamp, state) for timestamp, state in subject.history if timestamp >= mark]
    subject.check()
    subject.upsert(0, 5, v=4)
    subject.check()
    subject.restart()
    with pytest.raises(StoreError, match="history"):
        subject.scan(as_of=mark - 1)
    subject.check()
    merge(subject, ancient_history_mark=subject.history[-1][0])
    subject.history = subject.history[-1:]
    subject.flush()
    subject.close()


def test_a_merge_of_rows_that_are_all_gone_leaves_nothing() -> None:
    subject = Subject()
    for keys in ((1, 2), (2, 3)):
        subject.upsert(*keys)
        subject.flush()
    subject.delete(1, 2, 3)
    report = merge(subject, ancient_history_mark=subject.history[-1][0])
    assert report is not None and report.rows == 0 and not subject.tablet.version.disk
    subject.history = subject.history[-1:]
    subject.upsert(2, v=5)
    subject.restart()
    subject.close()


@pytest.mark.parametrize("phase", PHASES[:-1], ids=IDS[:-1])
@pytest.mark.parametrize("seed", by_night(range(3), [0]))
def test_a_key_that_comes_back_while_its_row_is_left_out(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], seed: int
) -> None:
    subject, random = Subject(), Random(seed)
    subject.upsert(*range(8))
    subject.flush()
    subject.upsert(*range(8, 16))
    subject.flush()
    subject.delete(*range(0, 16, 2))
    subject.history = subject.history[-1:]
    mark = subject.history[0][0]

    def meanwhile() -> None:
        subject.upsert(0, 2, 8, v=1)
        subject.upsert(0, 4, v=2, s=None)
        subject.delete(2, 4)
        subject.some_writes(random, range(16), commits=3)
        subject.upsert(2, v=4)
        subject.check()

    at(monkeypatch, phase, True, meanwhile)
    merge(subject, ancient_history_mark=mark, target_rows=5)
    subject.check()
    subject.some_writes(random, range(20))
    subject.check()
    after = random.choice([subject.flush, subject.restart, lambda: subject.crash(random)])
    after()
    subject.check()
    subject.flush()
    assert not subject.tablet.version.frozen
    subject.crash(random)
    merge(subject, ancient_history_mark=mark)
    subject.close()


def unreadable_once(subject: Subject, fs: FaultyFileSystem) -> None:
    """Let the next read of a base file fail, whatever of it is in memory."""
    for rowset in subject.tablet.version.disk:
        subject.environment.page_cache.discard_file(rowset.rowset_id)
    fs.rules.append(FaultRule(calls=CONTENT, path="tablets/*.base"))
    fs._matched.append(0)


def with_rows_to_leave_out(fs: FaultyFileSystem) -> tuple[Subject, int]:
    """Return a store with dead rows that a merge leaves out, and the ancient history mark of that."""
    subject = Subject(fs)
    subject.upsert(*range(8))
    subject.flush()
    subject.upsert(*range(8, 16))
    subject.flush()
    subject.delete(*range(0, 16, 2))
    subject.history = subject.history[-1:]
    return subject, subject.history[0][0]


@pytest.mark.parametrize("back_at", [(merging, "install_outputs"), (ManifestFile, "commit"), None])
def test_keys_that_cannot_be_read_after_the_commit_of_a_merge_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, back_at: tuple[Any, str] | None
) -> None:
    """The read that fails is the first after the commit. Rows came back before, in the middle of it, or did not."""
    fs = FaultyFileSystem(MemoryFileSystem())
    subject, mark = with_rows_to_leave_out(fs)

    def come_back() -> None:
        subject.upsert(0, 2, 8, v=1)
        subject.upsert(2, v=2)
        subject.delete(8)

    if back_at:
        at(monkeypatch, back_at, True, come_back)
    at(monkeypatch, (swapping.SwitchOver, "put"), True, lambda: unreadable_once(subject, fs))
    merge(subject, ancient_history_mark=mark)
    assert len(fs.injected) == 1 and subject.environment.latch.reason is None
    subject.check()
    subject.upsert(0, 3, 4, 8, v=3)
    subject.check()
    subject.flush()
    merge(subject)
    subject.restart()
    subject.close()


def test_keys_of_rows_that_came_back_are_read_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    subject, mark = with_rows_to_leave_out(fs)

    def come_back() -> None:
        subject.upsert(0, 2, 8, v=1)
        unreadable_once(subject, fs)

    before = subject.tablet.version
    at(monkeypatch, (merging, "install_outputs"), True, come_back)
    with pytest.raises(StoreError):
        merge(subject, ancient_history_mark=mark)
    assert subject.tablet.version is before and subject.environment.latch.reason is None
    subject.check()
    merge(subject, ancient_history_mark=mark)
    subject.close()
