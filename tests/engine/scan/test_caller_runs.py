"""The executor whose work is done by whoever submits it."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.caller_runs import CallerRuns
from nyala.engine.store import Store
from nyala.schemas.errors import UnavailableError


def test_work_is_done_at_once_by_the_thread_that_submits_it() -> None:
    pool = CallerRuns()
    done = pool.submit(threading.get_ident)
    assert done.done() and done.result() == threading.get_ident()
    failed = pool.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()


def test_a_shutdown_waits_for_the_work_of_other_threads() -> None:
    pool, begun, may_end = CallerRuns(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert may_end.wait(30)

    worker = threading.Thread(target=pool.submit, args=(work,), daemon=True)
    worker.start()
    assert begun.wait(30)
    closer = threading.Thread(target=pool.shutdown, daemon=True)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive(), "it did not wait"
    may_end.set()
    closer.join(30)
    assert not closer.is_alive()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(work)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_scan_of_a_store_that_was_closed_says_so(threads: int) -> None:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=threads, scan_batch_bytes=1))
    table = Database(store).create_table("t", pa.schema([pa.field("k", pa.int64(), False)]), ["k"])
    table.insert({"k": range(50_000)})
    batches = iter(table.scan())
    assert next(batches).num_rows
    store.close()
    with pytest.raises(UnavailableError, match="closed during the scan"):
        list(batches)
