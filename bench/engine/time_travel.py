"""Scans of the past: as of before 1, 5 and 10 rounds of updates, which are REDO, then UNDO, then merged."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, rowsets_of, scratch_store, shuffled_parts
from bench.measure import take_turns
from bench.report import Suite

ROUNDS_OF_UPDATES = 10
BACK = (0, 1, 5, 10)
UPDATED_SHARE = 0.05


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return full scans by how many rounds of updates lie between their snapshot and now."""
    results, orders = Results(console), data.orders(rows)
    with scratch_store(work) as database:
        table = rowsets_of(database, "orders", shuffled_parts(orders, 2))
        moments = [database.now()]
        for number in range(ROUNDS_OF_UPDATES):
            _update(table, orders, number)
            moments.append(database.now())
        _scans("updates in REDO files", table, moments, rounds, results)
        table.maintain("major_compact")
        _scans("updates in the base", table, moments, rounds, results)
        table.maintain("compact")
        _scans("rowsets merged", table, moments, rounds, results)
    return results


def _update(table: Any, orders: pa.Table, seed: int) -> None:
    changed = data.changed(orders, UPDATED_SHARE, seed)
    table.update(changed.select([data.KEY, "price", "reading"]))
    table.maintain("flush_deltas")


def _scans(state: str, table: Any, moments: list[int], rounds: int, results: Results) -> None:
    def scan(back: int) -> None:
        table.scan(as_of=moments[-1 - back]).to_arrow()

    scan(0)  # the pages are in memory and verified
    samples = take_turns({str(back): lambda _, back=back: scan(back) for back in BACK}, rounds)
    for back, seconds in samples.items():
        results.add(f"{back} rounds back", "s", seconds, state)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    settings = {"rows": rows, "rounds": rounds}
    return Suite("time_travel", settings, measure(rows, rounds, work, console).all)
