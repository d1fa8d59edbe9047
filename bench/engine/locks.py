"""How long other work makes writers wait: the longest hold of a tablet's write lock while four writers write.

Of a split the slowest write is told too, beside that of the two seconds before: what a new tablet does at its first
writes is done in the writers' own threads.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, rowsets_of, scratch_store, shuffled_parts
from bench.report import Suite

WRITERS = 4
BATCH_ROWS = 1_000
ROWSETS = 8
PAUSE_SECONDS = 0.002
SPLIT = "split_partition"
STEPS = ("flush", "flush_deltas", "minor_compact", "major_compact", "compact")


class WatchedLock:
    """A lock that knows how long one thread, the one that made it, held it at most."""

    def __init__(self, lock: Any) -> None:
        self.longest = 0.0
        """Seconds; may be set back to 0."""
        self._lock = lock
        self._thread = threading.get_ident()
        self._depth = 0
        self._start = 0.0

    def __enter__(self) -> None:
        self._lock.__enter__()
        if threading.get_ident() == self._thread:
            self._depth += 1
            if self._depth == 1:
                self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._thread:
            self._depth -= 1
            if not self._depth:
                self.longest = max(self.longest, time.perf_counter() - self._start)
        self._lock.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return the longest hold of every kind of background work, of each round."""
    results, orders = Results(console), data.orders(rows)
    with scratch_store(work) as database:
        table = rowsets_of(database, "orders", shuffled_parts(orders, ROWSETS))
        (tablet,) = database._store._catalog.table("orders").tablets
        lock = tablet.write_lock = WatchedLock(tablet.write_lock)
        longest: dict[str, list[float]] = {step: [] for step in STEPS}
        with _writers(table, orders):
            for _ in range(rounds):
                for step in STEPS:
                    time.sleep(0.3)
                    lock.longest = 0.0
                    table.maintain(step)
                    longest[step].append(lock.longest)
    for step, seconds in longest.items():
        results.add(f"longest hold of the write lock, {step}", "s", seconds)
    for case, seconds in _of_splits(orders, rounds, work).items():
        results.add(f"{case}, {SPLIT}", "s", seconds)
    return results


def _of_splits(orders: pa.Table, rounds: int, work: Path) -> dict[str, list[float]]:
    """Return the longest hold and the slowest write of each of ``rounds`` splits of a table into halves."""
    middle = pc.approximate_median(orders[data.KEY]).as_py()
    cases = ("longest hold of the write lock", "slowest write", "slowest write before", "whole")
    found: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        with scratch_store(work) as database:
            table = rowsets_of(database, "orders", shuffled_parts(orders, ROWSETS))
            (tablet,) = database._store._catalog.table("orders").tablets
            lock = tablet.write_lock = WatchedLock(tablet.write_lock)
            with _writers(table, orders) as writes:
                time.sleep(2.0)
                lock.longest, started = 0.0, time.perf_counter()
                table.alter().split_partition((int(middle),)).apply()
                ended = time.perf_counter()
                time.sleep(1.0)
            times = [(start - started, end - start) for start, end in writes]
            found["longest hold of the write lock"].append(lock.longest)
            found["slowest write"].append(max(took for at, took in times if at + took > 0))
            found["slowest write before"].append(max(took for at, took in times if at + took <= 0))
            found["whole"].append(ended - started)
    return found


@contextmanager
def _writers(table: Any, orders: pa.Table) -> Iterator[list[tuple[float, float]]]:
    """Let writers write while the body runs; gives the list to which they add when each write began and ended."""
    stop, writes, batches = threading.Event(), [], _batches(orders)
    threads = [threading.Thread(target=_write, args=(table, batches[n::WRITERS], stop, writes)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield writes
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _batches(orders: pa.Table) -> list[pa.RecordBatch]:
    """Return batches that change rows and, in turns of as many writers, ones of new rows."""
    keys = pc.add(orders[data.KEY], pc.add(pc.max(orders[data.KEY]), 1))
    fresh = orders.set_column(0, data.SCHEMA.field(0), keys).combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
    changed = data.changed(orders, 1.0, seed=1).to_batches(max_chunksize=BATCH_ROWS)
    starts = range(0, len(fresh), WRITERS)
    return [batch for first in starts for kind in (changed, fresh) for batch in kind[first : first + WRITERS]]


def _write(table: Any, batches: list[Any], stop: threading.Event, writes: list[tuple[float, float]]) -> None:
    while not stop.is_set():
        for batch in batches:
            if stop.is_set():
                return
            started = time.perf_counter()
            table.upsert(batch)
            writes.append((started, time.perf_counter()))
            time.sleep(PAUSE_SECONDS)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    settings = {"rows": rows, "rounds": rounds, "writers": WRITERS}
    return Suite("locks", settings, measure(rows, rounds, work, console).all)
