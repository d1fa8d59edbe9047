"""History GC under a clock that the test owns: what may still be read is right, and what may not is refused."""

import errno
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.compaction import history_gc
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.manifest.environment import Environment
from nyala.engine.tablet import lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.schemas.cells.timestamp import last_of
from nyala.schemas.errors import SnapshotTooOldError, StoreError
from nyala.schemas.rows.scan import ScanSpec
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import FaultyFileSystem
from tests.engine.faults import fail_once
from tests.engine.phases import at
from tests.engine.subject import State, Subject

AGE = 100
"""Seconds of history."""
SECOND = 1_000_000


class Aging(Subject):
    """A subject that keeps history for a while; what is older must be refused."""

    def __init__(self, fs: FileSystem | None = None) -> None:
        self.time = ManualClock(1_700_000_000 * SECOND)
        super().__init__(fs or MemoryFileSystem(), self.time, {"history_max_age_seconds": AGE})

    @property
    def floor(self) -> int:
        return last_of(self.time.physical_microseconds() - AGE * SECOND)

    def check(self) -> None:
        """Every snapshot within the history is right, the others are refused."""
        for timestamp, _ in self.history:
            if timestamp < self.floor:
                with pytest.raises(SnapshotTooOldError):
                    self.scan(as_of=timestamp)
        kept = [(timestamp, state) for timestamp, state in self.history if timestamp >= self.floor]
        self.history = [*kept, (self.store.now(), self.state)]
        super().check()

    def age(self, seconds: int) -> None:
        self.time.advance(seconds * SECOND)

    def gc(self) -> dict[str, Any]:
        return self.store.maintain("t", "gc")

    def names(self) -> list[str]:
        (tablet,) = self.fs.list("tablets")
        return sorted(self.fs.list(f"tablets/{tablet}"))


def test_undo_files_go_once_nobody_may_read_through_them() -> None:
    subject = Aging()
    subject.upsert(1, 2)
    subject.flush()
    assert subject.gc()["bytes_freed"] == 0
    subject.age(AGE + 1)
    subject.upsert(1, v=7)
    assert subject.gc()["bytes_freed"] > 0
    assert [name.split(".")[1] for name in subject.names()] == ["base"]
    assert subject.tablet.version.history_floor == subject.floor
    subject.check()
    subject.restart()
    assert subject.tablet.version.history_floor == subject.floor
    subject.close()


def test_a_rowset_whose_rows_are_long_dead_goes_with_its_keys() -> None:
    subject = Aging()
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.delete(1, 2, 3)
    assert subject.gc()["rows"] == 0
    subject.age(AGE + 1)
    assert subject.gc()["rows"] == 3
    assert subject.names() == []
    assert subject.tablet.key_lookup.key_count == 0
    subject.upsert(2, v=5)
    subject.check()
    subject.crash(Random(0))
    subject.flush()
    subject.close()


def test_who_is_interrupted_while_keys_go_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Aging()
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.delete(1, 2, 3)
    subject.age(AGE + 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    at(monkeypatch, (KeyLookup, "follow"), True, interrupt)
    with pytest.raises(KeyboardInterrupt):
        subject.gc()
    assert subject.names() == [] and subject.environment.latch.reason is None
    subject.upsert(2, v=5)
    subject.check()
    subject.crash(Random(0))
    subject.flush()
    subject.close()


def test_a_row_that_came_back_keeps_its_rowset() -> None:
    subject = Aging()
    subject.upsert(1, 2)
    subject.flush()
    subject.delete(1, 2)
    subject.age(AGE - 1)
    subject.upsert(1)
    subject.delete(1)
    subject.age(2)
    assert subject.gc()["rows"] == 0
    subject.age(AGE)
    assert subject.gc()["rows"] == 2
    subject.close()


def test_a_scan_that_runs_keeps_its_version_and_one_that_comes_later_is_refused() -> None:
    subject = Aging()
    subject.upsert(1, 2, 3)
    subject.flush()
    moment = subject.history[-1][0]
    subject.upsert(1, v=9)
    subject.delete(2)
    subject.flush_deltas()
    running = [subject.store.scan(ScanSpec(table="t", as_of=moment, ordered=ordered)) for ordered in (True, False)]
    subject.delete(1, 3)
    subject.age(AGE + 1)
    subject.store.maintain("t", "major_compact")
    assert subject.gc()["rows"] == 3
    for stream in running:
        rows = stream.to_reader().read_all().to_pylist()
        assert [tuple(row.values()) for row in rows] == [(key, 0, "s") for key in (1, 2, 3)]
    with pytest.raises(SnapshotTooOldError):
        subject.scan(as_of=moment)
    subject.close()


def test_a_hot_row_is_flushed_as_its_history_needs_it() -> None:
    subject = Aging()
    subject.upsert(1, 2)
    subject.flush()
    for value in range(50):
        subject.upsert(1, v=value)
    subject.age(AGE + 1)
    subject.upsert(1, v=99)
    subject.flush_deltas()
    (rowset,) = subject.tablet.version.disk
    assert set(rowset.deltas.stores.redo[0].metadata.deltas.values()) == {2}
    subject.close()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_histories(seed: int) -> None:
    """After Kudu's RandomizedTabletHistoryGcITest: scans are opened at any moment and read some rounds later."""
    random, subject = Random(seed), Aging()
    running: list[tuple[Any, State]] = []
    for _ in range(random.randint(5, 30)):
        steps = ["write", "write", "flush", "flush_deltas", "minor_compact", "major_compact", "gc", "gc", "delete"]
        step = random.choice([*steps, "age", "scan", "read", "restart", "crash"])
        if step == "write":
            subject.some_writes(random, range(8))
        elif step == "delete":
            subject.delete(*range(8))
        elif step == "age":
            subject.age(random.choice([1, AGE // 2, AGE + 1]))
        elif step == "scan":
            timestamp, state = random.choice(
                [kept for kept in subject.history if kept[0] >= subject.floor] or [(0, {})]
            )
            if timestamp:
                running.append((subject.store.scan(ScanSpec(table="t", as_of=timestamp, ordered=True)), state))
        elif step in ("restart", "crash", "read"):
            for stream, state in running:
                rows = stream.to_reader().read_all().to_pylist()
                assert [tuple(row.values()) for row in rows] == sorted(state.values())
            running.clear()
            {"restart": subject.restart, "crash": lambda: subject.crash(random), "read": lambda: None}[step]()
        else:
            subject.store.maintain("t", step)
        subject.check()
    running.clear()
    subject.close()


def test_a_row_that_comes_back_in_the_middle_of_a_gc(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Aging()
    subject.upsert(1, 2)
    subject.flush()
    subject.delete(1, 2)
    subject.age(AGE + 1)
    call = Environment.wait_until_settled

    def with_work(*args: Any) -> Any:
        monkeypatch.setattr(Environment, "wait_until_settled", call)
        subject.upsert(2, v=4)
        return call(*args)

    monkeypatch.setattr(Environment, "wait_until_settled", with_work)
    assert subject.gc()["rows"] == 0
    subject.check()
    subject.crash(Random(1))
    subject.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_key_that_comes_back_while_the_old_ones_leave_the_index(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    subject = Aging()
    subject.upsert(*range(8))
    subject.flush()
    subject.delete(*range(8))
    subject.age(AGE + 1)
    random, relocate = Random(seed), history_gc._forget_keys

    def with_writes(*args: Any) -> None:
        subject.some_writes(random, range(12))
        subject.check()
        relocate(*args)

    monkeypatch.setattr(history_gc, "_forget_keys", with_writes)
    assert subject.gc()["rows"] == 8
    subject.some_writes(random, range(12))
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.flush()
    subject.close()


def ripe(fs: FileSystem) -> Aging:
    """Return a store with a rowset to drop, an UNDO file to drop, and one of each to keep."""
    subject = Aging(fs)
    subject.upsert(1, 2)
    subject.flush()
    subject.upsert(3, 4)
    subject.flush()
    subject.delete(1, 2)
    subject.age(AGE + 1)
    subject.upsert(3, 5, v=1)
    subject.flush()
    return subject


def test_the_power_may_fail_at_every_call_of_a_gc() -> None:
    disk = MemoryFileSystem()
    subject = ripe(disk)
    start = disk.operations
    report = subject.gc()
    assert report["rows"] == 2
    calls = disk.operations - start
    subject.store.close()
    for nth in range(1, calls + 1):
        disk = MemoryFileSystem()
        subject = ripe(disk)
        disk.crash_at = disk.operations + nth
        with suppress(PowerFailure):  # a name that cannot be removed is swept at the next start
            subject.gc()
        for seed in range(3):
            after = Aging(disk.crash_image(Random(seed)))
            after.time.advance((AGE + 1) * SECOND)
            after.state, after.history = subject.state, list(subject.history)
            after.check()
            after.upsert(1, 2, v=3)
            after.gc()
            after.close()
        with suppress(PowerFailure, StoreError):
            subject.store.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_every_call_of_a_gc_may_fail(error: int) -> None:
    for nth in range(1, 30):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject = ripe(fs)
        fail_once(fs, nth, error)
        with suppress(StoreError):
            subject.gc()
        met = bool(fs.injected)
        fs.rules.clear()
        subject.check()
        if subject.environment.manifest.failed is None:
            subject.upsert(1, v=8)
            subject.gc()
            subject.check()
        subject.store.close()
        if not met:
            assert nth > 8
            return
    raise AssertionError("a GC makes fewer calls than that")


@pytest.mark.parametrize("phase", ["rows_of_keys", "look_up_generally"])
def test_a_look_up_that_is_overtaken_by_the_mark_takes_another_snapshot(
    monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """One key comes and then another goes: whoever looks up both finds at least one."""
    if phase == "look_up_generally":
        monkeypatch.setattr(lookup, "rows_of_keys", lambda *_: None)
    subject = Aging()
    subject.upsert(1)
    subject.flush()

    def meanwhile() -> None:
        subject.upsert(2)
        subject.delete(1)
        subject.age(AGE + 1)
        subject.store.maintain("t", "compact")

    at(monkeypatch, (lookup, phase), True, meanwhile)
    found = subject.store.get("t", pa.record_batch({"k": pa.array([1, 2], pa.int64())}))
    assert found.column("k").to_pylist() == [2]
    subject.close()
