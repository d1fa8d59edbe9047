"""Rowsets of a large transaction: threads write them at once."""

from __future__ import annotations

import errno
from itertools import count, pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table import direct_load
from nyala.schemas.errors import StorageFullError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])


@pytest.mark.parametrize("load_threads", [1, 3])
def test_rowsets_that_threads_write_at_once(monkeypatch: pytest.MonkeyPatch, load_threads: int) -> None:
    """Parts come in any order, and their rows are divided by key; if a rowset cannot be written, none stays."""
    fs = MemoryFileSystem()
    options = StoreOptions(
        maintenance="off", direct_load_bytes=1_000, direct_load_unsorted_bytes=1_000, load_threads=load_threads
    )
    store = Store.open(fs, options)
    Database(store).create_table("t", SCHEMA, ["k"])
    monkeypatch.setattr(direct_load, "TARGET_BYTES", 2_000)
    starts = [600, 0, 900, 300]
    for start in starts:
        stage = Stage(transaction="T", part=f"from {start}")
        keys = pa.array(range(start, start + 300), pa.int64())
        batch = pa.record_batch([keys, pa.repeat("v", 300)], schema=SCHEMA)
        store.stage(WriteCommand(table="t", op=Operation.UPSERT, stage=stage), [StagedBatch(batch)])
    write, calls = direct_load._write_base, count()

    def full_disk(*arguments: Any) -> None:
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, "no space left")
        write(*arguments)

    monkeypatch.setattr(direct_load, "_write_base", full_disk)
    commit = TransactionCommit(transaction="T", parts=[f"from {start}" for start in starts])
    with pytest.raises(StorageFullError):
        store.commit_transaction(commit)
    assert not [name for each in fs.list("tablets") for name in fs.list(f"tablets/{each}")]
    monkeypatch.setattr(direct_load, "_write_base", write)
    assert store.commit_transaction(commit).applied == 1_200
    (tablet,) = store._catalog.table("t").version.tablets
    ranges = sorted((rowset.min_key, rowset.max_key) for rowset in tablet.version.attached)
    assert len(ranges) > 5 and all(last < first for (_, last), (first, _) in pairwise(ranges))
    image = fs.crash_image(Random(0))
    store.close()
    store = Store.open(image, options)
    assert sorted(Database(store).table("t").scan().to_arrow()["k"].to_pylist()) == list(range(1_200))
    store.close()
