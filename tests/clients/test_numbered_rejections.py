"""Ids that a rejected write brought along are not used up, and those that an applied one brought are never assigned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table import table as table_module
from nyala.engine.transaction import plan as plan_module
from nyala.schemas.errors import StoreError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ID = "auto_incrementing_id"
LAST = (1 << 63) - 1
OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)
ALL_LOADED = OPTIONS.model_copy(update={"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1})


class Numbered:
    """A table of one range, [0, 100), with the row (1, 1, "first")."""

    def __init__(self, options: StoreOptions) -> None:
        self.fs = MemoryFileSystem()
        self.options = options
        self.store = Store.open(self.fs, options)
        self.db.create_table(
            "t", SCHEMA, ["k"], unique_key=False, partition_by=[nyala.range("k", bounds=[((0,), (100,))])]
        )
        self.table.insert([{"k": 1, "v": "first"}])

    @property
    def db(self) -> Database:
        return Database(self.store)

    @property
    def table(self) -> Table:
        return self.db.table("t")

    def rows(self) -> list[tuple]:
        return [tuple(row.values()) for row in self.table.scan(ordered=True).to_arrow().to_pylist()]

    def crash(self) -> None:
        image = self.fs.crash_image(Random(0))
        self.store.close()
        self.fs = image
        self.store = Store.open(self.fs, self.options)


@pytest.fixture(params=[OPTIONS, ALL_LOADED], ids=["in memory", "loaded"])
def numbered(request: pytest.FixtureRequest) -> Iterator[Numbered]:
    opened = Numbered(request.param)
    yield opened
    opened.store.close()


def upsert(table: Table, rows: list[dict[str, Any]], **words: Any) -> None:
    data = pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), (ID, pa.int64()), ("v", pa.string())]))
    table.write(data, "upsert", **words)


def row(k: int, number: int, v: str = "") -> dict[str, Any]:
    return {"k": k, ID: number, "v": v}


def beyond_a_quota(it: Numbered) -> None:
    it.table.alter().set_option("max_rows", 1).apply()
    try:
        upsert(it.table, [row(2, LAST)])
    finally:
        it.table.alter().set_option("max_rows", None).apply()


def outside_all_ranges(it: Numbered) -> None:
    upsert(it.table, [row(100, LAST)])


def atomic_with_a_wrong_row(it: Numbered) -> None:
    upsert(it.table, [row(2, LAST), row(3, 0)], atomic=True)


def atomic_and_numbered(it: Numbered) -> None:
    upsert(it.table, [row(2, LAST), row(3, 0)], atomic=True, writer="w", seq=1)


def atomic_with_a_conflict(it: Numbered) -> None:
    before = it.db.now()
    upsert(it.table, [row(1, 1, "first")])
    upsert(it.table, [row(1, 1), row(2, LAST)], atomic=True, if_timestamp=before)


def with_a_long_cell(it: Numbered) -> None:
    upsert(it.table, [row(2, LAST, "x" * 65_537)])


def by_a_transaction_with_a_wrong_row(it: Numbered) -> None:
    with it.db.transaction() as transaction:
        transaction.upsert("t", [row(2, LAST)])
        transaction.insert("t", [{"k": 3}])
        transaction.upsert("t", [row(100, 5)])


def by_a_transaction_beyond_a_quota(it: Numbered) -> None:
    it.table.alter().set_option("max_rows", 2).apply()
    try:
        with it.db.transaction() as transaction:
            transaction.upsert("t", [row(2, LAST)])
            transaction.insert("t", [{"k": 3}, {"k": 4}])
    finally:
        it.table.alter().set_option("max_rows", None).apply()


REJECTIONS: list[Callable[[Numbered], None]] = [
    beyond_a_quota,
    outside_all_ranges,
    atomic_with_a_wrong_row,
    atomic_and_numbered,
    atomic_with_a_conflict,
    with_a_long_cell,
    by_a_transaction_with_a_wrong_row,
    by_a_transaction_beyond_a_quota,
]


@pytest.mark.parametrize("rejected", REJECTIONS, ids=lambda each: each.__name__)
def test_a_rejected_write_uses_up_no_ids(numbered: Numbered, rejected: Callable[[Numbered], None]) -> None:
    for _ in range(2):
        with pytest.raises((StoreError, nyala.RowErrors)):
            rejected(numbered)
        numbered.table.insert([{"k": 7, "v": "next"}])
        numbered.crash()
    ids = [number for k, number, _ in numbered.rows() if k == 7]
    assert len(ids) == 2 and ids[0] < ids[1] < 10


def test_ids_of_the_rows_that_were_applied_are_passed_over(numbered: Numbered) -> None:
    upsert(numbered.table, [row(2, 50), row(3, 0), row(100, 70)], on_error="return")
    numbered.table.insert([{"k": 2, "v": "next"}])
    assert numbered.rows() == [(1, 1, "first"), (2, 50, ""), (2, 51, "next")]
    upsert(numbered.table, [row(2, 60)])
    numbered.crash()
    numbered.table.insert([{"k": 2, "v": "again"}])
    assert [number for k, number, _ in numbered.rows() if k == 2] == [50, 51, 60, 61]


@pytest.mark.parametrize(
    ("brought", "count", "given"),
    [
        ([2, 3, 4], 2, [5, 6]),
        ([3, 6], 2, [4, 5]),
        ([3, 6], 3, [7, 8, 9]),
        ([LAST], 2, [2, 3]),
        ([LAST - 1, 2], 1, [3]),
        ([1], 1, [2]),
    ],
)
def test_a_transaction_gives_no_id_that_it_brings(
    numbered: Numbered, brought: list[int], count: int, given: list[int]
) -> None:
    with numbered.db.transaction() as transaction:
        transaction.insert("t", [{"k": 1, "v": "new"}] * count)
        for number in brought:
            transaction.upsert("t", [row(1, number, "brought")])
    assert [number for _, number, v in numbered.rows() if v == "new"] == given
    assert [number for _, number, v in numbered.rows() if v == "brought"] == sorted(brought)
    if LAST not in brought:
        numbered.table.insert([{"k": 1, "v": "next"}])
        assert [number for _, number, v in numbered.rows() if v == "next"] == [max(*brought, *given) + 1]


def insert(it: Numbered, way: str) -> None:
    """Insert the row (7, "new")."""
    new = pa.record_batch({"k": pa.array([7], pa.int64()), "v": ["new"]})
    if way == "a transaction":
        with it.db.transaction() as transaction:
            transaction.insert("t", new)
    else:
        it.table.write(new, "insert_ignore", atomic=True)


@pytest.mark.parametrize("way", ["one write", "a transaction"])
def test_an_insert_gives_way_to_ids_that_came_while_it_was_checked(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It has its numbers by then, and would be taken for a row that is there."""
    module, name = (table_module, "route") if way == "one write" else (plan_module, "routed")
    whole, calls = getattr(module, name), []

    def route(*args: Any, **more: Any) -> Any:
        result = whole(*args, **more)
        calls.append(args)
        if len(calls) == 1:
            with monkeypatch.context() as patched:
                patched.setattr(module, name, whole)
                upsert(numbered.table, [row(7, 2, "brought"), row(7, 30, "brought")], if_timestamp=numbered.db.now())
        return result

    monkeypatch.setattr(module, name, route)
    insert(numbered, way)
    assert numbered.rows() == [(1, 1, "first"), (7, 2, "brought"), (7, 30, "brought"), (7, 31, "new")]
    assert len(calls) == 2
