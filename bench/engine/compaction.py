"""How fast rowsets are rewritten: merges of eight of them, with and without deltas, and delta compactions."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, rowsets_of, scratch_store, shuffled_parts, time_series_parts
from bench.report import Suite

ROWSETS = 8
LONG_ROWSETS = 2
UPDATES = 4
UPDATED_SHARE = 0.05


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return rows a second, and MB of Arrow data a second, of every kind of compaction."""
    results, orders = Results(console), data.orders(rows)
    samples: dict[str, list[float]] = {}
    for number in range(rounds):
        with scratch_store(work) as database:
            for case, seconds in _round(database, orders, number).items():
                samples.setdefault(case, []).append(seconds)
    for case, seconds in samples.items():
        results.add(case, "rows/s", [rows / each for each in seconds])
        results.add(f"{case}, of Arrow data", "MB/s", [orders.nbytes / each / 1e6 for each in seconds])
    return results


def _round(database: Any, orders: pa.Table, seed: int) -> dict[str, float]:
    seconds: dict[str, float] = {}

    def timed(case: str, table: Any, op: str) -> None:
        start = time.perf_counter()
        table.maintain(op)
        seconds[case] = time.perf_counter() - start

    overlapping = shuffled_parts(orders, ROWSETS)
    timed(f"merge of {ROWSETS} rowsets", rowsets_of(database, "clean", overlapping), "compact")
    series = rowsets_of(database, "series", time_series_parts(orders, ROWSETS))
    timed(f"merge of {ROWSETS} rowsets that overlap at their ends", series, "compact")
    long = rowsets_of(database, "long", time_series_parts(orders, LONG_ROWSETS))
    timed(f"merge of {LONG_ROWSETS} rowsets of many pages that overlap at their ends", long, "compact")
    updated = rowsets_of(database, "updated", overlapping)
    _update(updated, orders, seed)
    timed(f"minor delta compaction of {UPDATES} updates of {UPDATED_SHARE:.0%}", updated, "minor_compact")
    timed(f"merge of {ROWSETS} rowsets with these updates", updated, "compact")
    major = rowsets_of(database, "major", overlapping)
    _update(major, orders, seed)
    timed(f"major delta compaction of {UPDATES} updates of {UPDATED_SHARE:.0%}", major, "major_compact")
    return seconds


def _update(table: Any, orders: pa.Table, seed: int) -> None:
    for number in range(UPDATES):
        changed = data.changed(orders, UPDATED_SHARE, seed=seed * UPDATES + number)
        table.update(changed.select([data.KEY, "price", "reading"]))
        table.maintain("flush_deltas")


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    return Suite("compaction", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)
