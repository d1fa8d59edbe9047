"""Partitions that change while a table is in use: a crash at any call, writers beside them, files that must go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.clients.database import Database
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.verify import verify_store
from nyala.schemas.errors import StoreError

OPTIONS = StoreOptions(maintenance="off", scan_threads=1)
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
    prepare: Callable[[MemoryFileSystem], Store], change: Callable[[Store], None], check: Callable[[Store], None]
) -> None:
    """Cut the power at every call of ``change``, open what is left, and check it and its files."""
    fs = MemoryFileSystem()
    store = prepare(fs)
    first = fs.operations
    change(store)
    calls = fs.operations - first
    store.close()
    assert calls > 3
    for call in range(calls):
        fs = MemoryFileSystem()
        store = prepare(fs)
        fs.crash_at = fs.operations + call
        with pytest.raises((PowerFailure, StoreError)):
            change(store)
        image = fs.crash_image(Random(call))
        with Store.open(image, OPTIONS) as again:
            check(again)
            tablets = {str(tablet.tablet_id) for tablet in again._catalog.tablets()}
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
