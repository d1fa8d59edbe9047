"""The comparison: load, scans, filters, groups, durable upserts of 1 %, point reads, sizes."""

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from bench.measure import take_turns
from bench.report import Result, Suite

from . import workload as workloads
from .peers.machine_limit import MachineLimit
from .subject import NotOffered, Subject, folder_bytes
from .workload import Aggregate, Workload

SUBJECTS = {
    "Nyala over Flight": "nyala_subject.ServedNyala",
    "Nyala": "nyala_subject.EmbeddedNyala",
    "DuckDB": "duckdb_peer.DuckDb",
    "DuckDB, no key": "duckdb_peer.KeylessDuckDb",
    "SQLite": "sqlite_peer.Sqlite",
    "Delta": "delta_peer.Delta",
    "Lance": "lance_peer.Lance",
    "Parquet, zstd": "parquet_peer.Parquet",
    "chDB": "chdb_peer.Chdb",
    "the bytes alone": "machine_limit.MachineLimit",
}
"""Name -> module and class in ``peers``, imported when its turn comes."""
TUNED = {
    "Nyala": "nyala_subject.EmbeddedNyala",
    "Nyala, tuned": "nyala_subject.TunedNyala",
    "DuckDB": "duckdb_peer.DuckDb",
    "DuckDB, tuned": "duckdb_peer.TunedDuckDb",
    "SQLite, tuned": "sqlite_peer.TunedSqlite",
    "Delta, tuned": "delta_peer.TunedDelta",
    "Lance, tuned": "lance_peer.TunedLance",
    "Parquet, tuned": "parquet_peer.TunedParquet",
    "chDB, tuned": "chdb_peer.TunedChdb",
}
"""The same stores as somebody would set them up for such a table, beside two with their defaults."""
UPSERT = "upsert 1 %, durable"
UPSERT_SHARE = 0.01
GETS_A_ROUND = 200
SLOW_GETS_A_ROUND = 10
SLOW_GETS = ("DuckDB, no key", "Delta", "Lance", "Parquet", "chDB")
"""These, also tuned, read many rows to find one: a few reads a round are enough to know."""
REHEARSAL_ROWS = 20_000


def subject_class(place: str) -> Callable[[Path, Workload], Subject]:
    """Import a subject."""
    module, _, name = place.partition(".")
    return getattr(importlib.import_module(f"{__package__}.peers.{module}"), name)


class Comparison:
    """All subjects with their folders under ``work``, and what was measured so far."""

    def __init__(self, subjects: dict[str, str], workload: Workload, rounds: int, work: Path, console: Console) -> None:
        self.subjects, self.workload, self.rounds, self.work, self.console = subjects, workload, rounds, work, console
        self.live: dict[str, Subject] = {}
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        try:
            self._load()
            self._turns("settle (flush, checkpoint, index)", lambda subject, _: subject.settle(), rounds=1)
            self._sizes("size on disk after load")
            self._reads()
            self._gets("point read")
            self._upserts()
            self._check_that_all_agree()
            self._turns("full scan after upserts", lambda subject, _: self._whole(subject))
            self._gets("point read after upserts")
            self._turns("settle after upserts", lambda subject, _: subject.settle(), rounds=1)
            self._sizes("size on disk after upserts")
            return self.results
        finally:
            for subject in self.live.values():
                subject.close()
            shutil.rmtree(self.work, ignore_errors=True)

    def _load(self) -> None:
        """Load into a fresh store each round; the start of a server is not in the time."""
        times: dict[str, list[float]] = {name: [] for name in self.subjects}
        for _ in range(self.rounds):
            for name in self.subjects:
                self._fresh(name)
            loads = {
                name: lambda _, subject=subject: subject.load(self.workload.table)
                for name, subject in self.live.items()
            }
            for name, samples in take_turns(loads, 1).items():
                times[name] += samples
        self.console.print("  load, durable")
        self.results += [Result("load, durable", name, "s", samples) for name, samples in times.items()]

    def _fresh(self, name: str) -> Subject:
        if name in self.live:
            self.live.pop(name).close()
        folder = self._folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.live[name] = subject_class(self.subjects[name])(folder, self.workload)
        return self.live[name]

    def _folder(self, name: str) -> Path:
        return self.work / "".join(letter if letter.isalnum() else "-" for letter in name.lower())

    def _reads(self) -> None:
        work = self.workload
        self._turns("full scan to Arrow", lambda subject, _: self._whole(subject))
        self._turns("two columns", lambda subject, _: subject.scan(columns=work.two_columns))
        self._turns("1 % of rows by a filter", lambda subject, _: subject.scan(where=work.hundredth))
        for asked in work.aggregates:
            self._aggregate(asked)

    def _aggregate(self, asked: Aggregate) -> None:
        self._turns(asked.case, lambda subject, _: subject.aggregate(asked))

    def _whole(self, subject: Subject) -> pa.Table:
        found = subject.scan()
        assert found.num_rows == self.workload.table.num_rows, f"{found.num_rows:,} rows"
        return found

    def _upserts(self) -> None:
        work = self.workload
        changes = [work.change(work.table, UPSERT_SHARE, number + 1) for number in range(self.rounds)]
        self._turns(UPSERT, lambda subject, number: subject.upsert(changes[number]))

    def _gets(self, case: str) -> None:
        keys = [self.workload.keys(GETS_A_ROUND, seed) for seed in range(self.rounds)]

        def get_all(subject: Subject, count: int) -> Callable[[int], None]:
            def action(number: int) -> None:
                assert all(subject.get(key) is not None for key in keys[number][:count])

            return action

        for slow, count in ((True, SLOW_GETS_A_ROUND), (False, GETS_A_ROUND)):
            chosen = [name for name in self.subjects if name.startswith(SLOW_GETS) == slow]
            self._measure(case, {name: get_all(self.live[name], count) for name in chosen}, self.rounds, count)

    def _turns(self, case: str, action: Callable[[Subject, int], Any], rounds: int | None = None) -> None:
        """Measure ``action`` on every subject in turns."""
        actions = {name: lambda number, subject=subject: action(subject, number) for name, subject in self.live.items()}
        self._measure(case, actions, rounds or self.rounds)

    def _measure(self, case: str, actions: dict[str, Callable[[int], Any]], rounds: int, each: int = 1) -> None:
        """Add the samples of those who offer it; an action makes ``each`` calls."""
        self.console.print(f"  {case}")
        lacking: set[str] = set()

        def offered(name: str, action: Callable[[int], Any]) -> Callable[[int], None]:
            def attempt(number: int) -> None:
                try:
                    action(number)
                except NotOffered:
                    lacking.add(name)

            return attempt

        samples = take_turns({name: offered(name, action) for name, action in actions.items()}, rounds)
        self.results += [
            Result(case, name, "s", [seconds / each for seconds in times])
            for name, times in samples.items()
            if name not in lacking
        ]

    def _sizes(self, case: str) -> None:
        for what, logs in (("", False), (", with logs", True)):
            for name in self.subjects:
                size = folder_bytes(self._folder(name), logs)
                self.results.append(Result(case + what, name, "MB", [size / 1e6]))

    def _check_that_all_agree(self) -> None:
        """Figures of stores that hold different rows would mean nothing."""
        sums = {}
        whole, money = self.workload.compared
        upserted = {result.subject for result in self.results if result.case == UPSERT}
        for name, subject in self.live.items():
            if name not in upserted or isinstance(subject, MachineLimit):  # they hold the rows as loaded
                continue
            found = subject.scan(columns=[whole, money])
            cents = np.rint(pc.cast(found[money], pa.float64()).to_numpy() * 100).astype(np.int64)
            sums[name] = (found.num_rows, int(found[whole].to_numpy().sum()), int(cents.sum()))
        assert len(set(sums.values())) == 1, f"the stores disagree: {sums}"


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    return _compared("compare", SUBJECTS, workloads.orders, rows, rounds, work, console)


def run_tuned(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare stores that are tuned on the same orders."""
    return _compared("tuned", TUNED, workloads.orders, rows, rounds, work, console)


def run_lineitem(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare on TPC-H's lineitem: at 10 million rows asked for, 6 million of it, which is scale 1."""
    return _compared("lineitem", SUBJECTS, workloads.lineitems, rows * 6 // 10, rounds, work, console)


def _compared(
    name: str,
    subjects: dict[str, str],
    make: Callable[[int], Workload],
    rows: int,
    rounds: int,
    work: Path,
    console: Console,
) -> Suite:
    Comparison(subjects, make(REHEARSAL_ROWS), 1, work, Console(quiet=True)).run()
    console.print(f"making {rows:,} rows")
    workload = make(rows)
    results = Comparison(subjects, workload, rounds, work, console).run()
    return Suite(name, {"rows": workload.table.num_rows, "rounds": rounds}, results)
