"""What grows with the table: the same questions of a tenth of the rows, all, and five times as many, and by tablets.

Every table gets the same number of gets and upserts, so that a cost a row that does not grow stays the same.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.compare.subject import folder_bytes
from bench.engine.scratch import OPTIONS
from bench.measure import seconds
from bench.report import Result, Suite

SIZES = (0.1, 1, 5)
TABLETS = (64, 1_000)
GETS, UPSERTS, SINGLE_UPSERTS = 2_000, 100_000, 200
GROUPS = {"total": ("price", "sum")}
REHEARSAL_ROWS = 20_000


class Grown:
    """One table in ``work``, loaded, asked and dropped."""

    def __init__(self, rows: int, tablets: int, work: Path) -> None:
        self.rows, self.work = rows, work
        self.levels = [nyala.hash(data.KEY, buckets=tablets)] if tablets > 1 else []
        self.random = np.random.default_rng(5)
        self.keys = np.empty(0, np.int64)
        self.sample = data.orders(10).slice(0, 0)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)

    def measure(self, rounds: int) -> dict[str, tuple[str, list[float]]]:
        """Return case -> (unit, samples)."""
        found: dict[str, tuple[str, list[float]]] = {}
        try:
            database: Any = nyala.open(str(self.work))  # flushes while it loads: the memory holds a few million rows
            table = database.create_table("orders", data.SCHEMA, [data.KEY], partition_by=self.levels)
            found["load, a million rows a call"] = "rows/s", [self.rows / self._load(table)]
            found["flush"] = "s", [seconds(lambda: table.maintain("flush"))]
            database.close()
            found["size on disk, a row"] = "bytes", [folder_bytes(self.work, logs=False) / self.rows]
            found["open and first get"] = "s", [seconds(self._open_and_get) for _ in range(rounds)]
            database = nyala.open(str(self.work), **OPTIONS)
            self._ask(database.table("orders"), rounds, found)
            database.close()
            return found
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def _load(self, table: Any) -> float:
        """Return the seconds in the store, without those in which the rows are made."""
        kept: list[pa.RecordBatch] = []
        taken = 0.0
        for batch in data.order_batches(self.rows):
            taken += seconds(lambda batch=batch: table.insert(batch))
            kept.append(batch.take(np.arange(max(1, GETS * batch.num_rows // self.rows))))
        self.sample = pa.Table.from_batches(kept)
        self.keys = self.random.permutation(self.sample["key"].to_numpy())
        return taken

    def _open_and_get(self) -> None:
        with nyala.open(str(self.work), **OPTIONS) as database:
            assert database.table("orders").get(int(self.keys[0]))

    def _ask(self, table: Any, rounds: int, found: dict[str, tuple[str, list[float]]]) -> None:
        keys = self.keys.tolist()
        new = data.orders(UPSERTS, seed=9)
        rows = self.sample.slice(0, SINGLE_UPSERTS).to_pylist()

        def repeated(case: str, each: int, action: Callable[[], Any]) -> None:
            found[case] = "s", [seconds(action) / each for _ in range(rounds)]

        def rate(case: str, each: int, action: Callable[[], Any]) -> None:
            found[case] = "rows/s", [each / seconds(action) for _ in range(rounds)]

        repeated("get", len(keys), lambda: [table.get(key) for key in keys])
        repeated("get of absent keys", len(keys), lambda: [table.get(-1 - key) for key in keys])
        rate("sum of a column", self.rows, lambda: table.scan().aggregate(GROUPS))
        rate("count by a filter", self.rows, lambda: table.scan(where="price > 330").count())
        repeated("upsert of one row", len(rows), lambda: [table.upsert([row]) for row in rows])
        rate("upsert of 100,000 rows", UPSERTS, lambda: table.upsert(new))
        repeated("get after the upserts", len(keys), lambda: [table.get(key) for key in keys])


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure tables around ``rows`` rows, after a short rehearsal that compiles what has to be compiled."""
    Grown(REHEARSAL_ROWS, 1, work).measure(1)
    tables = [(int(rows * size), 1) for size in SIZES] + [(rows, tablets) for tablets in TABLETS]
    results: list[Result] = []
    for count, tablets in tables:
        subject = f"{count:,} rows" + (f", {tablets:,} tablets" if tablets > 1 else "")
        console.print(f"  {subject}")
        measured = Grown(count, tablets, work).measure(rounds)
        results += [Result(case, subject, unit, samples) for case, (unit, samples) in measured.items()]
    return Suite("growth", {"rows": rows, "rounds": rounds}, results)
