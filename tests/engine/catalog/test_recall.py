"""Dropped tables that can be recalled: what stays of them, when they go for good, and a crash at any call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError, StorageFullError, StoreError
from nyala.schemas.rows.write import WriteCommand
from tests.doubles.clock import ManualClock

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)
SECOND = 1_000_000
KEEP = 100
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
ROWS = [{"k": 1, "v": 10}, {"k": 2, "v": 2}]


def new_clock() -> ManualClock:
    return ManualClock(1_700_000_000 * SECOND)


def with_table(fs: MemoryFileSystem, clock: ManualClock) -> Store:
    """A store of the table t with a row on disk, its update in memory, and a row in memory."""
    store = Store.open(fs, OPTIONS, clock)
    table = Database(store).create_table("t", SCHEMA, ["k"])
    table.insert([{"k": 1, "v": 1}])
    table.maintain("flush")
    table.update([{"k": 1, "v": 10}])
    table.insert([{"k": 2, "v": 2}])
    return store


def rows(store: Store, name: str = "t", as_of: int | None = None) -> list[dict[str, int]]:
    return Database(store).table(name).scan(ordered=True, as_of=as_of).to_arrow().to_pylist()


def directory(store: Store) -> str:
    (tablet,) = store._catalog.tablets()
    return f"tablets/{tablet.tablet_id}"


@pytest.mark.parametrize("how", ["at once", "after a restart", "after a crash"])
def test_a_recalled_table_has_all_rows_and_its_history(how: str) -> None:
    fs, clock = MemoryFileSystem(), new_clock()
    store = with_table(fs, clock)
    before = store.now()
    Database(store).table("t").delete([{"k": 2}])
    clock.advance(SECOND)
    store.drop_table("t", KEEP)
    other = Database(store).create_table("t", SCHEMA, ["k"])
    other.insert([{"k": 7, "v": 7}])
    if how == "after a crash":
        fs = fs.crash_image(Random(1))
    if how != "at once":
        store.close()
        assert verify_store(fs).is_sound
        store = Store.open(fs, OPTIONS, clock)
    assert store.tables() == ["t"] and rows(store) == [{"k": 7, "v": 7}]
    (kept,) = store.dropped_tables()
    assert kept.until.timestamp() == 1_700_000_001 + KEEP
    assert store.recall_table("t", "old").name == "old"
    assert store.tables() == ["old", "t"] and store.dropped_tables() == []
    assert rows(store, "old") == ROWS[:1] and rows(store, "old", before) == ROWS
    Database(store).table("old").upsert([{"k": 3, "v": 3}])
    store.close()
    with Store.open(fs, OPTIONS, clock) as store:
        assert rows(store, "old") == [ROWS[0], {"k": 3, "v": 3}] and rows(store) == [{"k": 7, "v": 7}]
    assert verify_store(fs).is_sound


def test_a_write_that_began_before_the_drop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_table(MemoryFileSystem(), new_clock())
    table = store._catalog.table("t")
    store.drop_table("t", KEEP)
    batch = pa.record_batch({"k": pa.array([5], pa.int64())})
    with monkeypatch.context() as patched:
        patched.setattr(store._writes, "_table", lambda name: table)  # as it was when the write began
        with pytest.raises(NotFoundError, match="dropped"):
            store.write(WriteCommand(table="t"), batch)
    store.recall_table("t")
    assert rows(store) == ROWS
    store.write(WriteCommand(table="t"), batch)
    assert len(rows(store)) == 3
    store.close()


def test_numbered_writes_and_auto_increment_go_on() -> None:
    fs, clock = MemoryFileSystem(), new_clock()
    store = Store.open(fs, OPTIONS, clock)
    Database(store).create_table("log", SCHEMA, ["k"], unique_key=False)
    command = WriteCommand(table="log", op="insert", writer="w")  # pyright: ignore[reportArgumentType]
    batch = pa.record_batch({"k": pa.array([5], pa.int64())})
    first = store.write(command, batch, 1)
    store.drop_table("log", KEEP)
    store.close()
    with Store.open(fs, OPTIONS, clock) as store:
        store.recall_table("log")
        assert store.write(command, batch, 1).timestamp == first.timestamp
        store.write(command, batch, 2)
        assert [row["auto_incrementing_id"] for row in rows(store, "log")] == [1, 2]


def test_maintenance_removes_what_is_over_and_only_that() -> None:
    fs, clock = MemoryFileSystem(), new_clock()
    store = with_table(fs, clock)
    place = directory(store)
    store.drop_table("t", KEEP)
    clock.advance(KEEP * SECOND - 1)
    while store.run_maintenance_once():
        pass
    assert [table.name for table in store.dropped_tables()] == ["t"] and fs.exists(place)
    clock.advance(1)
    assert str(store.run_maintenance_once()).startswith("remove the dropped table")
    assert store.dropped_tables() == [] and not fs.exists(place)
    with pytest.raises(NotFoundError, match="known: none"):
        store.recall_table("t")
    store.close()
    with Store.open(fs, OPTIONS, clock) as store:
        assert store.dropped_tables() == [] and store.tables() == []
    assert verify_store(fs).is_sound


def test_a_time_of_day_that_jumps_deletes_no_table() -> None:
    clock = new_clock()
    store = with_table(MemoryFileSystem(), clock)
    store.drop_table("t", KEEP)
    assert store.run_maintenance_once() is None
    clock.jump(3_600 * SECOND)
    clock.advance((KEEP - 1) * SECOND)
    assert store.run_maintenance_once() is None
    clock.jump(-3_600 * SECOND)
    store.recall_table("t")
    assert rows(store) == ROWS
    store.drop_table("t", KEEP)
    clock.advance((KEEP - 1) * SECOND)
    assert store.run_maintenance_once() is None
    clock.advance(SECOND)
    assert str(store.run_maintenance_once()).startswith("remove the dropped table")
    store.close()


def test_a_removal_that_was_due_spares_a_table_that_was_recalled() -> None:
    clock = new_clock()
    store = with_table(MemoryFileSystem(), clock)
    store.drop_table("t", KEEP)
    clock.advance(KEEP * SECOND)
    (removal,) = [each for each in store._operations() if each.name.startswith("remove the dropped table")]
    store.recall_table("t")  # nothing is refused that is still there
    removal.perform()
    assert rows(store) == ROWS
    store.close()


def test_the_log_of_a_table_set_aside_is_freed_once_it_is_flushed() -> None:
    fs, clock = MemoryFileSystem(), new_clock()
    store = with_table(fs, clock)
    store.drop_table("t", KEEP)
    other = Database(store).create_table("other", SCHEMA, ["k"])
    for number in range(60):
        other.upsert([{"k": key, "v": number} for key in range(20)])
    other.maintain("flush")
    assert store._wal.first_lsn == 1, "the rows in memory need it"
    image = fs.crash_image(Random(2))
    store.close()
    with Store.open(image, OPTIONS, clock) as again:
        again.recall_table("t")
        assert rows(again) == ROWS


def test_verify_reads_the_files_of_a_table_set_aside() -> None:
    fs, clock = MemoryFileSystem(), new_clock()
    store = with_table(fs, clock)
    place = directory(store)
    store.drop_table("t", KEEP)
    store.close()
    assert verify_store(fs).is_sound
    (name,) = [name for name in fs.list(place) if name.endswith(".base")]
    fs.unlink(f"{place}/{name}")
    (problem,) = verify_store(fs).problems
    assert name in str(problem)


def dropped(store: Store) -> None:
    store.drop_table("t", KEEP)


def recalled(store: Store) -> None:
    store.recall_table("t", "back")


def removed(store: Store) -> None:
    assert store.run_maintenance_once()


def ready(step: Callable[[Store], None], fs: MemoryFileSystem) -> tuple[Store, ManualClock]:
    """A store that waits for ``step``."""
    clock = new_clock()
    store = with_table(fs, clock)
    if step is not dropped:
        store.drop_table("t", KEEP)
    if step is removed:
        clock.advance(KEEP * SECOND)
    return store, clock


def state(store: Store) -> str:
    names, kept = store.tables(), [table.name for table in store.dropped_tables()]
    if names:
        assert not kept and rows(store, names[0]) == ROWS
        return names[0]
    return "dropped" if kept else "gone"


@pytest.mark.parametrize(
    ("step", "states"),
    [(dropped, ("t", "dropped")), (recalled, ("dropped", "back")), (removed, ("dropped", "gone"))],
)
def test_a_crash_leaves_what_was_or_what_is(step: Callable[[Store], None], states: tuple[str, str]) -> None:
    fs = MemoryFileSystem()
    store, _ = ready(step, fs)
    first = fs.operations
    step(store)
    calls = fs.operations - first
    store.close()
    seen: list[str] = []
    for call in range(calls + 1):
        fs = MemoryFileSystem()
        store, clock = ready(step, fs)
        fs.crash_at = fs.operations + call
        with suppress(PowerFailure, StoreError):  # the last time nothing fails before the power does
            step(store)
        image = fs.crash_image(Random(call))
        with Store.open(image, OPTIONS, clock) as again:
            seen.append(state(again))
            if seen[-1] == states[0]:
                step(again)
                assert state(again) == states[1]
            elif seen[-1] == "dropped":
                recalled(again)
                assert rows(again, "back") == ROWS
        assert verify_store(image).is_sound
    assert (seen[0], seen[-1]) == states and set(seen) == set(states)


def test_a_full_disk_leaves_the_table_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ManifestFile, edit: object) -> None:
        raise StorageFullError("the disk is full")

    for step in (dropped, recalled):
        store, _ = ready(step, MemoryFileSystem())
        before = state(store)
        with monkeypatch.context() as patched:
            patched.setattr(ManifestFile, "commit", full)
            with pytest.raises(StorageFullError):
                step(store)
        assert state(store) == before
        step(store)
        assert state(store) != before
        store.close()


def test_who_looks_at_all_tables_while_one_is_recalled_or_dropped_finds_it() -> None:
    """The log is freed by what is found: a table that was missed would lose its rows in memory."""

    class Moving(dict[str, Any]):
        """Names of tables, one of which comes or goes right after they were looked at."""

        def values(self) -> Any:
            found = list(super().values())
            if moves:
                moves.pop()()
            return found

    with with_table(MemoryFileSystem(), new_clock()) as store:
        catalog, moves = store._catalog, []
        catalog._tables = Moving(catalog._tables)
        for move in (lambda: store.drop_table("t", KEEP), lambda: store.recall_table("t")):
            moves.append(move)
            assert [table.name for table in catalog.tables()] == ["t"] and not moves
