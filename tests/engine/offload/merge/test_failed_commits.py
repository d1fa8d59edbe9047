"""Merges that are done outside, when the disk or the power fails or somebody interrupts: nothing is lost or left."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.offload.leases import Leases
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import StoreError
from nyala.schemas.store.compaction import CompactionCommit
from tests.dose import dose
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.faults import CHANGES, assert_no_orphans, fail_once, upsert_unless_in_doubt
from tests.engine.offload.merge.merging import BEGIN, compact, merged
from tests.engine.phases import at
from tests.engine.subject import Subject


class Begun(Subject):
    """A store with a compaction whose merges are done."""

    commits: Sequence[CompactionCommit] = ()


def prepared(fs: FaultyFileSystem | MemoryFileSystem) -> Begun:
    """Return a store with all there may be: rows that were left out and came back, flushed and in memory."""
    clock = ManualClock(1_700_000_000_000_000)
    subject = Begun(fs, clock=clock, table_options={"history_max_age_seconds": 100})
    subject.upsert(1, 2, 3, 4)
    subject.flush()
    subject.delete(1, 2)
    clock.advance(500_000_000)
    subject.history = []
    subject.upsert(4, 5, v=1)
    subject.commits = merged(subject, subject.store.compaction_begin(BEGIN))
    subject.upsert(1, 3, v=2)
    subject.flush_deltas()
    subject.upsert(2, 4, 6, v=3)
    return subject


def finish(subject: Begun) -> None:
    for commit in subject.commits:
        subject.store.compaction_commit(commit)


def reopened(subject: Subject, disk: FileSystem) -> Subject:
    after = Subject(disk, subject.clock)
    after.state, after.history = subject.state, list(subject.history)
    return after


def calls_of_a_commit() -> int:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=CHANGES, nth=1 << 30)])
    subject = prepared(fs)
    before = fs._matched[0]
    finish(subject)
    subject.store.close()
    return fs._matched[0] - before


def test_each_call_of_a_commit_fails_once() -> None:
    """Nothing is lost; where the store goes on, the same files are committed when they are offered again."""
    failed, every = 0, dose(3, 1)
    for nth in range(1, calls_of_a_commit() + 1, every):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject = prepared(fs)
        fail_once(fs, nth, errno.EIO if nth % 2 else errno.ENOSPC)
        try:
            finish(subject)
        except StoreError:
            failed += 1
        fs.rules.clear()
        subject.check()
        upsert_unless_in_doubt(subject, 3, 7, v=4)
        if subject.store._log.read_only_reason is None:
            finish(subject)
        subject.check()
        subject.store.close()
        after = reopened(subject, disk)
        after.check()
        assert_no_orphans(after, disk)
        assert not disk.exists("compactions")
        after.store.close()
        assert verify_store(disk).is_sound
    assert failed > 10 // every


def test_the_power_fails_at_each_call_of_a_commit() -> None:
    whole = MemoryFileSystem()
    subject = prepared(whole)
    first = whole.operations
    finish(subject)
    last = whole.operations
    subject.close()
    assert last - first > 20
    for call in range(first + 1, last + 1, dose(3, 1)):
        disk = MemoryFileSystem()
        subject = prepared(disk)
        disk.crash_at = call
        with pytest.raises((PowerFailure, StoreError)):
            finish(subject)
        after = reopened(subject, disk.crash_image(Random(call)))
        after.check()
        assert not after.fs.exists("compactions")
        after.upsert(1, 9, v=call)
        after.close()


@pytest.mark.parametrize("phase", [(MemoryFileSystem, "link"), (Leases, "add")], ids=["a link", "the lease"])
def test_an_interrupted_begin_hands_nothing_out(monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str]) -> None:
    subject = Subject()
    for key in range(3):
        subject.upsert(key, key + 10)
        subject.flush()

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(monkeypatch, phase, True, interrupt)
    with pytest.raises(KeyboardInterrupt):
        subject.store.compaction_begin(BEGIN)
    assert not subject.tablet.handed_out and not subject.fs.list("compactions")
    compact(subject)
    subject.store.maintain("t", "compact")
    subject.close()
