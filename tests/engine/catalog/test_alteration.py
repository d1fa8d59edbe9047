"""Alterations of a table that is in use: writers, scanners and compactions beside them, and a crash at any call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.compaction import merge as merging
from nyala.engine.compaction.flush import flush_memrowset
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.manifest.manifest import Manifest, ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError, StorageFullError, StoreError, UnavailableError
from tests.doubles.clock import ManualClock
from tests.engine.phases import at
from tests.engine.subject import Subject

OPTIONS = StoreOptions(maintenance="off")
KEYS = 40
ROUNDS = 25


class Race:
    """Threads on one table. Writer w upserts the keys ``KEYS * w ..``, each round all of them to one number."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.store = Store.open(self.fs, OPTIONS)
        schema = pa.schema([pa.field("k", pa.int64(), False), ("kept", pa.int64()), ("extra", pa.int8())])
        self.table = Database(self.store).create_table("t", schema, ["k"])
        self.last = [0, 0, 0]
        self.stop = threading.Event()
        self.errors: list[BaseException] = []

    def write(self, writer: int) -> None:
        keys = list(range(KEYS * writer, KEYS * (writer + 1)))
        number = 0
        while not self.stop.is_set():
            number += 1
            data = pa.table({"k": keys, "kept": [number] * KEYS})
            self.table.write(data, "upsert")
            self.last[writer] = number

    def scan(self, random: Random) -> None:
        """Each batch is seen whole, never one older than was acknowledged, and the same again at its snapshot."""
        while not self.stop.is_set():
            least, snapshot = list(self.last), Database(self.store).now()
            found = self.rows(ordered=random.random() < 0.5, as_of=snapshot)
            for writer, number in enumerate(least):
                seen = {found.get(key) for key in range(KEYS * writer, KEYS * (writer + 1))}
                assert len(seen) == 1, f"a torn batch of writer {writer}: {seen}"
                assert (seen.pop() or 0) >= number, f"writer {writer} went back"
            assert self.rows(as_of=snapshot) == found

    def maintain(self, random: Random) -> None:
        while not self.stop.is_set():
            self.table.maintain(random.choice(["flush", "flush", "flush_deltas", "compact", "major_compact"]))
            self.stop.wait(0.01)

    def alter(self) -> None:
        """Add, widen, fill, rename and drop, over and over."""
        for number in range(ROUNDS):
            self.table.alter().add_column(f"c{number}", "int8", read_default=number).drop_column("extra").apply()
            self.table.alter().widen_column(f"c{number}", "int32").rename_column(f"c{number}", "extra").apply()
            self.table.write([{"k": 1000 + number, "extra": 1000}], "upsert")
            assert self.table.get(1000 + number) == {"k": 1000 + number, "kept": None, "extra": 1000}
            assert self.table.scan(["extra"], where="k = 0").to_arrow().to_pylist() in (
                [],
                [{"extra": number}],
                [{"extra": None}],
            )

    def rows(self, **spec: Any) -> dict[int, int]:
        found = self.table.scan(["k", "kept"], where="k < 1000", **spec).to_arrow()
        return dict(zip(found["k"].to_pylist(), found["kept"].to_pylist(), strict=True))

    def run(self, *others: Callable[[], None]) -> None:
        def guarded(work: Callable[[], None]) -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)
                self.stop.set()

        threads = [threading.Thread(target=guarded, args=(work,)) for work in others]
        for thread in threads:
            thread.start()
        guarded(self.alter)
        self.stop.set()
        for thread in threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]


def test_writers_and_scanners_go_on_while_a_table_is_altered() -> None:
    race = Race()
    writers = [lambda writer=writer: race.write(writer) for writer in range(3)]
    race.run(*writers, lambda: race.scan(Random(1)), lambda: race.scan(Random(2)), lambda: race.maintain(Random(3)))
    expected = {
        key: number for writer, number in enumerate(race.last) for key in range(KEYS * writer, KEYS * (writer + 1))
    }
    assert race.rows() == expected
    race.store.close()
    with Store.open(race.fs, OPTIONS) as store:
        race.store, race.table = store, Database(store).table("t")
        assert race.rows() == expected
        assert race.table.describe()["schema_version"] == 1 + 2 * ROUNDS


def small_table(fs: MemoryFileSystem) -> Store:
    """A table with a row on disk, one in memory, and a delta of each."""
    store = Store.open(fs, OPTIONS)
    table = Database(store).create_table(
        "t", pa.schema([("k", pa.int64()), ("v", pa.int8()), ("s", pa.string())]), ["k"]
    )
    table.insert([{"k": 1, "v": 1, "s": "a"}])
    table.maintain("flush")
    table.insert([{"k": 2, "v": 2, "s": "b"}])
    table.update([{"k": 1, "s": "x"}, {"k": 2, "s": "y"}])
    return store


def altered(store: Store) -> None:
    table = Database(store).table("t")
    table.alter().drop_column("s").add_column("n", "int32", read_default=7).widen_column("v", "int64").apply()
    table.upsert([{"k": 2, "v": 1 << 40, "n": 0}])


OLD = [{"k": 1, "v": 1, "s": "x"}, {"k": 2, "v": 2, "s": "y"}]
NEW = [{"k": 1, "v": 1, "n": 7}, {"k": 2, "v": 2, "n": 7}]
WRITTEN = [NEW[0], {"k": 2, "v": 1 << 40, "n": 0}]


def test_a_crash_leaves_the_old_table_or_the_new_one() -> None:
    fs = MemoryFileSystem()
    store = small_table(fs)
    first = fs.operations
    altered(store)
    calls = fs.operations - first
    store.close()
    seen = []
    for call in range(calls):
        fs = MemoryFileSystem()
        store = small_table(fs)
        fs.crash_at = fs.operations + call
        with pytest.raises((PowerFailure, StoreError)):
            altered(store)
        image = fs.crash_image(Random(call))
        with Store.open(image, OPTIONS) as again:
            rows = Database(again).table("t").scan(ordered=True).to_arrow().to_pylist()
            assert rows in (OLD, NEW, WRITTEN)
            seen.append(rows)
            if rows == OLD:
                altered(again)
            assert Database(again).table("t").scan(ordered=True).to_arrow().to_pylist() in (NEW, WRITTEN)
    assert seen[0] == OLD and seen[-1] in (NEW, WRITTEN) and NEW in seen


def test_a_full_disk_leaves_the_old_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with small_table(fs) as store:
        table = Database(store).table("t")
        before, slot = table.describe(), tablet_of(store).free_slot()

        def full(self: Any, edit: Any) -> None:
            raise StorageFullError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(ManifestFile, "commit", full)
            with pytest.raises(StorageFullError):
                altered(store)
        assert table.describe() == before and tablet_of(store).free_slot() == slot
        assert table.scan(ordered=True).to_arrow().to_pylist() == OLD
        altered(store)
        assert Database(store).table("t").scan(ordered=True).to_arrow().to_pylist() == WRITTEN


def test_a_change_that_was_committed_and_not_put_in_place_halts_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    store = small_table(fs)
    monkeypatch.setattr(type(tablet_of(store)), "set_aside", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        altered(store)
    monkeypatch.undo()
    with pytest.raises(UnavailableError, match="altered table"):
        Database(store).table("t").upsert([{"k": 3}])
    store.close()
    with Store.open(fs, OPTIONS) as again:
        assert Database(again).table("t").scan(ordered=True).to_arrow().to_pylist() == NEW


def test_batches_logged_under_earlier_schemas_are_replayed() -> None:
    fs = MemoryFileSystem()
    store = small_table(fs)
    table = Database(store).table("t")
    table.alter().add_column("n", "int8", read_default=1).apply()
    table.update([{"k": 1, "n": 5}])
    table.alter().drop_column("n").drop_column("s").add_column("s", "string").apply()
    table.upsert([{"k": 3, "v": 3, "s": "new"}])
    table.alter().widen_column("v", "int64").apply()
    image = fs.crash_image(Random(0))
    store.close()
    with Store.open(image, OPTIONS) as again:
        rows = Database(again).table("t").scan(ordered=True).to_arrow()
        assert rows.to_pylist() == [
            {"k": 1, "v": 1, "s": None},
            {"k": 2, "v": 2, "s": None},
            {"k": 3, "v": 3, "s": "new"},
        ]
        assert rows.schema.field("v").type == pa.int64()


def test_a_key_that_came_back_in_a_merge_is_not_lost_to_rows_that_were_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an alteration sets aside in the merge is newer in the log: once it is flushed alone, the key must not be
    taken for flushed too."""
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock, table_options={"history_max_age_seconds": 10})
    subject.upsert(1, 2)
    subject.flush()
    subject.delete(1)
    subject.flush_deltas()
    clock.advance(20_000_000)

    def meanwhile() -> None:
        subject.upsert(1, v=3)
        subject.upsert(5)
        table = Database(subject.store).table("t")
        table.alter().add_column("n", "int32").apply()
        table.alter().drop_column("n").apply()

    at(monkeypatch, (merging, "install_outputs"), True, meanwhile)
    subject.store.maintain("t", "compact")
    assert len(subject.tablet.version.frozen) == 2
    flush_memrowset(subject.tablet, subject.environment)
    subject.history = [(subject.store.now(), subject.state)]
    subject.crash(Random(0))
    subject.close()


def test_the_bytes_of_dropped_columns_come_back_when_they_are_worth_it() -> None:
    random = Random(0)
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("small", pa.int8()), ("large", pa.binary())])
        table = Database(store).create_table("t", schema, ["k"])
        rows = [{"k": key, "v": key, "small": 0, "large": random.randbytes(100)} for key in range(5000)]
        table.insert(rows)
        table.maintain("flush")
        table.update([{"k": 1, "large": b"updated"}])
        table.maintain("flush_deltas")
        while store.run_maintenance_once():
            pass
        before = table.stats()
        table.alter().drop_column("small").apply()
        assert 0 < table.stats()["tablets"][0]["dropped_bytes"] < before["bytes_on_disk"] / 100
        assert store.run_maintenance_once() is None, "hardly anything is to be gained"
        table.alter().drop_column("large").apply()
        assert table.stats()["tablets"][0]["dropped_bytes"] > 500_000
        assert "compact" in (store.run_maintenance_once() or "")
        after = table.stats()
        assert after["tablets"][0]["dropped_bytes"] == 0
        assert after["bytes_on_disk"] < before["bytes_on_disk"] - 500_000
        assert store.run_maintenance_once() is None
        assert table.scan(ordered=True).to_arrow().to_pylist() == [{"k": row["k"], "v": row["v"]} for row in rows]


def tablet_of(store: Store) -> Any:
    (tablet,) = store._catalog.table("t").tablets
    return tablet


def test_a_store_whose_column_was_widened_out_of_its_encoding_is_opened_and_flushes() -> None:
    """Earlier versions kept the encoding in the manifest, and no flush succeeded from then on."""
    fs = MemoryFileSystem()
    schema = pa.schema([("k", pa.int64()), ("d", pa.decimal128(30, 2))])
    rows = [{"k": 1, "d": Decimal("1e20")}]
    with Store.open(fs, OPTIONS) as store:
        Database(store).create_table("t", schema, ["k"]).insert(rows)

        def widened(manifest: Manifest) -> Manifest:
            (table,) = manifest.tables
            key, column = table.schema_.columns
            old = column.model_copy(update={"encoding": "frame_of_reference"})
            kept = table.schema_.model_copy(update={"columns": (key, old)})
            return manifest.model_copy(update={"tables": (table.model_copy(update={"schema_": kept}),)})

        store._environment.manifest.commit(widened)
    with Store.open(fs, OPTIONS) as store:
        table = Database(store).table("t")
        assert table.describe()["columns"][1]["encoding"] == "bitshuffle"
        table.maintain("flush")
        assert table.scan().to_arrow().to_pylist() == rows
    assert verify_store(fs).is_sound


def test_other_tables_are_made_while_a_ttl_waits() -> None:
    """It waits for the table's compactions. The table itself can be dropped meanwhile."""
    schema = pa.schema([pa.field("k", pa.int64(), False), ("at", pa.timestamp("us", "UTC"))])
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        database = Database(store)
        tables = {name: database.create_table(name, schema, ["k"]) for name in ("kept", "dropped")}
        found: dict[str, BaseException | None] = {}

        def alter(name: str) -> None:
            try:
                tables[name].alter().set_option("ttl", "at + 60s").apply()
                found[name] = None
            except StoreError as error:
                found[name] = error

        work = [threading.Thread(target=alter, args=(name,)) for name in tables]
        tablets = [tablet for name in tables for tablet in store._catalog.table(name).tablets]
        for tablet in tablets:
            tablet.maintenance_lock.acquire()
        for thread in work:
            thread.start()
            thread.join(0.3)
        making = threading.Thread(target=database.create_table, args=("other", schema, ["k"]))
        dropping = threading.Thread(target=database.drop_table, args=("dropped",))
        try:
            making.start()
            making.join(10)
            assert not making.is_alive() and not found
            dropping.start()
            while "dropped" in store.tables():
                dropping.join(0.01)
        finally:
            for tablet in tablets:
                tablet.maintenance_lock.release()
        for thread in (*work, making, dropping):
            thread.join(60)
        assert found["kept"] is None and isinstance(found["dropped"], NotFoundError)
        assert store.tables() == ["kept", "other"]
        assert store._catalog.table("kept").version.schema.ttl is not None
