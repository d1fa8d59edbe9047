"""Flush of a MemRowSet: writes come between its phases, its calls fail, the power goes; every snapshot stays right."""

import errno
from random import Random
from typing import Any

import numpy as np
import pytest

from nyala.engine.compaction import flush as flushing
from nyala.engine.compaction import outputs
from nyala.engine.compaction import switch_over as swapping
from nyala.engine.compaction.outputs import OutputWriter
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.manifest.environment import Environment
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.tablet import key_lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.schemas.errors import StorageFullError, StoreError, UnavailableError
from tests.dose import by_night, dose
from tests.doubles.faulty import CONTENT, FaultRule, FaultyFileSystem
from tests.engine.faults import assert_no_orphans, calls_of, fail_once, reopened, upsert_unless_in_doubt
from tests.engine.phases import at
from tests.engine.subject import Subject

PHASES = [
    (Environment, "wait_until_settled"),
    (flushing, "write_rows"),
    (OutputWriter, "end_run"),
    (OutputWriter, "finish"),
    (outputs, "open_rowset"),
    (swapping.SwitchOver, "catch_up"),
    (ManifestFile, "commit"),
    (swapping.SwitchOver, "put"),
    (key_lookup, "hash_keys"),
]
IDS = [name for _, name in PHASES]


def busy(seed: int) -> Subject:
    """Return a store with a rowset on disk, and rows in memory that were changed, deleted and came back."""
    subject, random = Subject(), Random(seed)
    subject.some_writes(random, range(8), commits=4)
    subject.flush()
    subject.some_writes(random, range(4, 16), commits=6)
    return subject


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
@pytest.mark.parametrize("seed", by_night(range(2), [0]))
def test_writes_in_the_middle_of_a_flush(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool, seed: int
) -> None:
    subject, random = busy(seed), Random(seed)

    def meanwhile() -> None:
        subject.some_writes(random, range(24), commits=5)
        subject.check()

    at(monkeypatch, phase, before, meanwhile)
    subject.flush()
    subject.check()
    subject.some_writes(random, range(24))
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.flush_deltas()
    subject.close()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
def test_the_power_fails_in_the_middle_of_a_flush_with_writes(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool
) -> None:
    subject, random = busy(7), Random(7)

    def meanwhile() -> None:
        subject.some_writes(random, range(24), commits=5)
        raise PowerFailure

    at(monkeypatch, phase, before, meanwhile)
    with pytest.raises(PowerFailure):
        subject.flush()
    for seed in range(dose(2, 4)):
        image = subject.fs.crash_image(Random(seed))  # pyright: ignore[reportAttributeAccessIssue]
        after = reopened(subject, image)
        after.check()
        after.some_writes(random, range(24))
        after.flush()
        after.close()
    subject.store.close()


def small(fs: FaultyFileSystem) -> Subject:
    subject = Subject(fs)
    subject.upsert(1, 2, 3)
    subject.delete(3)
    subject.upsert(2, v=9)
    return subject


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("nth", range(1, calls_of(small, Subject.flush) + 1))
def test_each_call_of_a_flush_fails_once(nth: int, error: int) -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    subject = small(fs)
    fail_once(fs, nth, error)
    with pytest.raises(StoreError) as caught:
        subject.flush()
    in_doubt = subject.environment.manifest.failed is not None
    assert isinstance(caught.value, StorageFullError if error == errno.ENOSPC and not in_doubt else UnavailableError)
    fs.rules.clear()
    subject.check()
    assert upsert_unless_in_doubt(subject, 3, 4, v=4) != in_doubt
    subject.check()
    if not in_doubt:
        subject.flush()
        assert not subject.tablet.version.frozen
        assert_no_orphans(subject, disk)
        subject.check()
    subject.store.close()
    after = reopened(subject, disk)
    after.flush()
    after.close()


def test_rows_in_a_frozen_and_an_active_memrowset_are_one_table() -> None:
    rule = FaultRule(calls=frozenset({"create"}), path="*.base", error=errno.ENOSPC, sticky=True)
    subject = Subject(FaultyFileSystem(MemoryFileSystem(), [rule]))
    random = Random(5)
    for _ in range(4):
        subject.some_writes(random, range(20), commits=4)
        with pytest.raises(StorageFullError):
            subject.flush()
        subject.check()
    assert len(subject.tablet.version.in_memory) == 2
    first_needed = subject.tablet.first_unflushed_lsn()
    assert first_needed == subject.tablet.version.frozen[0].first_lsn == 1
    subject.restart()
    subject.check()
    subject.store.close()


def test_a_tablet_without_a_free_slot_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.tablet.slots.SLOTS_MAX", 4)
    subject = Subject()
    for key in range(4):
        subject.upsert(key)
        if key < 2:
            subject.flush()
        else:
            with pytest.raises(UnavailableError, match="4 rowsets"):
                subject.flush()
        subject.check()
    monkeypatch.undo()
    subject.flush()
    subject.restart()
    subject.close()


def test_the_lock_is_held_for_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "KEYS_AT_ONCE", 64)
    monkeypatch.setattr(swapping, "_LAST_ROUND", 8)
    subject = Subject()
    subject.upsert(*range(1000))
    spans: list[int] = []
    relocate, carry_over = KeyLookup.relocate, swapping.SwitchOver._carry_over
    monkeypatch.setattr(KeyLookup, "relocate", lambda self, *args: (spans.append(len(args[2])), relocate(self, *args)))
    rounds: list[tuple[bool, int]] = []
    meanwhile = [1, 10, 100]

    def carried_over(self: swapping.SwitchOver) -> int:
        rounds.append((subject.tablet.write_lock.locked(), carry_over(self)))
        if meanwhile:
            subject.upsert(*range(meanwhile.pop()), v=7)
        return rounds[-1][1]

    monkeypatch.setattr(swapping.SwitchOver, "_carry_over", carried_over)
    subject.upsert(1)
    subject.flush()
    assert sum(spans) == 1000 and max(spans) == 64
    assert rounds == [(False, 0), (False, 200), (False, 20), (False, 2), (True, 0)]
    monkeypatch.undo()
    subject.check()
    assert not subject.tablet.version.frozen
    subject.close()


@pytest.mark.parametrize("error", [None, MemoryError(), KeyError("a key")], ids=["a read", "memory", "the index"])
@pytest.mark.parametrize("on_demand", [True, False], ids=["on demand", "by maintenance"])
def test_keys_that_cannot_be_read_after_the_commit_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, on_demand: bool, error: Exception | None
) -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    subject = Subject(fs)
    subject.upsert(*range(20))
    subject.flush()
    subject.upsert(*range(10, 30), v=1)
    subject.check()
    lookup = subject.tablet.key_lookup
    lookup._budget.on_demand = on_demand

    def fail(*_: Any) -> None:
        if error:
            raise error
        fs.rules.append(FaultRule(calls=CONTENT, path="tablets/*.base"))
        fs._matched.append(0)

    at(monkeypatch, (KeyLookup, "relocate" if error else "follow"), True, fail)
    subject.flush()
    assert len(fs.injected) == (error is None)
    assert [damage.path for damage in subject.store.damage.found()] == [] if error else ["tablets/2/7.base"]
    assert lookup.nbytes == 0 and not lookup._indexed and subject.environment.latch.reason is None
    subject.upsert(5, 40, v=2)
    subject.delete(25)
    subject.check()
    lookup.build(subject.tablet.version, subject.tablet.write_lock)
    assert lookup.mode(subject.tablet.version) == "index" and lookup.key_count == 30
    subject.flush()
    subject.store.maintain("t", "compact")
    assert lookup.key_count == 31
    subject.restart()
    subject.close()


def test_an_empty_tablet_has_nothing_to_flush() -> None:
    subject = Subject()
    assert subject.flush() == 0
    assert subject.tablet.version.disk == ()
    subject.close()


def test_a_flushed_rowset_says_what_it_holds() -> None:
    subject = Subject()
    subject.upsert(30, 10, 20, v=1)
    subject.delete(10)
    assert subject.flush() == 3
    (rowset,) = subject.tablet.version.disk
    assert rowset.base_live(0, 3) is not None and rowset.base_live(0, 3).tolist() == [False, True, True]  # pyright: ignore
    assert (rowset.metadata.min_key, rowset.metadata.max_key) == ("800000000000000a", "800000000000001e")
    assert rowset.live.at(np.arange(3)).tolist() == [False, True, True]
    assert rowset.metadata.base_timestamp == subject.history[-1][0]
    assert rowset.durable_lsn == subject.tablet.inserts_durable_lsn == 2
    subject.close()
