"""Scans that the garbage collector ends: on any thread, also on one that holds a lock of scans."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.read import pool
from nyala.engine.store import Store
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)])


@pytest.fixture
def store() -> Iterator[Store]:
    options = StoreOptions(maintenance="off", scan_threads=4, scan_batch_bytes=8192)
    with Store.open(MemoryFileSystem(), options) as opened:
        opened.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
        opened.write(WriteCommand(table="t"), pa.record_batch([pa.array(range(100_000))], SCHEMA))
        opened.maintain("t", "flush")
        yield opened


def look_ups(store: Store) -> Generator[None]:
    """Keep the history of the table, as look-ups of many keys do."""
    ways = store._reads.ways
    with ways._snapshots.holding(ways._table("t"), store.now()):
        yield


def locks(store: Store) -> dict[str, AbstractContextManager[object]]:
    ways = store._reads.ways
    return {
        "pieces": pool._HELPERS.lock,
        "counts": store._reads.counts._lock,
        "history": ways._snapshots._lock,
        "memory": store._reads.memory._changed,
    }


@pytest.mark.parametrize("name", ["pieces", "counts", "history", "memory"])
def test_a_scan_ends_on_a_thread_that_holds_a_lock(store: Store, name: str) -> None:
    rows = store.scan(ScanSpec(table="t")).batches
    next(rows)
    pieces = look_ups(store)
    next(pieces)
    ended = threading.Event()

    def end() -> None:
        with locks(store)[name]:
            rows.close()  # type: ignore[attr-defined]
            pieces.close()
        ended.set()

    threading.Thread(target=end, daemon=True).start()
    assert ended.wait(30)
    assert sum(batch.num_rows for batch in store.scan(ScanSpec(table="t")).batches) == 100_000
