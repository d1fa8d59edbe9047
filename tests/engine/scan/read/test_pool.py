"""The pool of scans: whoever waits reads, helpers take turns, and closing ends what was not begun."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.read.pool import ScanPool
from nyala.engine.store import Store
from nyala.schemas.errors import UnavailableError
from tests.doubles.waiting import until


@pytest.mark.parametrize("threads", [0, 1, 8])
def test_a_single_piece_is_done_by_the_thread_that_waits_for_it(threads: int) -> None:
    pool = ScanPool(threads)
    assert pool.submit(threading.get_ident).result() == threading.get_ident()
    failed = pool.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()


def test_an_interrupt_after_the_result_is_not_the_result() -> None:
    piece = ScanPool(0).submit(int, "7")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    piece.add_done_callback(interrupt)
    with pytest.raises(KeyboardInterrupt):
        piece.result()
    assert piece.result() == 7


def test_without_helpers_nothing_is_begun_before_it_is_needed() -> None:
    pool, done = ScanPool(1), list[int]()
    pieces = [pool.submit(done.append, number) for number in range(5)]
    time.sleep(0.01)
    pieces[2].result()
    assert done == [2]
    pieces[3].cancel()
    pieces[4].result()
    assert done == [2, 4] and not pieces[0].done()
    with pytest.raises(CancelledError):
        pieces[3].result()


def test_who_waits_for_a_helper_does_the_next_pieces_meanwhile() -> None:
    pool, begun, may_end = ScanPool(2), threading.Event(), threading.Event()
    by: dict[int, int] = {}

    def work(number: int) -> int:
        by[number] = threading.get_ident()
        if number == 0:
            begun.set()
            assert may_end.wait(30)
        return number

    pieces = [pool.submit(work, number) for number in range(2)]
    assert begun.wait(30), "a helper took the first"
    pieces += [pool.submit(work, number) for number in range(2, 4)]
    threading.Timer(0.05, may_end.set).start()
    assert [piece.result() for piece in pieces] == [0, 1, 2, 3]
    assert by[0] != threading.get_ident() and {by[1], by[2], by[3]} == {threading.get_ident()}


def test_helpers_take_turns_among_the_threads() -> None:
    pool, busy, may_end = ScanPool(2), threading.Event(), threading.Event()
    order: list[str] = []

    def block() -> None:
        busy.set()
        assert may_end.wait(30)

    def ask(name: str, count: int) -> None:
        for _ in range(count):
            pool.submit(order.append, name)

    held = [pool.submit(block), pool.submit(int)]
    assert busy.wait(30)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(ask, "large", 20).result()
        other.submit(ask, "small", 2).result()
        may_end.set()
        until(lambda: len(order) == 22)
    assert order.index("small") < 3 and order[4:] == ["large"] * 18, "the small one does not wait for all of the large"
    assert [piece.result() for piece in held] == [None, 0]


def test_a_shutdown_waits_for_what_runs_and_cancels_the_rest() -> None:
    pool, begun, may_end = ScanPool(1), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert may_end.wait(30)

    def run() -> None:
        pool.submit(work).result()

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    assert begun.wait(30)
    rest = pool.submit(int)
    closer = threading.Thread(target=pool.shutdown, daemon=True)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive(), "it did not wait"
    may_end.set()
    closer.join(30)
    assert not closer.is_alive()
    with pytest.raises(CancelledError):
        rest.result()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(work)


def test_many_threads_get_their_own_results() -> None:
    pool = ScanPool(4)

    def scan(seed: int) -> bool:
        random, running = Random(seed), []
        for number in range(400):
            running.append((number, pool.submit(lambda number=number: (seed, number))))
            if len(running) > random.randrange(1, 9):
                wanted, piece = running.pop(0)
                if random.random() < 0.1:
                    piece.cancel()
                elif piece.result() != (seed, wanted):
                    return False
        return all(piece.result() == (seed, wanted) for wanted, piece in running)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(scan, range(16)))
    assert pool.running == 0 and not pool.waiting


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
