"""A table of 1,000 tablets: what it costs to create, write, scan and open again, beside the same rows in one tablet."""

import shutil
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench.engine.scratch import OPTIONS, REHEARSAL_ROWS, Results
from bench.report import Suite

BUCKETS, RANGES = 10, 100
SCHEMA = pa.schema([("host", pa.int64()), ("time", pa.int64()), ("value", pa.float64())])
LEVELS = [nyala.hash("host", buckets=BUCKETS), nyala.range("time", splits=list(range(1, RANGES)))]
CUTS: dict[str, list[Any]] = {"1,000 tablets": LEVELS, "one tablet": []}


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return the seconds of each step; every round begins with an empty store."""
    results = Results(console)
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for subject, levels in CUTS.items():
            for case, seconds in _round(rows, levels, work):
                samples.setdefault((case, subject), []).append(seconds)
    for (case, subject), seconds in samples.items():
        results.add(case, "s", seconds, subject)
    return results


def _round(rows: int, levels: list[Any], work: Path) -> list[tuple[str, float]]:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    dice = np.random.default_rng(1)
    data = pa.table([np.arange(rows), dice.integers(0, RANGES, rows), dice.random(rows)], schema=SCHEMA)
    steps: list[tuple[str, float]] = []

    def timed(case: str, step: Callable[[], Any]) -> Any:
        begin = perf_counter()
        done = step()
        steps.append((case, perf_counter() - begin))
        return done

    def scans(table: Any, when: str) -> None:
        timed(f"scan of one tablet's rows{when}", lambda: table.scan(where="host = 5 AND time = 7").to_arrow())
        timed(f"scan of all rows{when}", lambda: table.scan().to_arrow())

    database: Any = nyala.open(str(work), **OPTIONS)
    table = timed("create", lambda: database.create_table("t", SCHEMA, ["host", "time"], partition_by=levels))
    timed("write", lambda: table.insert(data))
    scans(table, "")
    timed("flush", lambda: table.maintain("flush"))
    database.close()
    database = timed("open again", lambda: nyala.open(str(work), **OPTIONS))
    scans(database.table("t"), ", just opened")
    database.close()
    shutil.rmtree(work, ignore_errors=True)
    return steps


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` rows, after a short rehearsal that compiles what has to be compiled."""
    _round(REHEARSAL_ROWS, [], work)
    return Suite("tablets", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)
