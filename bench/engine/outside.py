"""How fast rowsets are merged by other processes, beside the server's own compaction: a table of two tablets."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, scratch_store, shuffled_parts
from bench.report import Suite

ROWSETS = 8
TABLETS = 2
UPDATED_SHARE = 0.05
PROCESSES = (1, 2)


class _Timed:
    """A store that sums up how long its commits take."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.seconds = 0.0

    def compaction_commit(self, asked: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._store.compaction_commit(asked)
        finally:
            self.seconds += time.perf_counter() - start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return rows a second: by the server, by one process and by two; and of these what the server's part takes."""
    results, orders = Results(console), data.orders(rows)
    samples: dict[str, list[float]] = {}
    with ExitStack() as held:
        spawn = multiprocessing.get_context("spawn")
        pools = {count: held.enter_context(ProcessPoolExecutor(count, spawn)) for count in PROCESSES}
        for pool_rows in (data.orders(REHEARSAL_ROWS), *[orders] * rounds):
            found = _round(pool_rows, pools, work)
            if pool_rows is orders:
                for case, seconds in found.items():
                    samples.setdefault(case, []).append(rows / seconds)
    for case, rates in samples.items():
        results.add(case, "rows/s", rates)
    return results


def _round(orders: pa.Table, pools: dict[int, ProcessPoolExecutor], work: Path) -> dict[str, float]:
    from nyala.clients.offline_jobs.bulk_compact import bulk_compact

    seconds: dict[str, float] = {}
    with scratch_store(work) as database:
        table = _rowsets(database, "own", orders)
        start = time.perf_counter()
        table.maintain("compact")
        seconds["by the server itself"] = time.perf_counter() - start
        for count, pool in pools.items():
            name = f"outside{count}"
            _rowsets(database, name, orders)
            store = _Timed(database._store)
            start = time.perf_counter()
            bulk_compact(store, name, directory=work, executor=pool)  # pyright: ignore[reportArgumentType]
            seconds[f"outside, {count} process{'es' * (count > 1)}"] = time.perf_counter() - start
            seconds[f"outside, {count} process{'es' * (count > 1)}: the commits"] = store.seconds
    return seconds


def _rowsets(database: Any, name: str, orders: pa.Table) -> Any:
    """Create a table whose tablets have rowsets that overlap, with changes in files."""
    parts = [nyala.hash(data.KEY, buckets=TABLETS)]
    table = database.create_table(name, orders.schema, primary_key=[data.KEY], partition_by=parts)
    for part in shuffled_parts(orders, ROWSETS):
        table.insert(part)
        table.maintain("flush")
    table.update(data.changed(orders, UPDATED_SHARE, seed=1).select([data.KEY, "price", "reading"]))
    table.maintain("flush_deltas")
    return table


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    return Suite("outside", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)
