"""What one embedded store does: writes by batch size, scans by what they touch, time travel, recovery."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.engine import density, first_scan
from bench.measure import seconds
from bench.report import Result, Suite

SUBJECT = "Nyala in process"
BATCH_ROWS = (1, 100, 10_000, 100_000)
ROWS_A_ROUND_MAX = 200_000
CALLS_A_ROUND_MAX = 500
OPTIONS: dict[str, Any] = {"maintenance": "off"}  # every flush is a step of the measurement
UNFLUSHED_ROWS = 500_000
GETS, KEYS_A_CALL = 20_000, 1_000
REHEARSAL_ROWS = 20_000
ROWS_MAX = 1_000_000
"""More would not fit into the memory of a store that is never flushed by itself."""


class EngineBench:
    """One store in ``work``, loaded once; each method measures one thing and adds its results."""

    def __init__(self, rows: int, rounds: int, work: Path, console: Console) -> None:
        self.rounds, self.work, self.console = rounds, work, console
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.data = data.orders(rows)
        self.results: list[Result] = []
        self.database = self._open()
        self.table = self.database.create_table("orders", data.SCHEMA, primary_key=[data.KEY])

    def _open(self) -> Any:
        return nyala.open(str(self.work), **OPTIONS)

    def run(self) -> list[Result]:
        try:
            self._add("load", "s", [seconds(lambda: self.table.insert(self.data))])
            self._add("flush", "s", [seconds(lambda: self.table.maintain("flush"))])
            loaded = self.database.now()
            self._scans("clean")
            self._gets()
            self._scans_after_opening()
            for batch_rows in BATCH_ROWS:
                self._upserts(batch_rows)
            self._scans("with deltas in memory")
            self._add("flush deltas", "s", [seconds(lambda: self.table.maintain("flush_deltas"))])
            self._scans("with deltas on disk")
            self._repeat("scan as of the load", lambda: self.table.scan(as_of=loaded).to_arrow())
            self._reopen()
            return self.results
        finally:
            self.database.close()
            shutil.rmtree(self.work, ignore_errors=True)

    def _scans(self, state: str) -> None:
        self._repeat(f"full scan, {state}", lambda: self.table.scan().to_arrow())
        self._repeat(f"two columns, {state}", lambda: self.table.scan(columns=["status", "price"]).to_arrow())
        self._repeat(f"1 % by price, {state}", lambda: self.table.scan(where="price > 330").to_arrow())
        self._repeat(f"count, {state}", lambda: self.table.scan().count())

    def _gets(self) -> None:
        """Get rows by keys in random order: one a call, and many."""
        keys: list[int] = np.random.default_rng(1).choice(self.data["key"].to_numpy(), GETS).tolist()
        calls = [keys[first : first + KEYS_A_CALL] for first in range(0, len(keys), KEYS_A_CALL)]
        for case, get, asked in (
            ("get of one row", self.table.get, keys),
            (f"get of {KEYS_A_CALL:,} rows", self.table.get_many, calls),
        ):
            self._add(case, "s", [_seconds_each(get, asked) for _ in range(self.rounds)])

    def _scans_after_opening(self) -> None:
        self.database.close()
        for scan, samples in first_scan.scans_after_opening(self.work, self.rounds).items():
            self._add(f"{scan} full scan of a new process", "s", samples)
        self.database = self._open()
        self.table = self.database.table("orders")

    def _upserts(self, batch_rows: int) -> None:
        calls = max(1, min(CALLS_A_ROUND_MAX, ROWS_A_ROUND_MAX // batch_rows))
        total = min(calls * batch_rows, self.data.num_rows)
        times = []
        for number in range(self.rounds):
            rows = data.changed(self.data, total / self.data.num_rows, seed=batch_rows + number)
            batches = rows.to_batches(max_chunksize=batch_rows)
            times.append(seconds(lambda batches=batches: self._upsert_all(batches)))
        self._add(f"upsert, batches of {batch_rows:,}", "rows/s", [total / each for each in times])

    def _upsert_all(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            self.table.upsert(batch)

    def _reopen(self) -> None:
        """Open after a clean stop, and after a stop with rows that only the log holds."""
        self._add("open after a flush", "s", self._reopen_times())
        keys = np.arange(UNFLUSHED_ROWS) + int(self.data["key"].to_numpy().max()) + 1
        rows = self.data.slice(0, UNFLUSHED_ROWS)
        rows = rows.set_column(0, data.SCHEMA.field(0), pa.array(keys[: rows.num_rows]))
        self.table.insert(rows)
        self._add(f"open with {rows.num_rows:,} rows to replay", "s", self._reopen_times())

    def _reopen_times(self) -> list[float]:
        times = []
        for _ in range(self.rounds):
            self.database.close()
            times.append(seconds(self._reopen_once))
        return times

    def _reopen_once(self) -> None:
        self.database = self._open()
        self.table = self.database.table("orders")
        self.table.scan(columns=["key"], limit=1).to_arrow()

    def _repeat(self, case: str, action: Callable[[], Any]) -> None:
        self._add(case, "s", [seconds(action) for _ in range(self.rounds)])

    def _add(self, case: str, unit: str, samples: list[float]) -> None:
        result = Result(case, SUBJECT, unit, samples)
        self.console.print(f"  {case}: {result.median:,.4g} {unit}")
        self.results.append(result)


def _seconds_each(get: Callable[[Any], Any], asked: list[Any]) -> float:
    return seconds(lambda: [get(each) for each in asked]) / len(asked)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure the embedded store on ``rows`` orders, ``ROWS_MAX`` at most, after a rehearsal that compiles kernels."""
    rows = min(rows, ROWS_MAX)
    EngineBench(REHEARSAL_ROWS, 1, work, Console(quiet=True)).run()
    results = EngineBench(rows, rounds, work, console).run()
    results += density.skew(rows, rounds, work, console)
    return Suite("engine", {"rows": rows, "rounds": rounds}, results)
