"""Ordered beside unordered scans, over rowsets that overlap: the same rows in 1, 4 and 16 of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, rowsets_of, scratch_store, shuffled_parts, time_series_parts
from bench.measure import take_turns
from bench.report import Suite

ROWSETS = (1, 4, 16)
TWO_COLUMNS = ["status", "price"]
"""Neither is the key: a scan in no order does not read it."""


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return ordered and unordered scans, taking turns, of rowsets that overlap and of ones that hardly do."""
    results, orders = Results(console), data.orders(rows)
    with scratch_store(work) as database:
        for count in ROWSETS:
            table = rowsets_of(database, f"shuffled_{count}", shuffled_parts(orders, count))
            case = f"{count} rowsets, all overlapping" if count > 1 else "1 rowset"
            _compare(case, table, None, rounds, results)
            _compare(f"{case}, two columns", table, TWO_COLUMNS, rounds, results)
        _compare(f"{case}, the key alone", table, [data.KEY], rounds, results)
        count = ROWSETS[-1]
        table = rowsets_of(database, "series", time_series_parts(orders, count))
        _compare(f"{count} rowsets, overlapping at their ends", table, None, rounds, results)
        table = _string_keys(database, orders, count)
        _compare(f"{case}, keys of 20 bytes", table, None, rounds, results)
        _compare(f"{case}, keys of 20 bytes, two columns", table, TWO_COLUMNS, rounds, results)
    return results


def _string_keys(database: Any, orders: pa.Table, count: int) -> Any:
    keys = pc.utf8_lpad(orders[data.KEY].cast(pa.string()), 20, "0")
    strings = orders.set_column(0, pa.field(data.KEY, pa.string(), nullable=False), keys)
    return rowsets_of(database, "strings", shuffled_parts(strings, count))


def _compare(case: str, table: Any, columns: list[str] | None, rounds: int, results: Results) -> None:
    def scan(ordered: bool) -> None:
        table.scan(columns=columns, ordered=ordered).to_arrow()

    scan(False)  # the pages are in memory and verified
    samples = take_turns({"unordered": lambda _: scan(False), "ordered": lambda _: scan(True)}, rounds)
    for subject, seconds in samples.items():
        results.add(case, "s", seconds, subject)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    return Suite("ordered", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)
