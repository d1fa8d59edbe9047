"""The manager compacts deltas and drops history when it pays, and then rests."""

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.mvcc.clock import ManualClock
from nyala.schemas.description import TabletStats
from tests.engine.subject import Subject


def stats(subject: Subject) -> TabletStats:
    (tablet,) = subject.store.table_stats("t").tablets
    return tablet


def test_many_redo_files_are_merged_and_large_ones_go_into_the_base() -> None:
    subject = Subject(redo_files_count=3, redo_share=1e9)
    subject.upsert(*range(100))
    subject.flush()
    for value in range(3):
        assert subject.store.run_maintenance_once() is None
        subject.upsert(*range(50), v=value)
        subject.flush_deltas()
    before = stats(subject)
    assert subject.store.run_maintenance_once() == f"minor delta compaction of tablet {before.tablet}"
    assert 0 < stats(subject).redo_bytes < before.redo_bytes
    assert subject.store.run_maintenance_once() is None
    subject.options = subject.options.model_copy(update={"redo_share": 0.01})
    subject.restart()
    assert subject.store.run_maintenance_once() == f"major delta compaction of tablet {before.tablet}"
    after = stats(subject)
    assert after.redo_bytes < before.redo_bytes / 3 and after.undo_bytes > before.undo_bytes
    assert subject.store.run_maintenance_once() is None
    subject.close()


def test_history_is_dropped_once_it_is_worth_it() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(MemoryFileSystem(), clock, {"history_max_age_seconds": 10}, history_gc_bytes=1)
    subject.upsert(*range(100))
    subject.flush()
    assert subject.store.run_maintenance_once() is None
    clock.advance(11_000_000)
    assert subject.store.run_maintenance_once() == f"history of tablet {stats(subject).tablet}"
    assert stats(subject).undo_bytes == 0 < stats(subject).history_floor
    assert subject.store.run_maintenance_once() is None
    subject.store.close()
