"""What deltas cost a scan, before any compaction: by how many rows were changed, and by how unevenly.

A clean and a dirty table of the same rows take turns in every round, and a figure is the time of the dirty one over
that of the clean one in the same round: so a busy minute cancels out. The processor time of all threads is measured
beside the wall clock: on a busy machine it tells more.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.measure import take_turns
from bench.report import Result

SUBJECT = "Nyala in process"
CLOCKS = {SUBJECT: time.perf_counter, "processor time": time.process_time}
DENSITIES = (0.0, 0.001, 0.01, 0.1)
BATCHES = 10
SCANS_A_ROUND = 7
NARROW = ["price", "reading"]
SKEWED_BATCH_ROWS = 10_000
SKEWED_SHARE = 0.2
ZIPF_EXPONENT = 1.2


class DensityBench:
    """One store with a clean and a dirty table, which is made anew for every case."""

    def __init__(self, rows: int, rounds: int, work: Path, console: Console, maintenance: str = "off") -> None:
        self.rounds, self.work, self.console = rounds, work, console
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.data = data.orders(rows)
        self.results: list[Result] = []
        self.maintenance = maintenance
        self.database = nyala.open(str(work), maintenance=maintenance)

    def density(self) -> list[Result]:
        """Scan time against the share of rows that were updated: all columns, and two of eight."""
        clean = self._loaded("clean")
        for density in DENSITIES:
            for columns in (data.SCHEMA.names, [data.KEY, *NARROW])[: 2 if density else 1]:
                for batches in (1, BATCHES)[: 2 if density else 1]:
                    self._case(clean, density, columns, batches)
        return self._closed()

    def skew(self) -> list[Result]:
        """Updates of Zipf-distributed rows beside uniform ones: rows a second, and scans a second after them."""
        updates: dict[str, list[float]] = {"uniform": [], "zipf": []}
        scans: dict[str, list[float]] = {"uniform": [], "zipf": []}
        for number in range(self.rounds):
            tables = {kind: self._loaded(f"{kind}{number}") for kind in updates}
            for kind, table in tables.items():
                parts = self._skewed(kind, seed=number)
                updates[kind].append(self._update(table, parts))
            for kind, times in take_turns(_scans(tables), SCANS_A_ROUND).items():
                scans[kind].append(float(np.median(times)))
            for table in tables.values():
                self.database.drop_table(table.name)
        name = f"maintenance {self.maintenance}"
        self._add(f"zipf over uniform update rate, {name}", _ratios(updates["uniform"], updates["zipf"]))
        self._add(f"zipf over uniform scan rate after, {name}", _ratios(scans["uniform"], scans["zipf"]))
        return self._closed()

    def _case(self, clean: Any, density: float, columns: list[str], batches: int) -> None:
        dirty = self._loaded("dirty")
        what = f"{density:.1%} updated, {len(columns) - 1} columns, {batches} batches"
        if density:
            changes = data.changed(self.data, density, seed=1).select(columns)
            self._update(dirty, np.array_split(np.arange(changes.num_rows), batches), changes)
        self._compare(f"scan, {what}, in memory" if density else f"scan, {what}", clean, dirty)
        if density:
            dirty.maintain("flush_deltas")
            self._compare(f"scan, {what}, on disk", clean, dirty)
        self.database.drop_table("dirty")

    def _compare(self, case: str, clean: Any, dirty: Any) -> None:
        first = _scanned(dirty)
        turns = [(_scanned(clean), _scanned(dirty)) for _ in range(self.rounds * SCANS_A_ROUND)]
        for subject in CLOCKS:
            usual = float(np.median([one[subject] for one, _ in turns]))
            self._add(case, [other[subject] / one[subject] for one, other in turns], subject)
            self._add(f"first {case}", [first[subject] / usual], subject)

    def _skewed(self, kind: str, seed: int) -> list[pa.Table]:
        random = np.random.default_rng(seed)
        count, rows = int(self.data.num_rows * SKEWED_SHARE), self.data.num_rows
        ranks = random.zipf(ZIPF_EXPONENT, count) % rows if kind == "zipf" else random.integers(0, rows, count)
        picked = random.permutation(rows)[ranks]
        changes = self.data.select([data.KEY, *NARROW]).take(pa.array(picked))
        return [changes.slice(at, SKEWED_BATCH_ROWS) for at in range(0, count, SKEWED_BATCH_ROWS)]

    def _update(self, table: Any, parts: list[Any], changes: pa.Table | None = None) -> float:
        batches = parts if changes is None else [changes.take(pa.array(part)) for part in parts]
        start = time.perf_counter()
        for batch in batches:
            table.update(batch)
        return time.perf_counter() - start

    def _loaded(self, name: str) -> Any:
        table = self.database.create_table(name, data.SCHEMA, primary_key=[data.KEY])
        table.insert(self.data)
        table.maintain("flush")
        table.scan().to_arrow()
        return table

    def _add(self, case: str, samples: list[float], subject: str = SUBJECT) -> None:
        result = Result(case, subject, "x", samples)
        self.console.print(f"  {case}, {subject}: {result.median:,.3f} x", soft_wrap=True)
        self.results.append(result)

    def _closed(self) -> list[Result]:
        self.database.close()
        shutil.rmtree(self.work, ignore_errors=True)
        return self.results


def _scanned(table: Any) -> dict[str, float]:
    """Scan a table whole and return what each clock says it took."""
    starts = {subject: clock() for subject, clock in CLOCKS.items()}
    table.scan().to_arrow()
    return {subject: clock() - starts[subject] for subject, clock in CLOCKS.items()}


def _scans(tables: Mapping[str, Any]) -> dict[str, Callable[[int], Any]]:
    return {name: lambda _, table=table: table.scan().to_arrow() for name, table in tables.items()}


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def run(rows: int, rounds: int, work: Path, console: Console) -> list[Result]:
    """Measure on ``rows`` orders; ratios of times, and of rates where the case says so."""
    results = DensityBench(rows, rounds, work, console).density()
    for maintenance in ("off", "on"):
        results += DensityBench(rows, rounds, work, console, maintenance).skew()
    return results


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(prog="python -m bench.engine.density", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    run(given.rows, given.rounds, Path(__file__).parent.parent / "scratch" / "density", Console())
