"""What goes on while a tablet is divided: writes between all of its steps, other changes of tables, and a drop."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.catalog.split_rows import SplitRows
from nyala.engine.catalog.tablet_split import TabletSplit
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.table.direct_load import DirectLoad
from nyala.schemas.errors import NotFoundError, StorageFullError
from tests.engine.phases import at

OPTIONS = StoreOptions(maintenance="off")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
MIDDLE = "k10"


def key(number: int) -> str:
    return f"k{number:02}"


def table_of(fs: MemoryFileSystem) -> Store:
    """Rows 0 to 19 on disk on both sides, and 20 to 23, with changes and deletes, in memory."""
    store = Store.open(fs, OPTIONS)
    table = Database(store).create_table("t", SCHEMA, ["k"])
    for numbers in (range(0, 10), range(5, 20)):
        table.upsert([{"k": key(number), "v": number} for number in numbers])
        table.maintain("flush")
    table.insert([{"k": key(number), "v": number} for number in (20, 21, 22, 23)])
    table.update([{"k": key(number), "v": -number} for number in (1, 11, 21)])
    table.delete([{"k": key(2)}, {"k": key(22)}])
    return store


HELD = {number: -number if number in (1, 11, 21) else number for number in range(24) if number not in (2, 22)}


def content(store: Store, moment: int | None = None) -> dict[int, int]:
    found = Database(store).table("t").scan(as_of=moment, ordered=True).to_arrow()
    return dict(zip((int(name[1:]) for name in found["k"].to_pylist()), found["v"].to_pylist(), strict=True))


def in_a_thread(work: Callable[[], Any]) -> Callable[[], None]:
    """Return what does ``work`` in another thread, and fails when it must wait."""

    def run() -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), "it waits for the split"

    return run


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "phase",
    [(TabletSplit, "prepare"), (TabletSplit, "_adopt"), (TabletSplit, "_copy_rows"), (SplitRows, "carry_over")],
    ids=lambda phase: phase[1],
)
def test_writes_between_the_steps_of_a_split_are_in_its_halves(
    monkeypatch: pytest.MonkeyPatch, phase: tuple[Any, str], before: bool
) -> None:
    fs = MemoryFileSystem()
    moments: list[int] = []
    with table_of(fs) as store:
        table = Database(store).table("t")

        def write() -> None:
            moments.append(store.now())
            table.insert([{"k": key(number), "v": number} for number in (30, 31)] + [{"k": "k001", "v": 1}])
            table.update([{"k": key(number), "v": 100 + number} for number in (0, 19, 21, 23, 30)])
            table.delete([{"k": key(3)}, {"k": key(20)}, {"k": key(31)}, {"k": "k001"}])
            table.insert([{"k": key(2), "v": 2}, {"k": key(22), "v": 22}])

        at(monkeypatch, phase, before, write)
        table.alter().split_partition(MIDDLE).apply()
        expected = HELD | {number: 100 + number for number in (0, 19, 21, 23, 30)} | {2: 2, 22: 22}
        del expected[3], expected[20]
        assert len(moments) == 1 and content(store) == expected and content(store, moments[0]) == HELD
        assert [len(tablet.version.in_memory[0]) > 0 for tablet in store._catalog.table("t").tablets][1]
        table.upsert([{"k": key(number), "v": 0} for number in (3, 20, 23)])
        expected |= {3: 0, 20: 0, 23: 0}
        image = fs.crash_image(Random(0))
        for op in ("flush", "flush_deltas", "compact"):
            table.maintain(op)
            assert content(store) == expected and content(store, moments[0]) == HELD
    for disk in (fs, image):
        with Store.open(disk, OPTIONS) as again:
            assert content(again) == expected and content(again, moments[0]) == HELD
        assert verify_store(disk).is_sound


def test_more_rows_in_memory_than_are_copied_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come after others were copied go to files, and the copies with them."""
    with table_of(MemoryFileSystem()) as store:
        table = Database(store).table("t")
        more = {number: number for number in range(24, 60)}
        monkeypatch.setattr("nyala.engine.catalog.tablet_split._ROWS_IN_MEMORY", 16)
        monkeypatch.setattr("nyala.engine.catalog.splitting.LITTLE", 2)
        at(monkeypatch, (TabletSplit, "_copy_rows"), False, lambda: table.insert([{"k": key(n), "v": n} for n in more]))
        table.alter().split_partition(MIDDLE).apply()
        assert content(store) == HELD | more
        assert all(not len(tablet.version.active) for tablet in store._catalog.table("t").tablets)


def test_a_tablet_is_divided_however_much_is_written_each_time_that_it_is_nearly_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch may be more than is little: then a little more has to be copied while its writers wait."""
    with table_of(MemoryFileSystem()) as store:
        table, written = Database(store).table("t"), dict(HELD)
        prepare, batches = TabletSplit.prepare, iter(range(100, 100_000, 5_000))

        def prepare_and_write(division: TabletSplit, little: int) -> None:
            prepare(division, little)
            first = next(batches)
            more = {number: number for number in range(first, first + 5_000)}
            table.insert({"k": [f"k{number}" for number in more], "v": list(more.values())})
            written.update(more)

        monkeypatch.setattr(TabletSplit, "prepare", prepare_and_write)
        table.alter().split_partition(MIDDLE).apply()
        assert len(store._catalog.table("t").tablets) == 2 and content(store) == written


def test_rowsets_attached_while_a_split_is_prepared_are_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with table_of(fs) as store:
        table = Database(store).table("t")
        more = {number: number for number in range(24, 40)}
        store._writes.direct_load = DirectLoad(store._environment, 1, 1)
        rows = [{"k": f"k00{number}", "v": 0} for number in range(3)] + [{"k": key(n), "v": n} for n in more]
        at(monkeypatch, (TabletSplit, "_adopt"), False, lambda: table.insert(rows))
        table.alter().split_partition(MIDDLE).apply()
        table.delete([{"k": row["k"]} for row in rows[:3]])
        assert content(store) == HELD | more
    with Store.open(fs, OPTIONS) as again:
        assert content(again) == HELD | more
    assert verify_store(fs).is_sound


def test_the_keys_of_the_halves_are_indexed_before_the_first_write() -> None:
    """Else it would index all of them, or search for its own, while other writers wait."""
    with table_of(MemoryFileSystem()) as store:
        table = Database(store).table("t")
        table.alter().split_partition(MIDDLE).apply()
        halves = store._catalog.table("t").tablets
        for half in halves:
            assert half.key_lookup.mode(half.version) == "index" and half.key_lookup.key_count
        budget = store._environment.key_index
        assert budget.limit_bytes - budget.free_bytes == sum(half.key_lookup.nbytes for half in halves)


def test_a_split_that_cannot_be_committed_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: ManifestFile, document: bytes) -> None:
        del file, document
        raise StorageFullError("the disk is full") from OSError(errno.ENOSPC, "no room")

    with table_of(MemoryFileSystem()) as store:
        table = Database(store).table("t")
        at(
            monkeypatch,
            (TabletSplit, "take_over"),
            False,
            lambda: monkeypatch.setattr(ManifestFile, "_write_new", full),
        )
        with pytest.raises(StorageFullError):
            table.alter().split_partition(MIDDLE).apply()
        monkeypatch.undo()
        (tablet,) = store._catalog.table("t").tablets
        budget = store._environment.key_index
        assert budget.limit_bytes - budget.free_bytes == tablet.key_lookup.nbytes
        assert content(store) == HELD
        table.alter().split_partition(MIDDLE).apply()
        assert content(store) == HELD and len(table.stats()["tablets"]) == 2


def test_other_tables_come_change_and_go_while_a_tablet_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    with table_of(MemoryFileSystem()) as store:
        database = Database(store)
        database.create_table("there", SCHEMA, ["k"])

        def others() -> None:
            database.create_table("new", SCHEMA, ["k"]).insert([{"k": "a", "v": 1}])
            database.table("there").alter().rename("moved").add_column("w", pa.int32()).apply()
            database.drop_table("moved")

        at(monkeypatch, (TabletSplit, "_copy_rows"), True, in_a_thread(others))
        database.table("t").alter().split_partition(MIDDLE).apply()
        assert database.tables() == ["new", "t"] and content(store) == HELD


def test_a_second_change_of_the_table_comes_after_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    with table_of(MemoryFileSystem()) as store:
        table = Database(store).table("t")
        changes = [
            threading.Thread(target=table.alter().split_partition("k15").apply),
            threading.Thread(target=table.alter().rename_column("v", "w").apply),
        ]
        at(monkeypatch, (TabletSplit, "prepare"), True, lambda: [change.start() for change in changes])
        table.alter().split_partition(MIDDLE).apply()
        for change in changes:
            change.join(60)
        described = table.describe()
        assert described["schema_version"] == 4 and [column["name"] for column in described["columns"]] == ["k", "w"]
        assert len(table.stats()["tablets"]) == 3 and table.scan().count() == len(HELD)


@pytest.mark.parametrize("keep_seconds", [0, 1_000])
def test_a_table_that_is_dropped_is_divided_no_further(monkeypatch: pytest.MonkeyPatch, keep_seconds: int) -> None:
    fs = MemoryFileSystem()
    with table_of(fs) as store:
        database = Database(store)
        dropped = threading.Thread(target=lambda: store.drop_table("t", keep_seconds=keep_seconds))

        def drop() -> None:
            dropped.start()
            while "t" in database.tables():
                time.sleep(0.001)

        at(monkeypatch, (TabletSplit, "_copy_rows"), False, drop)
        with pytest.raises(NotFoundError, match="was dropped"):
            database.table("t").alter().split_partition(MIDDLE).apply()
        dropped.join(60)
        assert database.tables() == []
        if keep_seconds:
            database.recall_table("t")
            assert content(store) == HELD
            database.table("t").alter().split_partition(MIDDLE).apply()
            assert content(store) == HELD
    with Store.open(fs, OPTIONS) as again:
        assert Database(again).tables() == (["t"] if keep_seconds else [])
    report = verify_store(fs)
    assert report.is_sound and not report.notes, report
