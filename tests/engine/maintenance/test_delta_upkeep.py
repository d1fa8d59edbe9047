"""The manager compacts deltas and drops history when it pays, and then rests."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.compaction import delta_compaction
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.store.description import TabletStats
from tests.doubles.clock import ManualClock
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


def test_undo_files_do_not_pile_up() -> None:
    subject = Subject(redo_files_count=4, redo_share=1e-9)
    subject.upsert(*range(100))
    subject.flush()
    most, done = 0, set()
    for value in range(12):
        subject.upsert(*range(50), v=value)
        subject.flush_deltas()
        while work := subject.store.run_maintenance_once():
            done.add(work.partition(" of ")[0])
        (rowset,) = subject.tablet.version.disk
        most = max(most, len(rowset.deltas.stores.undo))
    assert done == {"major delta compaction", "minor delta compaction"}
    assert most == 3, "the fourth is merged with the others at once"
    subject.close()


def test_a_long_history_is_not_written_anew_with_each_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_compaction, "_SMALL_BYTES", 1)  # so that files differ by tiers
    subject = Subject(redo_files_count=4, redo_share=1e-9)
    subject.upsert(*range(100))
    subject.flush()
    updates, written = 64, 0
    for value in range(updates):
        subject.upsert(*range(50), v=value)
        subject.flush_deltas()
        before = {file.file_id for file in subject.tablet.version.disk[0].deltas.stores.undo}
        while subject.store.run_maintenance_once():
            after = subject.tablet.version.disk[0].deltas.stores.undo
            written += sum(sum(file.metadata.deltas.values()) for file in after if file.file_id not in before)
            before = {file.file_id for file in after}
    undo = subject.tablet.version.disk[0].deltas.stores.undo
    deltas = sum(sum(file.metadata.deltas.values()) for file in undo)
    assert deltas == 100 + updates * 50 * 2, "all history is kept"
    assert len(undo) <= 3 * 4 and written <= 5 * deltas, "written once, and once for each of three tiers or four"
    subject.check()
    subject.restart()
    subject.check()
    subject.close()


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], []),
        ([1, 1, 1], []),
        ([1, 1, 1, 1], [0, 1, 2, 3]),
        ([9, 1, 1, 1, 1], [1, 2, 3, 4]),
        ([9, 9, 9, 9, 1], [0, 1, 2, 3]),
        ([99, 9, 9, 9, 1, 1, 1], []),
        ([9, 9, 1, 9, 9, 1, 1], [0, 1, 2, 3, 4]),
        ([99, 9, 9, 9, 9, 1, 1, 1, 1], [5, 6, 7, 8]),
    ],
)
def test_undo_files_of_one_tier_are_merged(
    sizes: list[int], merged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_compaction, "_SMALL_BYTES", 2)
    undo: Any = [SimpleNamespace(size_bytes=size) for size in sizes]
    assert list(delta_compaction.mergeable(undo, 4)) == merged


def test_merged_undo_files_hold_no_more_than_the_history() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(MemoryFileSystem(), clock, {"history_max_age_seconds": 100}, redo_share=1e-9)
    subject.upsert(*range(100))
    subject.flush()
    for value in range(3):
        clock.advance(60_000_000)
        subject.upsert(*range(50), v=value)
        subject.flush_deltas()
        subject.store.maintain("t", "major_compact")
    assert subject.store.maintain("t", "minor_compact")["rows"] > 250
    (rowset,) = subject.tablet.version.disk
    (undo,) = rowset.deltas.stores.undo
    assert undo.metadata.deltas == {2: 100, 3: 100}, "of the third update and the second, not the births"
    subject.history = subject.history[-2:]
    subject.check()
    subject.restart()
    subject.close()


def test_the_space_of_long_dead_rows_comes_back_while_others_change() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(MemoryFileSystem(), clock, {"history_max_age_seconds": 100}, redo_share=1e9)
    subject.upsert(*range(5_000), s="x" * 20)
    subject.flush()
    before = stats(subject).bytes_on_disk
    subject.delete(*range(4_500))
    subject.flush_deltas()
    for second in range(25):
        clock.advance(10_000_000)
        subject.upsert(*range(4_900, 5_000), v=second)
        subject.delete(4_500 + second)  # liveness goes on changing too
        subject.flush_deltas()
        if second < 9:
            work = subject.store.run_maintenance_once()
            assert work is None or not work.startswith("compact"), "the rows have not been dead for long"
    works = set()
    while work := subject.store.run_maintenance_once():
        works.add(work.partition(" tablet")[0])
    assert "compact" in works
    (rowset,) = subject.tablet.version.disk
    assert 475 <= len(rowset) <= 500
    assert stats(subject).bytes_on_disk < before * 2 / 3
    subject.history = subject.history[-2:]
    subject.close()


def test_the_bytes_of_bases_that_were_rewritten_come_back() -> None:
    clock, random = ManualClock(1_700_000_000_000_000), Random(0)
    options = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)
    with Store.open(MemoryFileSystem(), options, clock) as store:
        schema = pa.schema([("k", pa.int64()), ("small", pa.int8()), ("large", pa.binary())])
        table = Database(store).create_table("t", schema, ["k"], history_max_age_seconds=10)
        table.insert([{"k": key, "small": 0, "large": random.randbytes(100)} for key in range(5000)])
        table.maintain("flush")
        size = table.stats()["bytes_on_disk"]
        for column, is_worth_it in (("small", False), ("large", True)):
            value = {"small": lambda: 1, "large": lambda: random.randbytes(100)}[column]
            table.update([{"k": key, column: value()} for key in range(5000)])
            table.maintain("flush_deltas")
            table.maintain("major_compact")
            (rowset,) = store._catalog.tablets()[0].version.disk
            assert rowset.superseded_bytes({2, 3}) > rowset.superseded_bytes({1}) == 0
            clock.advance(11_000_000)
            done = set()
            while work := store.run_maintenance_once():
                done.add(work.partition(" ")[0])
            assert ("compact" in done) == is_worth_it
        (rowset,) = store._catalog.tablets()[0].version.disk
        assert rowset.superseded_bytes({2, 3}) == 0
        assert table.stats()["bytes_on_disk"] < 1.1 * size
