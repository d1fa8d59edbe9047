"""The comparison: load, scan, durable upsert of 1 %, point reads, sizes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from bench import data
from bench.measure import take_turns
from bench.report import Result, Suite

from .duckdb_peer import DuckDb
from .nyala_subject import EmbeddedNyala, ServedNyala
from .subject import Subject, folder_bytes

SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "Nyala over Flight": ServedNyala,
    "Nyala in process": EmbeddedNyala,
    "DuckDB in process": DuckDb,
}
UPSERT_SHARE = 0.01
GETS_A_ROUND = 200
REHEARSAL_ROWS = 20_000
EXPENSIVE_PRICE = 330  # about 1 % of the rows lie above it


class Comparison:
    """All subjects with their folders under ``work``, and what was measured so far."""

    def __init__(self, rows: int, rounds: int, work: Path, console: Console) -> None:
        self.rounds, self.work, self.console = rounds, work, console
        console.print(f"making {rows:,} orders")
        self.table = data.orders(rows)
        self.live: dict[str, Subject] = {}
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        try:
            self._load()
            self._turns("settle (flush, checkpoint)", lambda subject, _: subject.settle(), rounds=1)
            self._sizes("size on disk after load")
            self._reads()
            self._upserts()
            self._check_that_all_agree()
            self._turns("full scan after upserts", lambda subject, _: self._whole(subject))
            self._gets()
            self._turns("settle after upserts", lambda subject, _: subject.settle(), rounds=1)
            self._sizes("size on disk after upserts")
            return self.results
        finally:
            for subject in self.live.values():
                subject.close()
            shutil.rmtree(self.work, ignore_errors=True)

    def _load(self) -> None:
        self._turns("load, durable", lambda name, _: self._fresh(name).load(self.table), by_name=True)

    def _fresh(self, name: str) -> Subject:
        if name in self.live:
            self.live.pop(name).close()
        folder = self._folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.live[name] = SUBJECTS[name](folder)
        return self.live[name]

    def _folder(self, name: str) -> Path:
        return self.work / name.replace(" ", "-").lower()

    def _reads(self) -> None:
        where = f"price > {EXPENSIVE_PRICE}"
        two = ["status", "price"]
        self._turns("full scan to Arrow", lambda subject, _: self._whole(subject))
        self._turns("two columns", lambda subject, _: subject.scan(columns=two))
        self._turns("1 % of rows by a filter", lambda subject, _: subject.scan(where=where))

    def _whole(self, subject: Subject) -> pa.Table:
        found = subject.scan()
        assert found.num_rows == self.table.num_rows, f"{found.num_rows:,} rows"
        return found

    def _upserts(self) -> None:
        changes = [data.changed(self.table, UPSERT_SHARE, seed=number + 1) for number in range(self.rounds)]
        self._turns("upsert 1 %, durable", lambda subject, number: subject.upsert(changes[number]))

    def _gets(self) -> None:
        random = np.random.default_rng(7)
        picked = random.integers(0, self.table.num_rows, (self.rounds, GETS_A_ROUND))
        keys = [self.table["key"].take(pa.array(row)).to_pylist() for row in picked]

        def get_all(subject: Subject, number: int) -> None:
            assert all(subject.get(key) is not None for key in keys[number])

        self._turns("point read", get_all, each=GETS_A_ROUND)

    def _turns(
        self,
        case: str,
        action: Callable[[Any, int], Any],
        rounds: int | None = None,
        each: int = 1,
        by_name: bool = False,
    ) -> None:
        """Measure ``action`` on every subject (or its name) in turns; ``each`` is how many calls it makes."""
        self.console.print(f"  {case}")
        given = {name: name if by_name else self.live[name] for name in SUBJECTS}
        actions = {name: lambda number, what=what: action(what, number) for name, what in given.items()}
        samples = take_turns(actions, rounds or self.rounds)
        self.results += [
            Result(case, name, "s", [seconds / each for seconds in times]) for name, times in samples.items()
        ]

    def _sizes(self, case: str) -> None:
        for what, logs in (("", False), (", with logs", True)):
            for name in SUBJECTS:
                size = folder_bytes(self._folder(name), logs)
                self.results.append(Result(case + what, name, "MB", [size / 1e6]))

    def _check_that_all_agree(self) -> None:
        """Figures of stores that hold different rows would mean nothing."""
        sums = {}
        for name, subject in self.live.items():
            found = subject.scan(columns=["key", "price"])
            cents = np.rint(found["price"].to_numpy() * 100).astype(np.int64)
            sums[name] = (found.num_rows, int(found["key"].to_numpy().sum()), int(cents.sum()))
        assert len(set(sums.values())) == 1, f"the stores disagree: {sums}"


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare all subjects on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    Comparison(REHEARSAL_ROWS, 1, work, Console(quiet=True)).run()
    results = Comparison(rows, rounds, work, console).run()
    return Suite("compare", {"rows": rows, "rounds": rounds}, results)
