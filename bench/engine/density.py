"""What deltas cost a scan, before any compaction: by how many rows were changed, and by how unevenly.

A clean and a dirty table of the same rows take turns in every round, and a figure is the time of the dirty one over
that of the clean one in the same round: so a busy minute cancels out.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.measure import seconds, take_turns
from bench.report import Result, Suite

SUBJECT = "Nyala in process"
DENSITIES = (0.001, 0.01, 0.1)
BATCHES = 10
SCANS_A_ROUND = 7
NARROW = ["price", "reading"]
REHEARSAL_ROWS = 50_000
SKEWED_BATCH_ROWS = 10_000
SKEWED_SHARE = 0.2
ZIPF_EXPONENT = 1.2


class DensityBench:
    """One store with a clean and a dirty table, which is made anew for every case."""

    def __init__(
        self, rows: int, rounds: int, work: Path, console: Console, maintenance: Literal["on", "off"] = "off"
    ) -> None:
        self.rounds, self.work, self.console = rounds, work, console
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.data = data.orders(rows)
        self.results: list[Result] = []
        self.maintenance = maintenance
        self.database = nyala.open(str(work), maintenance=maintenance)

    def density(self) -> list[Result]:
        """Scan time against the share of rows that were updated, in all columns and in two of eight, by one commit and
        by several; the first scan, which sorts what it finds, beside the usual one."""
        clean = self._loaded("clean")
        self._compare("nothing updated", "in memory", clean, self._loaded("dirty"))
        self.database.drop_table("dirty")
        for density in DENSITIES:
            for columns in (data.SCHEMA.names, [data.KEY, *NARROW]):
                for batches in (1, BATCHES):
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
        changes = data.changed(self.data, density, seed=1).select(columns)
        self._update(dirty, np.array_split(np.arange(changes.num_rows), batches), changes)
        commits = "one commit" if batches == 1 else f"{batches} commits"
        case = f"{100 * density:g} % of the rows, {len(columns) - 1} columns, {commits}"
        self._compare(case, "in memory", clean, dirty)
        dirty.maintain("flush_deltas")
        self._compare(case, "on disk", clean, dirty)
        self.database.drop_table("dirty")

    def _compare(self, case: str, where: str, clean: Any, dirty: Any) -> None:
        first = _scanned(dirty)
        turns = [(_scanned(clean), _scanned(dirty)) for _ in range(self.rounds * SCANS_A_ROUND)]
        usual = float(np.median([one for one, _ in turns]))
        self._add(case, [other / one for one, other in turns], where)
        self._add(case, [first / usual], f"{where}, first scan")

    def _skewed(self, kind: str, seed: int) -> list[pa.Table]:
        random = np.random.default_rng(seed)
        count, rows = int(self.data.num_rows * SKEWED_SHARE), self.data.num_rows
        ranks = random.zipf(ZIPF_EXPONENT, count) % rows if kind == "zipf" else random.integers(0, rows, count)
        picked = random.permutation(rows)[ranks]
        changes = self.data.select([data.KEY, *NARROW]).take(pa.array(picked))
        return [changes.slice(at, SKEWED_BATCH_ROWS) for at in range(0, count, SKEWED_BATCH_ROWS)]

    def _update(self, table: Any, parts: list[Any], changes: pa.Table | None = None) -> float:
        batches = parts if changes is None else [changes.take(pa.array(part)) for part in parts]
        return seconds(lambda: _update_all(table, batches))

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


def _update_all(table: Any, batches: list[Any]) -> None:
    for batch in batches:
        table.update(batch)


def _scanned(table: Any) -> float:
    """Scan a table whole and return how long it took."""
    return seconds(lambda: table.scan().to_arrow())


def _scans(tables: Mapping[str, Any]) -> dict[str, Callable[[int], Any]]:
    return {name: lambda _, table=table: table.scan().to_arrow() for name, table in tables.items()}


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def skew(rows: int, rounds: int, work: Path, console: Console) -> list[Result]:
    """Measure what uneven updates cost, on ``rows`` orders, with background maintenance and without."""
    results: list[Result] = []
    for maintenance in ("off", "on"):
        results += DensityBench(rows, rounds, work, console, maintenance).skew()
    return results


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure scans against update density on ``rows`` orders, after a short rehearsal that compiles what has to be."""
    DensityBench(REHEARSAL_ROWS, 1, work, Console(quiet=True)).density()
    return Suite("density", {"rows": rows, "rounds": rounds}, DensityBench(rows, rounds, work, console).density())
