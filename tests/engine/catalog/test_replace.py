"""A table that takes the place of another: readers and writers beside it, what it inherits, and a crash at any call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, StoreError
from tests.doubles.clock import ManualClock

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)
SECOND = 1_000_000
OLD_SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
NEW_SCHEMA = pa.schema([pa.field("id", pa.string(), False), ("v", pa.float64())])
OLD, NEW = [{"k": 1, "v": 1}, {"k": 2, "v": 2}], [{"id": "a", "v": 1.5}]


def two_tables(fs: MemoryFileSystem) -> Store:
    """A store of the table t, with rows on disk and in memory, and of one that shall take its place."""
    store = Store.open(fs, OPTIONS, ManualClock(1_700_000_000 * SECOND))
    db = Database(store)
    old = db.create_table("t", OLD_SCHEMA, ["k"])
    old.insert(OLD[:1])
    old.maintain("flush")
    old.insert(OLD[1:])
    made = db.create_table("made", NEW_SCHEMA, ["id"])
    made.insert(NEW)
    return store


def replaced(store: Store, keep_seconds: int = 0) -> None:
    db = Database(store)
    db.table("made").alter().rename("t", db.table("t").describe()["table_id"], keep_seconds).apply()


def rows(store: Store, name: str = "t") -> list[dict[str, object]]:
    return Database(store).table(name).scan(ordered=True).to_arrow().to_pylist()


@pytest.mark.parametrize("keep_seconds", [0, 100])
def test_the_name_is_that_of_the_new_table_and_the_old_one_goes(keep_seconds: int) -> None:
    fs = MemoryFileSystem()
    store = two_tables(fs)
    before = store.now()
    old, running = Database(store).table("t"), Database(store).table("t").scan()
    first = next(iter(running.to_reader()))
    replaced(store, keep_seconds)
    assert first.num_rows and store.tables() == ["t"] and rows(store) == NEW
    assert old.insert({"id": ["b"], "v": [2.0]}).rows == 1
    image = fs.crash_image(Random(0))
    store.close()
    with Store.open(image, OPTIONS, ManualClock(1_700_000_001 * SECOND)) as store:
        assert store.tables() == ["t"] and len(rows(store)) == 2
        assert [table.name for table in store.dropped_tables()] == ["t"] * bool(keep_seconds)
        if keep_seconds:
            store.recall_table("t", "old")
            assert rows(store, "old") == OLD
            assert Database(store).table("old").scan(ordered=True, as_of=before).to_arrow().to_pylist() == OLD
    assert verify_store(image).is_sound


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda db: db.table("made").alter().rename("t", 999), ConflictError),
        (lambda db: db.table("made").alter().rename("new", db.table("t").describe()["table_id"]), ConflictError),
        (lambda db: db.table("t").alter().rename("t", db.table("t").describe()["table_id"]), ConflictError),
        (lambda db: db.table("made").alter().rename("t"), AlreadyPresentError),
        (lambda db: db.table("made").alter().rename("new", keep_seconds=5), InvalidArgumentError),
        (
            lambda db: db.table("made").alter().rename("t", db.table("t").describe()["table_id"], -1),
            InvalidArgumentError,
        ),
    ],
)
def test_only_the_table_that_was_named_is_replaced(ask: Callable[[Database], object], error: type[StoreError]) -> None:
    with two_tables(MemoryFileSystem()) as store:
        with pytest.raises(error):
            ask(Database(store)).apply()  # type: ignore[attr-defined]
        assert rows(store) == OLD and rows(store, "made") == NEW


def test_grants_go_over_by_the_names_of_columns() -> None:
    with two_tables(MemoryFileSystem()) as store:
        db = Database(store)
        db.grant(["read", "insert"], on="t", to="all")
        db.grant("read", on="t", to="some", columns=["k", "v"])
        db.grant("update", on="t", to="none", columns=["k"])
        db.grant("admin", on="made", to="maker")
        replaced(store)
        found = {(grant.user, grant.privilege.value, tuple(grant.columns or ())) for grant in db.grants()}
        assert found == {("all", "read", ()), ("all", "insert", ()), ("some", "read", ("v",))}


def test_staged_rows_for_the_old_table_are_refused() -> None:
    with two_tables(MemoryFileSystem()) as store:
        transaction = Database(store).transaction()
        transaction.upsert("t", {"k": [3], "v": [3]})
        replaced(store)
        with pytest.raises(StoreError):
            transaction.commit()
        assert rows(store) == NEW


def test_a_reader_finds_one_of_the_two() -> None:
    with two_tables(MemoryFileSystem()) as store:
        db, found, ended = Database(store), [], threading.Event()

        def look() -> None:
            while not ended.is_set():
                found.append(db.table("t").scan(ordered=True).to_arrow().to_pylist())

        reader = threading.Thread(target=look)
        reader.start()
        for number in range(20):
            if number:
                schema, key, new = (OLD_SCHEMA, "k", OLD) if number % 2 else (NEW_SCHEMA, "id", NEW)
                db.create_table("made", schema, [key]).insert(new)
            replaced(store)
        ended.set()
        reader.join()
        assert found and all(each in (OLD, NEW) for each in found)


@pytest.mark.parametrize("keep_seconds", [0, 100])
def test_after_a_crash_at_any_call_one_of_them_has_the_name(keep_seconds: int) -> None:
    fs = MemoryFileSystem()
    store = two_tables(fs)
    begun = fs.operations
    replaced(store, keep_seconds)
    calls = fs.operations - begun
    store.close()
    seen = []
    for call in range(calls):
        fs = MemoryFileSystem()
        store = two_tables(fs)
        fs.crash_at = fs.operations + call
        with pytest.raises((PowerFailure, StoreError)):
            replaced(store, keep_seconds)
        image = fs.crash_image(Random(call))
        with Store.open(image, OPTIONS, ManualClock(1_700_000_001 * SECOND)) as again:
            seen.append(rows(again))
            assert again.tables() == (["made", "t"] if seen[-1] == OLD else ["t"])
        assert verify_store(image).is_sound
    assert seen[0] == OLD and all(each in (OLD, NEW) for each in seen)
    assert NEW in seen or keep_seconds  # then nothing comes after the commit
