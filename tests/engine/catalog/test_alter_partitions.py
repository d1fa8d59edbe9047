"""Partitions that change while a table is in use: a crash at any call, writers beside them, files that must go."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.table.direct_load import DirectLoad
from nyala.schemas.errors import NotFoundError, StoreError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from tests.dose import dose

OPTIONS = StoreOptions(maintenance="off")
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def ranged_table(fs: MemoryFileSystem) -> Store:
    """Ranges [0, 10) and [10, 20), each with rows on disk, in memory, and deltas."""
    store = Store.open(fs, OPTIONS)
    levels = [nyala.range("k", bounds=[(0, 10), (10, 20)])]
    table = Database(store).create_table("t", SCHEMA, ["k"], partition_by=levels)
    table.insert([{"k": 1, "v": 1}, {"k": 11, "v": 11}])
    table.maintain("flush")
    table.insert([{"k": 2, "v": 2}, {"k": 12, "v": 12}])
    table.update([{"k": 1, "v": -1}, {"k": 12, "v": -12}])
    return store


def content(store: Store) -> dict[int, int]:
    found = Database(store).table("t").scan(ordered=True).to_arrow()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def altered(store: Store) -> None:
    table = Database(store).table("t")
    table.alter().drop_range_partition(0, 10).add_range_partition(20, None).rename_column("v", "w").apply()
    table.alter().rename_column("w", "v").apply()
    table.insert([{"k": 20, "v": 20}])


OLD = {1: -1, 2: 2, 11: 11, 12: -12}
NEW = {11: 11, 12: -12}


def crashed_at_every_call(
    prepare: Callable[[MemoryFileSystem], Store],
    change: Callable[[Store], None],
    check: Callable[[Store], None],
    every: int = 1,
) -> None:
    """Cut the power at every call of ``change``, or one in ``every``, open what is left, and check it and its files."""
    fs = MemoryFileSystem()
    store = prepare(fs)
    first = fs.operations
    change(store)
    calls = fs.operations - first
    store.close()
    assert calls > 3
    for call in sorted({*range(0, calls, every), calls - 1}):
        fs = MemoryFileSystem()
        store = prepare(fs)
        fs.crash_at = fs.operations + call
        with pytest.raises((PowerFailure, StoreError)):
            change(store)
        image = fs.crash_image(Random(call))
        with Store.open(image, OPTIONS) as again:
            check(again)
            tablets = {str(tablet.directory_id) for tablet in again._catalog.tablets()}
            assert set(image.list("tablets")) == tablets, "directories of tablets that are gone are swept"
        report = verify_store(image)
        assert report.is_sound, report.problems


def test_a_crash_leaves_the_old_ranges_or_the_new_ones() -> None:
    seen: list[dict[int, int]] = []

    def check(store: Store) -> None:
        described = Database(store).table("t").describe()
        seen.append(content_of_either(store, described["columns"][1]["name"]))
        bounds = described["partitions"][0]["bounds"]
        assert seen[-1] in (OLD, NEW, {**NEW, 20: 20})
        assert bounds[0]["lower"] == ([0] if seen[-1] == OLD else [10])
        assert (described["schema_version"] == 1) == (seen[-1] == OLD)

    crashed_at_every_call(ranged_table, altered, check)
    assert seen[0] == OLD and NEW in seen


def content_of_either(store: Store, name: str) -> dict[int, int]:
    if name == "w":
        Database(store).table("t").alter().rename_column("w", "v").apply()
    return content(store)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "injected"), KeyboardInterrupt()], ids=["disk", "interrupt"])
@pytest.mark.parametrize("call", ["rename", "sync_directory"])
def test_no_write_is_acknowledged_when_a_drop_may_have_reached_the_disk(
    monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    fs = MemoryFileSystem()
    store = ranged_table(fs)
    done = getattr(fs, call)

    def do_and_fail(*args: str) -> None:
        done(*args)
        raise error

    table = Database(store).table("t")
    with monkeypatch.context() as patched:
        patched.setattr(fs, call, do_and_fail)
        with pytest.raises((UnavailableError, KeyboardInterrupt)):
            table.alter().drop_range_partition(0, 10).apply()
    with pytest.raises(UnavailableError, match="read-only"):
        table.insert([{"k": 3, "v": 3}])
    with pytest.raises(UnavailableError, match="read-only"):
        table.maintain("flush")
    assert content(store) == OLD, "reads go on"
    assert store.health().status == "read_only"
    assert store.run_maintenance_once() is None
    store.close()
    with Store.open(fs, OPTIONS) as again:
        assert content(again) == NEW


def test_the_files_of_a_dropped_range_go_and_its_log_records_are_passed_over() -> None:
    fs = MemoryFileSystem()
    store = ranged_table(fs)
    before = set(fs.list("tablets"))
    Database(store).table("t").alter().drop_range_partition(0, 10).apply()
    assert len(before - set(fs.list("tablets"))) == 1
    image = fs.crash_image(Random(0))
    store.close()
    with Store.open(image, OPTIONS) as again:
        assert content(again) == NEW


def test_writers_and_scanners_go_on_while_ranges_come_and_go() -> None:
    """Writer w keeps to range w, which stays; ranges beside them come and go, written to while they are there."""
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        levels = [nyala.range("k", bounds=[(0, 10), (10, 20)])]
        table = Database(store).create_table("t", SCHEMA, ["k"], partition_by=levels)
        stop, errors, last = threading.Event(), [], [0, 0]

        def guarded(work: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                errors.append(error)
                stop.set()

        def write(writer: int) -> None:
            table.upsert([{"k": key, "v": last[writer] + 1} for key in range(writer * 10, writer * 10 + 10)])
            last[writer] += 1

        def visit() -> None:
            result = table.write([{"k": key, "v": 0} for key in (100, 5)], "insert", on_error="return")
            assert {error.code for error in result.errors} <= {"NO_PARTITION", "ALREADY_PRESENT"}

        def scan() -> None:
            least = list(last)
            found = table.scan(where="k < 100").to_arrow()
            seen = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
            for writer in range(2):
                values = {seen.get(key) for key in range(writer * 10, writer * 10 + 10)}
                assert len(values) == 1 and (values.pop() or 0) >= least[writer]

        works = [lambda: write(0), lambda: write(1), visit, scan, lambda: table.maintain("flush") and None]
        table.upsert([{"k": key, "v": 0} for key in range(20)])
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for number in range(25):
            table.alter().add_range_partition(100, 200 + number).apply()
            table.alter().drop_range_partition(100, 200 + number).apply()
        stop.set()
        for thread in threads:
            thread.join(60)
        if errors:
            raise errors[0]
        assert content(store) == {key: last[key // 10] for key in range(20)}


def whole_table(fs: MemoryFileSystem) -> Store:
    """One tablet: a rowset on either side of 10, one with rows of both and a REDO file, rows and deltas in memory."""
    store = Store.open(fs, OPTIONS)
    table = Database(store).create_table("t", SCHEMA, ["k"])
    for keys in ([1, 2], [11, 12], [3, 13]):
        table.insert([{"k": key, "v": key} for key in keys])
        table.maintain("flush")
    table.update([{"k": 3, "v": -3}, {"k": 13, "v": -13}, {"k": 1, "v": -1}])
    table.maintain("flush_deltas")
    table.insert([{"k": 4, "v": 4}, {"k": 14, "v": 14}])
    table.upsert([{"k": 4, "v": -4}, {"k": 12, "v": -12}, {"k": 15, "v": 15}])
    table.delete([{"k": 15}, {"k": 2}])
    return store


WHOLE = {1: -1, 3: -3, 4: -4, 11: 11, 12: -12, 13: -13, 14: 14}


def split(store: Store) -> None:
    table = Database(store).table("t")
    table.alter().split_partition(10).apply()
    table.upsert([{"k": 4, "v": 0}, {"k": 15, "v": 0}])


def test_a_split_rewrites_only_what_straddles_and_old_snapshots_stay() -> None:
    fs = MemoryFileSystem()
    with whole_table(fs) as store:
        table = Database(store).table("t")
        moments = [table.upsert([{"k": 1, "v": -1}]).timestamp, Database(store).now()]
        changed = table.changes(since=moments[0] - 1, every=True).to_arrow().num_rows
        (tablet,) = store._catalog.table("t").tablets
        before = {rowset.rowset_id for rowset in tablet.version.disk}
        running = table.scan(ordered=True).to_reader()
        table.alter().split_partition(10).apply()
        low, high = store._catalog.table("t").tablets
        after = {rowset.rowset_id for half in (low, high) for rowset in half.version.disk}
        assert len(before & after) == 2, "the rowsets of one side are the same files"
        assert all(rowset.min_key >= (10).to_bytes(8, "big") for rowset in high.version.disk)
        assert dict(zip(*(column.to_pylist() for column in running.read_all().columns), strict=True)) == WHOLE
        assert content(store) == WHOLE
        for moment in moments:
            assert table.scan(as_of=moment).count() == len(WHOLE)
        assert table.changes(since=moments[0] - 1, every=True).to_arrow().num_rows == changed
        table.upsert([{"k": 15, "v": 1}])
        assert table.get(15) == {"k": 15, "v": 1} and table.get(2) is None
        for op in ("flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc"):
            table.maintain(op)
            assert content(store) == WHOLE | {15: 1}
        table.alter().drop_range_partition(None, 10).apply()
        kept = {key: value for key, value in WHOLE.items() if key >= 10} | {15: 1}
        assert content(store) == kept
        table.alter().split_partition(13).apply()
        assert content(store) == kept and len(table.stats()["tablets"]) == 2
    with Store.open(fs, OPTIONS) as again:
        assert content(again) == kept
    report = verify_store(fs)
    assert report.is_sound and not report.notes, report


def test_a_ticket_for_a_divided_tablet_has_all_of_it_or_says_what_was_dropped() -> None:
    with whole_table(MemoryFileSystem()) as store:
        table = Database(store).table("t")
        plan = store.plan(ScanSpec(table="t"))
        (ticket,) = [ScanSpec(table="t", tablet=each.tablet).pinned(plan.snapshot) for each in plan.splits]
        for at in (10, 13):
            table.alter().split_partition(at).apply()
            rows = store.scan(ticket).to_reader().read_all()
            assert sorted(rows["k"].to_pylist()) == sorted(WHOLE)
        low, middle, _ = (tablet.tablet_id for tablet in store._catalog.table("t").tablets)
        table.alter().drop_range_partition(10, 13).apply()
        with pytest.raises(NotFoundError, match=r"was split after.*part of it was dropped; plan the scan again"):
            store.scan(ticket)
        with pytest.raises(NotFoundError, match="its range was dropped"):
            store.scan(ticket.model_copy(update={"tablet": middle}))
        assert store.scan(ticket.model_copy(update={"tablet": low})).to_reader().read_all().num_rows == 3


def test_a_crash_in_a_split_leaves_one_tablet_or_two() -> None:
    seen: list[int] = []

    def check(store: Store) -> None:
        assert content(store) in (WHOLE, WHOLE | {4: 0, 15: 0})
        seen.append(len(Database(store).table("t").stats()["tablets"]))
        if seen[-1] == 1:
            assert Database(store).table("t").describe()["partitions"] == []
            split(store)
        assert Database(store).table("t").get(13) == {"k": 13, "v": -13}

    crashed_at_every_call(whole_table, split, check, every=dose(5, 1))
    assert set(seen) == {1, 2} and seen == sorted(seen)


def test_the_log_of_a_divided_tablet_is_replayed_into_its_heirs() -> None:
    fs = MemoryFileSystem()
    store = whole_table(fs)
    table = Database(store).table("t")
    table.alter().split_partition(10).apply()
    table.alter().split_partition(13).apply()
    table.upsert([{"k": 12, "v": 120}, {"k": 20, "v": 20}])
    table.alter().drop_range_partition(None, 10).add_range_partition(None, 10).apply()
    image = fs.crash_image(Random(0))
    store.close()
    with Store.open(image, OPTIONS) as again:
        expected = {11: 11, 12: 120, 13: -13, 14: 14, 20: 20}
        assert content(again) == expected
        for op in ("flush", "flush_deltas", "compact"):
            Database(again).table("t").maintain(op)
        assert content(again) == expected
    assert verify_store(image).is_sound


def test_a_rowset_attached_before_a_split_is_as_old_after_the_replay() -> None:
    """The log's last word of an heir is the attachment to the tablet that was divided."""
    fs = MemoryFileSystem()
    with Store.open(fs, OPTIONS) as store:
        table = Database(store).create_table("t", SCHEMA, ["k"])
        table.insert([{"k": 1, "v": 1}])
        before = store.now()
        store._writes.direct_load = DirectLoad(store._environment, 1, 1)
        table.insert([{"k": 2, "v": 2}, {"k": 3, "v": 3}])
        assert [len(tablet.version.attached) for tablet in store._catalog.tablets()] == [1]
        table.alter().split_partition(10).apply()
    with Store.open(fs, OPTIONS) as store:
        table = Database(store).table("t")
        for op in ("flush", "compact"):
            table.maintain(op)
            assert table.scan(as_of=before, columns=["k"]).to_arrow()["k"].to_pylist() == [1]
        assert content(store) == {1: 1, 2: 2, 3: 3}


def test_writers_scanners_and_compactions_go_on_while_tablets_are_divided() -> None:
    """Writers w and 2 + w update all keys of a half each round; every scan finds each half whole."""
    options = StoreOptions(maintenance="off", direct_load_bytes=1 << 9)
    fs = MemoryFileSystem()
    with Store.open(fs, options) as store:
        table = Database(store).create_table(
            "t", pa.schema([("a", pa.string()), ("k", pa.int64()), ("v", pa.int64())]), ["a", "k"]
        )
        stop, errors, last = threading.Event(), [], [0, 0]
        keys = [(f"{key % 7}", key) for key in range(200)]

        def guarded(work: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                errors.append(error)
                stop.set()

        def write(writer: int) -> None:
            table.upsert([{"a": a, "k": k, "v": last[writer] + 1} for a, k in keys[writer::2]])
            last[writer] += 1

        def load() -> None:
            table.insert(
                [{"a": f"z{last[0]:05}{number:05}", "k": -1, "v": 0} for number in range(40)], on_error="return"
            )

        def scan() -> None:
            least = list(last)
            found = table.scan(where="k >= 0").to_arrow().to_pylist()
            for writer in range(2):
                values = {row["v"] for row in found if row["k"] % 2 == writer}
                assert len(values) == 1 and values.pop() >= least[writer]
            assert len(found) == len(keys)

        def maintain() -> None:
            for op in ("flush", "flush_deltas", "compact"):
                table.maintain(op)

        write(0)
        write(1)
        works = [lambda: write(0), lambda: write(1), load, scan, maintain]
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for at in (("3", 100), ("1", 50), ("5",), ("3",), ("6", 13), ("z",)):
            table.alter().split_partition(at).apply()
        stop.set()
        for thread in threads:
            thread.join(60)
        if errors:
            raise errors[0]
        assert {row["v"] for row in table.scan(where="k >= 0").to_arrow().to_pylist()} == set(last)
        expected = sorted(map(str, table.scan().to_arrow().to_pylist()))
        image = fs.crash_image(Random(1))
    for disk in (fs, image):
        with Store.open(disk, options) as again:
            assert sorted(map(str, Database(again).table("t").scan().to_arrow().to_pylist())) == expected
        assert verify_store(disk).is_sound
