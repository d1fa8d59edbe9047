"""What encryption at rest costs in processor time: a load, a scan with nothing cached, single-row upserts.

A plain store and an encrypted one take turns in every round, each first in every second one, so that a busy minute
counts for both. Time is that of the process, all threads together: it does not wait for the disk.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

import nyala
from bench import data
from bench.engine.scratch import Results
from bench.report import Suite

KEY = bytes(range(32))
PLAIN, ENCRYPTED = "plain", "encrypted"
UPSERTS = 1_000
Samples = dict[tuple[str, str], list[float]]


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure."""
    results, table, samples = Results(console), data.orders(rows), {}
    for number in range(rounds + 1):
        for subject in (PLAIN, ENCRYPTED)[:: -1 if number % 2 else 1]:
            _measure(table, work / subject, subject, samples if number else {})  # the first round is a rehearsal
    for case in dict.fromkeys(case for case, _ in samples):
        unit = "us" if "upsert" in case else "s"
        plain, encrypted = samples[case, PLAIN], samples[case, ENCRYPTED]
        results.add(case, unit, plain, PLAIN)
        results.add(case, unit, encrypted, ENCRYPTED)
        results.add(case, "x", [each / other for each, other in zip(encrypted, plain, strict=True)], "ratio")
    return Suite("encryption", {"rows": rows, "rounds": rounds}, results.all)


def _measure(rows: Any, work: Path, subject: str, samples: Samples) -> None:
    """Add a sample of each case to ``samples``."""

    def measured(case: str, act: Callable[[], object], scale: float = 1) -> None:
        began = time.process_time()
        act()
        samples.setdefault((case, subject), []).append((time.process_time() - began) * scale)

    options: dict[str, Any] = {"maintenance": "off", **({"key": KEY} if subject == ENCRYPTED else {})}
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with nyala.open(str(work), **options) as database:
        table = database.create_table("t", rows.schema, primary_key=[data.KEY])

        def load() -> None:
            table.insert(rows)
            table.maintain("flush")

        measured("load and flush", load)
    with nyala.open(str(work), **options) as database:
        table = database.table("t")
        measured("scan, nothing cached", lambda: table.scan().to_arrow())
        changed = rows.slice(0, UPSERTS).to_pylist()
        measured("upsert of a row, durable", lambda: [table.upsert([row]) for row in changed], 1e6 / UPSERTS)
    shutil.rmtree(work, ignore_errors=True)
