"""One subject after the other: loaded anew, upserted into, and compared row by row with what it must hold."""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from rich.console import Console

from bench.report import RESULTS, Result, Suite

from . import rows
from .processes import Limits, Outcome, Team
from .rows import Sizes
from .servers import SUBJECTS, Subject, available

NAME = "upserts"
CHANGES_SHARE = 10
SMALL, PROCESSES = 1_000, 8
REHEARSAL = Sizes(20_000, 2_000, 80, PROCESSES)
HARD_FACTOR = 2
"""Small calls that began in time have as long again to end."""
LOAD, LARGE, SMALL_RATE = "load", "upsert of many rows in one call", "small upserts by all processes at once"
LARGE_PEAK, SMALL_PEAK = f"{LARGE}: peak of memory", f"{SMALL_RATE}: peak of memory"
SMALL_CALLS, SMALL_AGAIN = f"{SMALL_RATE}: calls", f"{SMALL_RATE}: tried again"
BUSY = "load average of the machine before"
LOST, DOUBLED = "lost", "doubled"
AFTER_LARGE, AFTER_SMALL = "rows {} after the large upsert", "rows {} at the end"


class Upserts:
    """The files with all rows, and what was measured so far."""

    def __init__(self, sizes: Sizes, limits: Limits, work: Path, console: Console) -> None:
        self.sizes, self.limits, self.work, self.console = sizes, limits, work.resolve(), console
        self.results: dict[tuple[str, str], Result] = {}
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        rows.make(work, sizes)

    def measure(self, name: str, subject: Subject) -> None:
        """Load a subject, upsert into it and compare its rows; a second time adds samples."""
        folder = self.work / "".join(letter if letter.isalnum() else "-" for letter in name.lower())
        folder.mkdir()
        try:
            self._measure(name, subject, folder)
        finally:
            shutil.rmtree(folder)

    def _measure(self, name: str, subject: Subject, folder: Path) -> None:
        self._add(BUSY, name, "", os.getloadavg()[0])
        loaded = self._task(name, subject, folder, "load", ["0"])
        if not loaded.answers:
            raise RuntimeError(f"{name} was ended while it loaded, by its {loaded.ended_by}")
        self._add(LOAD, name, "s", loaded.answers[0]["seconds"])
        has_large = False
        if subject.has_large:
            large = self._task(name, subject, folder, "large", ["0"])
            has_large = bool(large.answers)
            seconds = large.answers[0]["seconds"] if has_large else large.seconds
            self._add(LARGE, name, "s", seconds, beyond=not has_large)
            self._add(LARGE_PEAK, name, "MB", large.peak_bytes / 1e6, beyond=not has_large)
            self._check(name, subject, folder, has_large, None)
        if subject.has_small:
            self._small(name, subject, folder, has_large)

    def _small(self, name: str, subject: Subject, folder: Path, has_large: bool) -> None:
        numbers = [str(process) for process in range(self.sizes.processes)]
        small = self._task(name, subject, folder, "small", [",".join(numbers)] if subject.threads else numbers)
        answered = [answer["process"] for answer in small.answers if "seconds" in answer]
        self._add(SMALL_RATE, name, "per s", len(answered) / small.seconds)
        self._add(SMALL_CALLS, name, "calls", len(answered))
        self._add(SMALL_AGAIN, name, "calls", sum(answer["again"] for answer in small.answers))
        self._add(SMALL_PEAK, name, "MB", small.peak_bytes / 1e6, beyond=bool(small.ended_by))
        self._check(name, subject, folder, has_large, [answered.count(int(number)) for number in numbers])

    def _task(self, name: str, subject: Subject, folder: Path, task: str, processes: list[str]) -> Outcome:
        """Run one task in new processes, before a server that has just started."""
        os.sync()  # else a store that syncs waits for what others wrote
        begin = self.limits.small_seconds if task == "small" else self.limits.seconds
        end = begin * HARD_FACTOR if task == "small" else begin
        with closing(subject.server(folder)) as server:
            commands = [[name, server.address, task, str(self.work), process] for process in processes]
            team = Team(commands, server.process_ids, self.work / "log")
            return team.run(begin, end, self.limits)

    def _check(self, name: str, subject: Subject, folder: Path, has_large: bool, small: list[int] | None) -> None:
        rows.note_answers(self.work, has_large, small)
        outcome = self._task(name, subject, folder, "check", ["0"])
        if not outcome.answers:
            raise RuntimeError(f"the rows of {name} could not be compared: ended by its {outcome.ended_by}")
        case = AFTER_LARGE if small is None else AFTER_SMALL
        for kind in (LOST, DOUBLED):
            self._add(case.format(kind), name, "rows", outcome.answers[0][kind])

    def _add(self, case: str, name: str, unit: str, sample: float, beyond: bool = False) -> None:
        self.console.print(f"  {name}, {case}: {'> ' if beyond else ''}{sample:,.4g} {unit}")
        earlier = self.results.get((case, name))
        samples = [*(earlier.samples if earlier else []), sample]
        self.results[case, name] = Result(case, name, unit, samples, beyond or bool(earlier and earlier.beyond))


def measure(
    sizes: Sizes,
    limits: Limits,
    rounds: int,
    work: Path,
    console: Console,
    names: Iterable[str] | None = None,
    keep: Callable[[Suite], object] = lambda suite: None,
) -> Suite:
    """Measure subjects, all by default; figures of others, stored by a run of the same sizes, stay.

    ``keep`` gets the figures so far after each subject: a run takes an hour.
    """
    settings = {
        "rows": sizes.rows,
        "rows of the large upsert": sizes.changes,
        "small upserts": sizes.calls * sizes.processes,
        "rows of each": rows.CALL_ROWS,
        "processes": sizes.processes,
        "rounds": rounds,
    }
    subjects = {name: each for name, each in available().items() if names is None or name in names}
    bench = Upserts(sizes, limits, work, console)
    try:
        for number in range(rounds):
            order = list(subjects.items())
            for name, subject in reversed(order) if number % 2 else order:
                if any(each.beyond for each in bench.results.values() if each.subject == name):
                    continue  # a limit ended it before: it would again
                bench.measure(name, subject)
                keep(_merged(settings, bench.results.values()))
    finally:
        shutil.rmtree(bench.work)
    return _merged(settings, bench.results.values())


def _merged(settings: dict[str, int], new: Iterable[Result]) -> Suite:
    results = {(each.case, each.subject): each for each in new}
    measured = {subject for _, subject in results}
    file = RESULTS / f"{NAME}.json"
    if file.exists() and (stored := Suite.load(file)).settings == settings:
        results |= {(each.case, each.subject): each for each in stored.results if each.subject not in measured}
    names = list(SUBJECTS)
    return Suite(NAME, settings, sorted(results.values(), key=lambda each: names.index(each.subject)))


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure all subjects, a tenth of the rows upserted in one call, after a rehearsal of Nyala."""
    rehearse(work)
    sizes = Sizes(rows, rows // CHANGES_SHARE, SMALL, PROCESSES)
    return measure(sizes, Limits(), rounds, work, console)


def rehearse(work: Path) -> None:
    """Let Nyala compile the kernels that it uses."""
    nyala = [name for name in SUBJECTS if name.startswith("Nyala")]
    measure(REHEARSAL, Limits(), 1, work, Console(quiet=True), nyala)
