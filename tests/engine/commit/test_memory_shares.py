"""The page cache has the memory that the other parts of a store leave, and gives it back when they need it."""

from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.vectors.memory.reused import release_all
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import Operation, WriteCommand
from nyala.schemas.table.table import TableDefinition

MIB = 1 << 20
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])


def rows(first: int, count: int) -> pa.RecordBatch:
    random = Random(first)
    values = [random.randbytes(1024) for _ in range(count)]
    return pa.record_batch({"k": pa.array(range(first, first + count)), "v": values}, schema=SCHEMA)


@pytest.fixture
def store() -> Iterator[Store]:
    options = StoreOptions(maintenance="off", budget_bytes=64 * MIB, memory_soft_share=0.9, direct_load_bytes=1 << 40)
    release_all()  # memory that other tests left for their next use counts too
    with Store.open(MemoryFileSystem(), options) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        yield store


def limit(store: Store, kind: str) -> float:
    (family,) = [each for each in store.metrics().families if each.name == "nyala_memory_limit_bytes"]
    (value,) = [each.value for each in family.samples if each.labels["kind"] == kind]
    return value


def read_all(store: Store) -> int:
    return sum(batch.num_rows for batch in store.scan(ScanSpec(table="t")).batches)


def test_pages_make_room_for_rows_and_come_back(store: Store) -> None:
    for first in range(0, 48_000, 8000):
        store.write(WriteCommand(table="t", op=Operation.INSERT), rows(first, 8000))
        store.maintain("t", "flush")
    pages = store._environment.page_cache
    assert read_all(store) == read_all(store) == 48_000
    before = pages.size_bytes
    assert limit(store, "all") == 64 * MIB and before > 25 * MIB
    for first in range(48_000, 72_000, 2000):
        store.write(WriteCommand(table="t", op=Operation.INSERT), rows(first, 2000))
    used = store._gate.state().stores_bytes
    assert used > 20 * MIB
    assert limit(store, "page_cache") < 64 * MIB - used
    assert pages.size_bytes < before and pages.size_bytes <= pages.capacity_bytes
    store.maintain("t", "flush")
    store.run_maintenance_once()
    assert limit(store, "page_cache") > 40 * MIB
    assert read_all(store) == 72_000


def test_a_cache_with_an_option_of_its_own_stays_as_it_is() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(page_cache_bytes=3 * MIB, budget_bytes=64 * MIB)) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        store.write(WriteCommand(table="t", op=Operation.INSERT), rows(0, 1000))
        store.maintain("t", "flush")
        assert read_all(store) == 1000 and limit(store, "page_cache") == 3 * MIB
