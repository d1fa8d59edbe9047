"""Minor and major delta compactions between all else that happens: no snapshot ever changes."""

import errno
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.compaction import delta_compaction
from nyala.engine.compaction.delta_compaction import major
from nyala.engine.delta import LIVE
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import PowerFailure
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.manifest.rowset_entry import RowsetEntry
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.scan import ScanSpec
from tests.dose import dose
from tests.doubles.faulty import FaultyFileSystem
from tests.engine.faults import assert_no_orphans, calls_of, fail_once, reopened, upsert_unless_in_doubt
from tests.engine.phases import at
from tests.engine.subject import Subject

KINDS = ["minor_compact", "major_compact"]
PHASES = [
    (delta_compaction, "_merge_redo"),
    (delta_compaction, "_write_columns"),
    (delta_compaction, "_write_undo"),
    (ManifestFile, "commit"),
    (delta_compaction, "retire"),
]
IDS = [name for _, name in PHASES]


def work(subject: Subject, kind: str) -> dict[str, Any]:
    return subject.store.maintain("t", kind)


def rowset_of(subject: Subject) -> DiskRowSet:
    (rowset,) = subject.tablet.version.disk
    return rowset


def busy(seed: int, subject: Subject | None = None, keys: range = range(12)) -> Subject:
    """Return a store with a rowset on disk, three REDO files of it and deltas in memory."""
    subject, random = subject or Subject(), Random(seed)
    subject.upsert(*keys)
    subject.flush()
    for _ in range(3):
        subject.some_writes(random, keys)
        subject.upsert(random.choice(keys), v=1)
        subject.flush_deltas()
    subject.some_writes(random, keys)
    return subject


def test_a_minor_compaction_leaves_one_redo_file_and_every_snapshot() -> None:
    subject = busy(0)
    assert len(rowset_of(subject).deltas.stores.redo) == 3
    report = work(subject, "minor_compact")
    assert report["rows"] > 0 and report["bytes_written"] > 0 and report["bytes_freed"] > 0
    assert len(rowset_of(subject).deltas.stores.redo) == 1
    assert work(subject, "minor_compact")["rows"] == 0
    assert len([name for name in subject.fs.list("tablets/2") if name.endswith(".redo")]) == 1
    subject.close()


def test_a_minor_compaction_leaves_one_undo_file_and_every_snapshot() -> None:
    subject, random = Subject(), Random(1)
    subject.upsert(*range(12))
    subject.flush()
    for _ in range(4):
        subject.some_writes(random, range(12))
        subject.upsert(3, v=random.randint(0, 9))
        subject.flush_deltas()
        work(subject, "major_compact")
    before = rowset_of(subject).deltas.stores
    assert len(before.undo) == 5 and len(before.redo) <= 1
    subject.upsert(4, v=4)
    assert work(subject, "minor_compact")["rows"] == sum(sum(file.metadata.deltas.values()) for file in before.undo)
    after = rowset_of(subject).deltas.stores
    assert len(after.undo) == 1 and after.redo == before.redo and after.memory is before.memory
    assert len([name for name in subject.fs.list("tablets/2") if name.endswith(".undo")]) == 1
    subject.check()
    subject.restart()
    subject.close()


def test_a_major_compaction_moves_values_into_the_base_and_leaves_liveness() -> None:
    subject = Subject()
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(1, v=5)
    subject.delete(2)
    subject.flush_deltas()
    subject.upsert(3, v=7)
    before = rowset_of(subject)
    work(subject, "major_compact")
    after = rowset_of(subject)
    stores = after.deltas.stores
    assert [file.column_ids for file in stores.redo] == [[LIVE]]
    assert sorted(stores.undo[-1].column_ids) == [2, 3]
    assert sorted(after.columns) == [2, 3]
    assert after.deltas.base_timestamp(LIVE) == before.deltas.base_timestamp(2) < after.deltas.base_timestamp(2)
    assert stores.memory is before.deltas.stores.memory
    subject.check()
    assert work(subject, "major_compact")["rows"] == 0
    subject.restart()
    assert sorted(rowset_of(subject).columns) == [2, 3]
    subject.close()


def test_a_major_compaction_of_one_column_leaves_the_others() -> None:
    subject = busy(3)
    with subject.tablet.maintenance_lock:
        major(subject.tablet, rowset_of(subject), subject.environment, [3])
    rowset = rowset_of(subject)
    assert list(rowset.columns) == [3]
    assert all(3 not in file.column_ids for file in rowset.deltas.stores.redo)
    assert any(2 in file.column_ids for file in rowset.deltas.stores.redo)
    subject.check()
    subject.flush_deltas()
    with subject.tablet.maintenance_lock:
        major(subject.tablet, rowset_of(subject), subject.environment, [2])
    assert len({file.file_id for file in rowset_of(subject).columns.values()}) == 2
    subject.check()
    subject.flush_deltas()
    subject.upsert(0, v=3)
    subject.flush_deltas()
    work(subject, "major_compact")
    assert len([name for name in subject.fs.list("tablets/2") if name.endswith(".base")]) == 2
    subject.crash(Random(0))
    subject.close()


def test_zone_maps_are_those_of_the_rewritten_column() -> None:
    subject = Subject()
    subject.upsert(*range(10), v=1)
    subject.flush()
    subject.upsert(*range(10), v=50)
    subject.flush_deltas()
    work(subject, "major_compact")
    assert subject.scan(where="v = 50", columns=["k"]) == [(key,) for key in range(10)]
    assert subject.scan(where="v = 1", columns=["k"]) == []
    first = subject.history[1][0]
    assert subject.scan(where="v = 1", columns=["k"], as_of=first) == [(key,) for key in range(10)]
    subject.close()


@settings(max_examples=dose(10, 40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_order_of_writes_flushes_compactions_and_restarts(seed: int) -> None:
    random = Random(seed)
    subject = Subject()
    for _ in range(random.randint(4, 24)):
        step = random.choice(["write", "write", "flush", "flush_deltas", "restart", "crash", *KINDS, "one column"])
        if step == "write":
            subject.some_writes(random, range(10), commits=random.randint(1, 3))
        elif step == "restart":
            subject.restart()
        elif step == "crash":
            subject.crash(random)
        elif step == "one column":
            with subject.tablet.maintenance_lock:
                for rowset in subject.tablet.version.disk:
                    major(subject.tablet, rowset, subject.environment, [random.choice([2, 3])])
        else:
            work(subject, step)
        subject.check()
    subject.close()


def test_rows_of_many_pages() -> None:
    """Page by page, and deltas that start and end anywhere in a page."""
    subject, random = Subject(limits={"batch_bytes": 1 << 30}), Random(1)
    subject.upsert(*range(150_000))
    subject.flush()
    for _ in range(2):
        subject.upsert(*random.sample(range(150_000), 3_000), v=random.randint(0, 9), s="y")
        subject.delete(*random.sample(range(60_000, 150_000), 500))
        subject.flush_deltas()
    work(subject, "minor_compact")
    subject.check()
    subject.upsert(*range(65_530, 65_545), v=77)
    subject.flush_deltas()
    work(subject, "major_compact")
    subject.close()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("phase", PHASES, ids=IDS)
@pytest.mark.parametrize("seed", range(2))
def test_writes_in_the_middle_of_a_major_compaction(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool, seed: int
) -> None:
    subject, random = busy(seed), Random(seed)
    met: list[bool] = []

    def meanwhile() -> None:
        met.append(True)
        subject.some_writes(random, range(16), commits=5)
        subject.check()

    at(monkeypatch, phase, before, meanwhile)
    work(subject, "major_compact")
    assert met
    subject.check()
    random.choice([subject.restart, lambda: subject.crash(random)])()
    subject.flush_deltas()
    work(subject, "minor_compact")
    subject.close()


def test_a_scan_that_runs_keeps_reading_files_that_are_gone() -> None:
    subject = busy(5)
    expected = {timestamp: sorted(state.values()) for timestamp, state in subject.history}
    running = {timestamp: subject.store.scan(ScanSpec(table="t", as_of=timestamp)) for timestamp in expected}
    for kind in KINDS:
        work(subject, kind)
        subject.some_writes(Random(1), range(12))
        subject.flush_deltas()
    for timestamp, stream in running.items():
        rows = stream.to_reader().read_all().to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == expected[timestamp]
    subject.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_compaction_may_fail(kind: str, error: int) -> None:
    calls = calls_of(lambda fs: busy(2, Subject(fs)), lambda subject: work(subject, kind))
    assert calls > 10
    failures = 0
    for nth in range(1, calls + 1):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        subject = busy(2, Subject(fs))
        fail_once(fs, nth, error)
        with suppress(StoreError):
            work(subject, kind)
            failures -= 1
        failures += 1
        assert fs.injected
        fs.rules.clear()
        is_sound = upsert_unless_in_doubt(subject, 3, v=4)
        subject.check()
        if is_sound:
            work(subject, kind)
            subject.check()
        subject.store.close()
        after = reopened(subject, disk)
        assert_no_orphans(after, disk)
        after.close()
    assert failures > calls // 2


def entries(subject: Subject) -> tuple[RowsetEntry, ...]:
    (table,) = subject.environment.manifest.current.tables
    return table.tablets[0].rowsets


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_may_fail_at_every_call_of_a_compaction(kind: str) -> None:
    disk = MemoryFileSystem()
    subject = busy(2, Subject(disk))
    start = disk.operations
    work(subject, kind)
    calls = disk.operations - start
    subject.store.close()
    assert calls > 10
    for nth in range(1, calls + 1, dose(4, 1)):
        disk = MemoryFileSystem()
        subject = busy(2, Subject(disk))
        disk.crash_at = disk.operations + nth
        with pytest.raises(PowerFailure):
            work(subject, kind)
        for seed in range(3):
            after = reopened(subject, disk.crash_image(Random(seed)))
            after.check()
            work(after, kind)
            after.close()
        with suppress(PowerFailure, StoreError):
            subject.store.close()
