"""Verbs that run while their store is closed end with the error of a closed store, and change nothing."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.transaction import plan as plans
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
START = 1_700_000_000_000_000


def test_a_commit_of_a_store_that_is_closed_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, clock = MemoryFileSystem(), ManualClock(START)
    options = StoreOptions(maintenance="off", scan_threads=1)
    store = Store.open(disk, options, clock)
    Database(store).create_table("t", SCHEMA, primary_key=["k"])
    batch = pa.record_batch([pa.array([1, 2], pa.int64()), ["a", "b"]], schema=SCHEMA)
    command = WriteCommand(table="t", op=Operation("upsert"), stage=Stage(transaction="x", part="p"))
    store.stage(command, [StagedBatch(batch)])
    monkeypatch.setattr(plans, "_MANY_ROWS", 0)  # threads prepare the chunks
    read, closing = plans.chunks, Thread(target=store.close)

    def close_first(*arguments: Any) -> Any:
        closing.start()
        while not store._load_pool._shutdown:
            time.sleep(0.001)
        return read(*arguments)

    monkeypatch.setattr(plans, "chunks", close_first)
    with pytest.raises(UnavailableError, match="the store is closed"):
        store.commit_transaction(TransactionCommit(transaction="x", parts=["p"]))
    closing.join()
    with Store.open(disk, options, clock) as again:
        assert Database(again).table("t").scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("error", [RuntimeError("cannot schedule new futures after shutdown"), CancelledError()])
@pytest.mark.parametrize("is_closed", [False, True])
def test_errors_of_threads_are_those_of_a_closed_store_only_if_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_closed: bool
) -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"), ManualClock(START)) as store:

        def fail(_: Any) -> None:
            store.holding.is_closed = is_closed
            raise error

        monkeypatch.setattr(store._transactions, "commit", fail)
        expected: type[Exception] = UnavailableError if is_closed else type(error)
        with pytest.raises(expected):
            store.commit_transaction(TransactionCommit(transaction="x", parts=["p"]))
        store.holding.is_closed = False
