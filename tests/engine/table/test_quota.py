"""Quotas: what a table may hold, by every way of writing, after a restart, and beside others who write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.store import Store
from nyala.engine.table.quota import Quota
from nyala.schemas.errors import InvalidArgumentError, StorageFullError
from tests.engine.offload.bulk.importing import bring, rows_of
from tests.engine.subject import Subject

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])
MIB = 1 << 20
HELD = 100


def rows(*keys: int, v: bytes = b"new") -> list[dict[str, Any]]:
    return [{"k": key, "v": v} for key in keys]


def batch(first: int, count: int, v: bytes = b"new") -> pa.Table:
    return pa.table([range(first, first + count), [v] * count], schema=SCHEMA)


def noise(first: int, count: int, size: int = 4_000) -> pa.Table:
    """Rows that nothing compresses."""
    random = Random(first)
    return pa.table([range(first, first + count), [random.randbytes(size) for _ in range(count)]], schema=SCHEMA)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    options: Any = {"direct_load_bytes": 1 << 16, "direct_load_unsorted_bytes": 1 << 17}
    with nyala.open(tmp_path / "store", maintenance="off", **options) as database:
        yield database


@pytest.fixture
def table(database: Database) -> Table:
    """A table that is full by its rows."""
    parts = [nyala.partition.hash("k", buckets=3)]
    table = database.create_table("t", SCHEMA, primary_key=["k"], partition_by=parts, max_rows=HELD)
    table.insert(batch(0, HELD, b"old"))
    return table


ADDS: dict[str, Callable[[Database, Table], object]] = {
    "a row": lambda db, table: table.insert(rows(500)),
    "a batch of a row": lambda db, table: table.upsert(batch(500, 1)),
    "a row that was deleted": lambda db, table: (
        table.delete_ignore([{"k": 7}]),
        table.upsert(rows(7)),
        table.insert(rows(8_000)),
    ),
    "two rows": lambda db, table: table.insert(rows(500, 501)),
    "thirty rows": lambda db, table: table.upsert(rows(*range(500, 530))),
    "rows of which one is new": lambda db, table: table.upsert(rows(1, 2, 500)),
    "rows to ignore and one that is new": lambda db, table: table.insert_ignore(rows(1, 2, 500)),
    "a batch": lambda db, table: table.insert(batch(500, 5_000)),
    "a direct load": lambda db, table: table.insert(batch(500, 5_000, bytes(1_000))),
    "a stream": lambda db, table: table.write(batch(500, 1_000), commit="stream"),
    "a transaction": lambda db, table: inserted(db, batch(500, 3)),
    "a large transaction": lambda db, table: inserted(db, batch(500, 5_000, bytes(1_000))),
    "a truncation with more": lambda db, table: inserted(db, batch(500, HELD + 1), truncated=True),
}
KEEPS: dict[str, Callable[[Database, Table], object]] = {
    "a row": lambda db, table: table.upsert(rows(5)),
    "an update": lambda db, table: table.update(rows(5)),
    "rows": lambda db, table: table.upsert(rows(*range(30))),
    "a batch": lambda db, table: table.update(batch(0, HELD)),
    "rows that are there": lambda db, table: table.insert_ignore(rows(*range(HELD))),
    "a statement": lambda db, table: table.update_where({"v": "'new'"}, "k < 50"),
    "a deletion": lambda db, table: table.delete([{"k": key} for key in range(10)]),
    "a deletion by filter": lambda db, table: table.delete_where("k < 50"),
    "a truncation": lambda db, table: inserted(db, batch(500, HELD), truncated=True),
}


def inserted(db: Database, data: Any, truncated: bool = False) -> None:
    with db.transaction() as work:
        if truncated:
            work.truncate("t")
        work.insert("t", data)


def contents(table: Table) -> list[dict[str, Any]]:
    return table.scan(ordered=True).to_arrow().to_pylist()


@pytest.mark.parametrize("what", ADDS)
def test_a_write_that_adds_rows_to_a_full_table_is_refused(database: Database, table: Table, what: str) -> None:
    keys = {row["k"] for row in contents(table)}
    with pytest.raises(StorageFullError, match=r"table 't' has 100 rows, .* quota of 100 \(max_rows\)"):
        ADDS[what](database, table)
    assert {row["k"] for row in contents(table)} == keys
    table.alter().set_option("max_rows", None).apply()
    ADDS[what](database, table)
    assert len(contents(table)) > HELD


@pytest.mark.parametrize("what", KEEPS)
def test_a_write_that_adds_no_row_is_applied(database: Database, table: Table, what: str) -> None:
    before = contents(table)
    KEEPS[what](database, table)
    assert len(contents(table)) <= HELD
    assert contents(table) != before or what == "rows that are there"


def test_a_statement_that_brings_rows_back_is_refused(database: Database, table: Table) -> None:
    then = database.now()
    table.delete_where("k < 10")
    table.insert(batch(500, 5))
    assert table.restore(then).applied == 15, "ten come back, five go"
    table.alter().set_option("max_rows", 50).apply()
    table.delete_where("k >= 40")
    with pytest.raises(StorageFullError, match="max_rows"):
        table.restore(then)
    assert len(contents(table)) == 40


@pytest.mark.parametrize("mode", ["insert_only", "upsert"])
def test_an_import_is_refused(mode: str) -> None:
    subject = Subject()
    Database(subject.store).table("t").alter().set_option("max_rows", 3).apply()
    bring(subject, rows_of(1, 2), mode)
    with pytest.raises(StorageFullError, match=r"has 2 rows, and with 2 more .* quota of 3"):
        bring(subject, rows_of(3, 4), mode)
    bring(subject, rows_of(3), mode)
    with pytest.raises(StorageFullError):
        bring(subject, rows_of(4), mode)
    if mode == "upsert":
        bring(subject, rows_of(1, 3, v=9), mode)
    subject.check()


def test_room_is_there_as_soon_as_rows_are_gone(table: Table) -> None:
    for key in range(500, 600):
        with pytest.raises(StorageFullError):
            table.insert(rows(key))
        table.delete([{"k": key - 500}])
        table.insert(rows(key))
    assert [row["k"] for row in contents(table)] == list(range(500, 600))


def test_a_table_has_one_quota_from_its_first_moment(tmp_path: Path) -> None:
    """Threads that asked for it first at the same time would each make one."""
    with nyala.open(tmp_path / "store", maintenance="off") as database:
        made = database.create_table("t", SCHEMA, primary_key=["k"], max_rows=HELD)
        known = [quota_of(database)]
        made.alter().set_option("max_rows", HELD + 1).apply()
        known.append(quota_of(database))
    with nyala.open(tmp_path / "store", maintenance="off") as database:
        assert all(isinstance(each, Quota) for each in [*known, quota_of(database)])


def quota_of(database: Database) -> object:
    """Return the table's quota if it was made before anybody asked for it."""
    store = database._store
    assert isinstance(store, Store)
    return vars(store._catalog.table("t").version).get("quota")


def test_a_quota_survives_a_restart_and_counts_what_was_there(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as database:
        table = database.create_table("t", SCHEMA, primary_key=["k"], max_rows=10, max_bytes=64 * MIB)
        table.insert(batch(0, 6))
        table.maintain("flush")
        table.insert(batch(6, 3))
        table.delete([{"k": 0}])
    with nyala.open(tmp_path / "store") as database:
        table = database.table("t")
        assert table.describe()["options"]["max_rows"] == 10
        assert table.describe()["options"]["max_bytes"] == 64 * MIB
        with pytest.raises(StorageFullError, match="has 8 rows, and with 3 more"):
            table.insert(batch(20, 3))
        table.insert(batch(20, 2))
        table.alter().set_option("max_rows", 11).apply()
        table.insert(batch(30, 1))
        table.alter().set_option("max_rows", 5).apply()  # less than it has: nothing is lost, nothing comes in
        with pytest.raises(StorageFullError, match="has 11 rows"):
            table.insert(batch(40, 1))
        assert len(contents(table)) == 11


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_a_quota_is_a_positive_number(database: Database, table: Table, value: Any) -> None:
    for option in ("max_rows", "max_bytes"):
        with pytest.raises(InvalidArgumentError, match=option):
            table.alter().set_option(option, value).apply()
        with pytest.raises(InvalidArgumentError, match=option):
            database.create_table("other", SCHEMA, primary_key=["k"], **{option: value})


def test_a_full_table_leaves_others_alone(database: Database, table: Table) -> None:
    other = database.create_table("other", SCHEMA, primary_key=["k"])
    other.insert(batch(0, 1_000))
    with pytest.raises(StorageFullError), database.transaction() as work:
        work.insert("other", batch(1_000, 1))
        work.insert("t", rows(500))
    assert other.count() == 1_000 and table.count() == HELD


def test_bytes_are_those_on_disk_and_in_memory(database: Database) -> None:
    table = database.create_table("bytes", SCHEMA, primary_key=["k"], max_bytes=4 * MIB)
    written = 0
    with pytest.raises(StorageFullError, match=r"quota of 4,194,304 \(max_bytes\)"):
        for first in range(0, 100_000, 10):
            table.insert(noise(first, 10))
            written += 10
            if written % 100 == 0:
                table.maintain("flush")
    assert 2 * MIB < written * 4_000 < 4 * MIB
    assert table.count() == written, "the refused batch left nothing"
    with pytest.raises(StorageFullError, match="max_bytes"):
        table.update(noise(0, 100))
    with pytest.raises(StorageFullError, match="max_bytes"):
        table.insert(noise(200_000, 2_000))  # a direct load
    table.delete([{"k": key} for key in range(50)])
    assert table.count() == written - 50
    table.alter().set_option("max_bytes", 64 * MIB).apply()
    table.update(noise(50, 10))


def test_small_rows_stop_at_the_quota_of_bytes(database: Database) -> None:
    """Rows one by one take more in memory than as Arrow: the store has to look at what they really take."""
    table = database.create_table("bytes", SCHEMA, primary_key=["k"], max_bytes=MIB // 2)
    with pytest.raises(StorageFullError, match="max_bytes"):
        for key in range(25_000):
            table.insert(rows(key, v=b"x" * 100))
    (tablet,) = database._store._catalog.table("bytes").tablets  # pyright: ignore[reportAttributeAccessIssue]
    assert tablet.size_bytes <= MIB // 2 + MIB // 4


def test_writers_at_once_never_exceed_the_rows(database: Database) -> None:
    parts = [nyala.partition.hash("k", buckets=4)]
    table = database.create_table("crowd", SCHEMA, primary_key=["k"], partition_by=parts, max_rows=2_000)
    barrier = threading.Barrier(4)

    def write(number: int) -> int:
        barrier.wait()
        random, written = Random(number), 0
        for step in range(40):
            size = random.choice((65, 70, 100))
            try:
                written += table.insert(batch(number * 1_000_000 + step * 100, size)).applied
            except StorageFullError:
                continue
        return written

    with ThreadPoolExecutor(4) as pool:
        written = sum(pool.map(write, range(4)))
    assert table.count() == written
    assert 2_000 - 65 < written <= 2_000


def test_single_rows_at_once_exceed_the_rows_by_no_more_than_those_under_way(database: Database) -> None:
    table = database.create_table("crowd", SCHEMA, primary_key=["k"], max_rows=300)
    table.insert(batch(0, 10))

    def write(number: int) -> int:
        written = 0
        for step in range(200):
            try:
                table.upsert(rows(number * 1_000 + step))
                written += 1
            except StorageFullError:
                continue
        return written

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 5)))
    assert 300 <= table.count() <= 304


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "insert_ignore", "upsert", "delete_ignore", "update_ignore", "row", "flush"]),
            st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
        ),
        max_size=25,
    ),
    st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_a_table_takes_exactly_what_its_quota_allows(steps: list[tuple[str, list[int]]], most: int) -> None:
    subject = Subject()
    table = Database(subject.store).create_table("q", SCHEMA, primary_key=["k"], max_rows=most)
    alive: set[int] = set()
    for op, keys in steps:
        if op == "flush":
            table.maintain("flush")
            continue
        new = set(keys) - alive if op in ("insert", "insert_ignore", "upsert", "row") else set[int]()
        fits = not new or len(alive) + (1 if op == "row" else len(new)) <= most
        if op == "row":
            keys, new = keys[:1], new & set(keys[:1])
            fits = not new or len(alive) < most
        data = rows(*keys) if op != "delete_ignore" else [{"k": key} for key in keys]
        try:
            if op == "row":
                table.upsert(data)
            else:
                getattr(table, op)(data, on_error="return")
            assert fits
            alive = alive - set(keys) if op == "delete_ignore" else alive | new
        except StorageFullError:
            assert not fits
        assert {row["k"] for row in contents(table)} == alive
    subject.store.close()


def test_a_count_is_rare(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table far from its quota costs its writers next to nothing."""
    counted = 0
    count = Quota._count

    def counting(self: Quota) -> None:
        nonlocal counted
        counted += 1
        count(self)

    monkeypatch.setattr(Quota, "_count", counting)
    table = database.create_table("far", SCHEMA, primary_key=["k"], max_rows=1_000_000, max_bytes=1 << 30)
    for key in range(2_000):
        table.upsert(rows(key % 500))
    assert counted == 1
