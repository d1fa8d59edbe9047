"""What the cases share: a store in an empty folder, tables made of rowsets that overlap, and results as they come."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.report import Result

SUBJECT = "Nyala in process"
OPTIONS: dict[str, Any] = {"maintenance": "off"}  # every flush and compaction is a step of the measurement
REHEARSAL_ROWS = 20_000


@contextmanager
def scratch_store(work: Path) -> Iterator[Any]:
    """Open a store in the folder ``work``, which is emptied before and removed after."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    database = nyala.open(str(work), **OPTIONS)
    try:
        yield database
    finally:
        database.close()
        shutil.rmtree(work, ignore_errors=True)


def shuffled_parts(rows: pa.Table, count: int) -> list[pa.Table]:
    """Cut rows in random key order into ``count`` tables: each spans nearly all keys."""
    step = -(-rows.num_rows // count)
    return [rows.slice(first, step) for first in range(0, rows.num_rows, step)]


def time_series_parts(rows: pa.Table, count: int, overlap: float = 0.02) -> list[pa.Table]:
    """Cut rows in key order into ``count`` tables that overlap only at their ends, as late measurements make them."""
    ordered = rows.sort_by(data.KEY)
    step = -(-rows.num_rows // count)
    number = np.arange(rows.num_rows) // step
    late = np.random.default_rng(0).random(rows.num_rows) < 0.5
    is_near_end = np.arange(rows.num_rows) % step > step * (1 - overlap)
    number = np.minimum(number + (late & is_near_end), count - 1)
    return [ordered.filter(pa.array(number == part)) for part in range(count)]


def rowsets_of(database: Any, name: str, parts: list[pa.Table]) -> Any:
    """Create a table of one flushed rowset a part."""
    table = database.create_table(name, parts[0].schema, primary_key=[data.KEY])
    for part in parts:
        table.insert(part)
        table.maintain("flush")
    return table


class Results:
    """The results of one run, shown as they come."""

    def __init__(self, console: Console) -> None:
        self.all: list[Result] = []
        self._console = console

    def add(self, case: str, unit: str, samples: list[float], subject: str = SUBJECT) -> None:
        """Keep the samples of a case and show their median."""
        result = Result(case, subject, unit, samples)
        self._console.print(f"  {case}, {subject}: {result.median:,.4g} {unit}")
        self.all.append(result)
