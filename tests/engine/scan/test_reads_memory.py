"""One budget for the rows that are sorted, for groups, and for what scans read ahead."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import MIB, StoreOptions
from nyala.engine.scan.plan import by_chunks
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.protocol import sorting
from nyala.schemas.protocol.request import Request, serving
from nyala.schemas.rows.order import OrderTerm
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

ROWS = 100_000
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("g", pa.int64()), ("s", pa.string())])
SORT = ScanSpec(table="t", order_by=[OrderTerm(column="g")])
TOP = ScanSpec(table="t", order_by=[OrderTerm(column="g")], limit=ROWS // 2)
GROUPS = ScanSpec(table="t", aggregate={"most": ("s", "max")}, group_by=["g"])
BYTES = ROWS * (8 + 8 + 4 + 32)
"""Of all rows."""


@pytest.fixture(scope="module")
def fs() -> MemoryFileSystem:
    found = MemoryFileSystem()
    random = np.random.default_rng(0)
    cells = pa.array([random.bytes(16).hex() for _ in range(ROWS)])
    batch = pa.record_batch([pa.array(range(ROWS)), pa.array(random.permutation(ROWS)), cells], schema=SCHEMA)
    with Store.open(found, StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        store.write(WriteCommand(table="t"), batch)
        store.maintain("t", "flush")
    return found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "BUDGET_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(by_chunks, "BUDGET_WAIT_SECONDS", 0.0)


def opened(fs: MemoryFileSystem, reads_bytes: int, **options: Any) -> Store:
    return Store.open(fs, StoreOptions(maintenance="off", reads_bytes=reads_bytes, **options))


def begun(store: Store, spec: ScanSpec, user: str = "") -> Iterator[pa.RecordBatch]:
    """Start a scan for a user, and take its first batch."""
    with serving(Request("", lambda: None, user=user)):
        batches = store.scan(spec).batches
        next(batches)
    return batches


def read(store: Store, spec: ScanSpec, user: str = "") -> int:
    with serving(Request("", lambda: None, user=user)):
        return sum(batch.num_rows for batch in store.scan(spec).batches)


def taken(store: Store) -> int:
    gc.collect()
    return store._reads.memory._taken.total()


@pytest.mark.parametrize("spec", [SORT, TOP, GROUPS], ids=["sort", "top", "groups"])
def test_what_an_unread_scan_holds_is_not_there_for_another(fs: MemoryFileSystem, spec: ScanSpec) -> None:
    with opened(fs, 5 * BYTES) as store:
        held: list[Any] = []
        with pytest.raises(UnavailableError, match="rows to sort, groups and scans use") as caught:
            for _ in range(20):
                held.append(begun(store, spec))
        assert held and caught.value.retry_after_seconds
        rows = ROWS // 2 if spec is TOP else ROWS
        held.pop(0).close()
        for each in held:
            each.close()
        assert taken(store) == 0
        assert read(store, spec) == rows
        assert taken(store) == 0


@pytest.mark.parametrize("spec", [SORT, GROUPS], ids=["sort", "groups"])
def test_a_user_leaves_memory_for_another(fs: MemoryFileSystem, spec: ScanSpec) -> None:
    with opened(fs, 12 * BYTES) as store:
        held: list[Any] = []
        with pytest.raises(UnavailableError, match="by the user 'greedy'"):
            for _ in range(20):
                held.append(begun(store, spec, "greedy"))
        assert read(store, spec, "modest") == ROWS
        del held[:]
        assert read(store, spec, "greedy") == ROWS
        assert taken(store) == 0


@pytest.mark.parametrize("spec", [SORT, TOP, GROUPS], ids=["sort", "top", "groups"])
def test_what_never_fits_is_invalid(fs: MemoryFileSystem, spec: ScanSpec) -> None:
    with opened(fs, BYTES) as store:
        with pytest.raises(InvalidArgumentError, match="fewer columns"):
            read(store, spec)
        assert taken(store) == 0
        assert read(store, ScanSpec(table="t")) == ROWS


@pytest.fixture(scope="module")
def wide() -> MemoryFileSystem:
    """Two tables of rows of 30,000 bytes, of which those of ``two`` are in three rowsets that overlap."""
    found = MemoryFileSystem()
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
    random = np.random.default_rng(0)
    with Store.open(found, StoreOptions(maintenance="off")) as store:
        for name, sets in (("one", 1), ("two", 3)):
            store.create_table(TableDefinition.from_arrow(name, schema, ["k"]))
            for i in range(sets):
                cells = pa.array([random.bytes(15_000).hex() for _ in range(600)])
                store.write(WriteCommand(table=name), pa.record_batch([pa.array(range(i, 1800, 3)), cells], schema))
                if i < 2:
                    store.maintain(name, "flush")
    return found


@pytest.mark.parametrize(
    "spec",
    [
        ScanSpec(table="one"),
        ScanSpec(table="one", where="s >= ''"),
        ScanSpec(table="one", ordered=True),
        ScanSpec(table="two", ordered=True),
        ScanSpec(table="two", marks=True),
    ],
    ids=["rows", "filtered", "in order", "merged", "marked"],
)
def test_rows_that_wait_for_their_readers_are_bounded(wide: MemoryFileSystem, spec: ScanSpec) -> None:
    with opened(wide, 64 * MIB) as store:
        held: list[Any] = []
        sizes: list[int] = []
        with serving(Request("", lambda: None, user="greedy")), pytest.raises(UnavailableError, match="'greedy'"):
            for _ in range(100):
                batches = store.scan(spec).batches
                sizes.append(next(batches).nbytes)
                held.append(batches)
        assert len(held) >= 2
        assert sum(sizes) <= 64 * MIB
        assert read(store, spec, "modest") >= 600
        held.clear()
        assert read(store, spec, "greedy") >= 600
        assert taken(store) == 0


def test_scans_read_ahead_only_while_half_of_the_memory_is_free(fs: MemoryFileSystem) -> None:
    with opened(fs, 64 * MIB, scan_threads=4, scan_batch_bytes=MIB) as store:
        assert store._pool.ahead > 0
        held = [begun(store, ScanSpec(table="t")) for _ in range(32)]
        in_hand = len(held) * MIB
        assert in_hand < taken(store) <= in_hand + 32 * MIB
        assert read(store, ScanSpec(table="t")) == ROWS
        assert sum(batch.num_rows for batch in held[-1]) < ROWS
        held.clear()
        assert taken(store) == 0
