"""What a store keeps of requests, to answer the next ones faster, does not grow with their size."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.filter.compiled import FilterCache
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.vectors.keys.keys import KeyEncoder
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.table.table import TableDefinition, TableSchema

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
NAMES, REQUESTS = 10_000, 10
KEPT_MAX = 1 << 20
"""Much less than the names of all requests, which are some 7 MB."""


@pytest.fixture
def db() -> Iterator[Database]:
    with Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))) as db:
        db.create_table("t", SCHEMA, ["k"]).insert({"k": [1], "v": [1]})
        yield db


def kept(request_number: int) -> list[str]:
    return [f"column {n} of {request_number}, which the table lacks" for n in range(NAMES)]


@pytest.mark.parametrize("where", ["k = 1", "v = 1"])
def test_a_scan_of_columns_that_are_not_there_leaves_nothing(db: Database, where: str) -> None:
    def scan(number: int, columns: list[str]) -> None:
        with pytest.raises(InvalidArgumentError):
            db._store.scan(ScanSpec(table="t", where=where, columns=columns)).to_table()

    scan(-1, ["w"])
    tracemalloc.start()
    for number in range(REQUESTS):
        scan(number, kept(number))
        scan(number, ["v"] * NAMES)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < KEPT_MAX


@pytest.mark.parametrize("terms", [8, 80, 300])
def test_merges_with_many_different_rules_leave_little(db: Database, terms: int) -> None:
    def merge(number: int) -> None:
        rule = " + ".join(["v", *("excluded.v" if number >> bit & 1 else "k" for bit in range(terms))])
        db.table("t").merge({"k": [1], "v": [0]}, rules={"v": rule})

    merge(0)
    gc.collect()
    tracemalloc.start()
    for number in range(1, 128):
        merge(number)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < KEPT_MAX


@pytest.mark.parametrize("rows", [1, 2])
def test_a_write_of_columns_that_are_not_there_leaves_nothing(db: Database, rows: int) -> None:
    table = db.table("t")

    def write(names: list[str]) -> None:
        with pytest.raises(InvalidArgumentError):
            table.upsert([{"k": number, **dict.fromkeys(names, 1)} for number in range(rows)])

    write(["w"])
    tracemalloc.start()
    for number in range(REQUESTS):
        write(kept(number))
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < KEPT_MAX


def test_a_plan_keeps_nothing_of_a_filter(db: Database) -> None:
    where = f"v IN ({', '.join(map(str, range(10_000)))})"
    before = sys.getrefcount(where)
    spec = ScanSpec(table="t", where=where, pin=True)
    plan = db._store.plan(spec)
    assert plan.lease
    del spec
    gc.collect()
    assert sys.getrefcount(where) == before


def test_a_short_filter_of_many_keys_is_not_kept() -> None:
    names = [*"abcde"]
    arrow = pa.schema([pa.field(name, pa.int64(), False) for name in names])
    schema = TableSchema.create(TableDefinition.from_arrow("t", arrow, names), Limits())
    filters = FilterCache(Limits())
    where = " AND ".join(f"{name} IN ({', '.join(map(str, range(8)))})" for name in names)
    encoder = KeyEncoder([PhysicalType.INT64] * len(names))
    first, second = (filters.compiled(where, schema, encoder) for _ in range(2))
    assert first.points is not None and len(first.points) == 8**5
    assert first is not second
