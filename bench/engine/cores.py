"""Scans by one thread and by all cores: wall clock, processor time and page faults of the same scans in turns.

Two stores in one process have the same rows and differ in ``scan_threads``. Results are dropped at once.
"""

import os
import resource
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.engine.scratch import OPTIONS, REHEARSAL_ROWS, Results
from bench.measure import take_turns
from bench.report import Suite

_ROWS_AT_ONCE = 1_000_000
_UPSERTED = 0.01

_MEASURED = (("", "s"), (", processor", "s"), (", page faults", "faults"))

Sample = tuple[float, float, float]
"""Seconds by the clock, seconds of the processor, page faults."""


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return what the scans take, before and after an upsert of a hundredth of the rows."""
    results, orders = Results(console), data.orders(rows)
    with ExitStack() as stack:
        tables = {
            f"{threads} threads": _loaded(stack, work / str(threads), threads, orders)
            for threads in (1, os.cpu_count() or 1)
        }
        for case, scan in _scans().items():
            _compare(case, tables, scan, rounds, results)
        changes = data.changed(orders, _UPSERTED, seed=1)
        for table in tables.values():
            table.upsert(changes)
        _compare("all columns, 1 % upserted", tables, lambda table: table.scan().to_arrow(), rounds, results)
    shutil.rmtree(work, ignore_errors=True)
    return results


def _loaded(stack: ExitStack, folder: Path, threads: int, orders: pa.Table) -> Any:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    database = stack.enter_context(nyala.open(str(folder), **OPTIONS, scan_threads=threads))
    table = database.create_table("orders", orders.schema, primary_key=[data.KEY])
    for first in range(0, orders.num_rows, _ROWS_AT_ONCE):
        table.insert(orders.slice(first, _ROWS_AT_ONCE))
        table.maintain("flush")
    return table


def _scans() -> dict[str, Callable[[Any], object]]:
    total = {"total": ("quantity", "sum"), "n": ("*", "count")}
    return {
        "all columns": lambda table: table.scan().to_arrow(),
        "all columns, ordered": lambda table: table.scan(ordered=True).to_arrow(),
        "two columns": lambda table: table.scan(["status", "price"]).to_arrow(),
        "count by a filter": lambda table: table.scan(where="quantity < 100 AND status = 'paid'").count(),
        "sum by a filter": lambda table: table.scan(where="quantity < 5000").aggregate({"sum": ("price", "sum")}),
        "sum and count, 8 groups": lambda table: table.scan().aggregate(total, ["status"]),
    }


def _compare(case: str, tables: dict[str, Any], scan: Callable[[Any], object], rounds: int, results: Results) -> None:
    for table in tables.values():
        for _ in range(2):  # the pages are in memory and verified
            scan(table)
    actions = {name: lambda _, table=table: scan(table) for name, table in tables.items()}
    for name, samples in take_turns(actions, rounds, _sample).items():
        for (what, unit), values in zip(_MEASURED, zip(*samples, strict=True), strict=True):
            results.add(case + what, unit, list(values), name)


def _sample(action: Callable[[], object]) -> Sample:
    faults, clock, processor = _faults(), time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - processor, float(_faults() - faults)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    return Suite("cores", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)
