"""The first scans of a store that a new process opens: its files are in the operating system's cache, nothing is in the
store's own. What scans compile, or load for the first time, was done on another store before.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import nyala
from bench import data
from bench.engine.scratch import OPTIONS, REHEARSAL_ROWS, scratch_store
from bench.measure import seconds

SCANS = ("first", "second", "third")


def scans_after_opening(store: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of the first scans of the table ``orders`` of a closed store, each round in a new process;
    batches are dropped as they come."""
    samples: dict[str, list[float]] = {scan: [] for scan in SCANS}
    spawn = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        _in_cache(store)
        with ProcessPoolExecutor(1, spawn) as process:
            found = process.submit(_scans, store, store.with_name(f"{store.name}-rehearsal")).result()
        for scan, each in zip(SCANS, found, strict=True):
            samples[scan].append(each)
    return samples


def _in_cache(store: Path) -> None:
    for file in store.rglob("*.base"):
        file.read_bytes()


def _scans(store: Path, rehearsal: Path) -> list[float]:
    with scratch_store(rehearsal) as database:
        table = database.create_table("orders", data.SCHEMA, primary_key=[data.KEY])
        table.insert(data.orders(REHEARSAL_ROWS))
        table.maintain("flush")
        for _ in SCANS:
            _drain(table)
    with nyala.open(str(store), **OPTIONS) as database:
        table = database.table("orders")
        return [seconds(lambda: _drain(table)) for _ in SCANS]


def _drain(table: Any) -> None:
    for _ in table.scan():
        pass
