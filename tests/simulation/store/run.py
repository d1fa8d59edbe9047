"""Run: one seed, from its plan to the verdict."""

from __future__ import annotations

import gc
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

from nyala.engine import threads
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.engine.store import Store
from tests.simulation.choices import choices_of
from tests.simulation.lines import LineTurns
from tests.simulation.scheduler import Scheduler, Stopped
from tests.simulation.world import Kept, Undivided, simulated

from . import tables
from .actors import Company
from .checks import Checker, ViolationError
from .history import NEVER, History
from .plan import TABLES, Actor, Plan, Step, plan_of

_WARM_SEEDS = 4
_STEPS_OF_A_CALL = 60
"""So many points a call passes, in the order of magnitude: a crash is drawn within those of a life."""


@dataclass
class Outcome:
    """What became of a seed, of a store or of a cluster."""

    plan: Any
    trace: str
    history: History
    steps: int = 0
    switches: int = 0
    seconds: float = 0.0
    """In virtual time."""
    crashes: int = 0
    """Failures that were brought about."""
    error: BaseException | None = None
    lines: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """What befell the servers of a cluster."""


def run_seed(seed: int, lines_kept: int = 0) -> Outcome:
    """Run the plan of a seed."""
    return run(plan_of(seed), lines_kept)


def run(plan: Plan, lines_kept: int = 0) -> Outcome:
    """Run a plan; its seed also draws the turns. No error is raised: the outcome has it."""
    _warm_process()
    return _run(plan, lines_kept)


@cache
def _warm_process() -> None:
    """Do all once that a process does only at the first time: a run must not depend on whether others were before."""
    warm_up()
    for seed in range(_WARM_SEEDS):
        _run(plan_of(seed), 0)


def _run(plan: Plan, lines_kept: int) -> Outcome:
    life = _Lives(plan, lines_kept)
    gc.disable()  # its moment is chance
    try:
        life.run()
    except Exception as error:
        life.outcome.error = error
    finally:
        gc.enable()
    return life.outcome


@contextmanager
def _syncs_take(seconds: float, files: str) -> Iterator[None]:
    """Let each sync of such a file begin with a wait: what is to be synced is in flight for so long."""
    sync = MemoryWritableFile.sync

    def sync_later(file: MemoryWritableFile) -> None:
        if file._path.startswith(files):
            threads.sleep(seconds)
        sync(file)

    with patch.object(MemoryWritableFile, "sync", sync_later) if seconds else nullcontext():
        yield


class _Lives:
    """The lives of a run, on one disk."""

    def __init__(self, plan: Plan, lines_kept: int) -> None:
        self._plan, self._lines_kept = plan, lines_kept
        self._history = History()
        self._disk = MemoryFileSystem()
        self._recovered: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        self._since = 0
        """A moment before all writes that a crash cut short."""
        self._seconds = 0.0
        self.outcome = Outcome(plan, "", self._history)

    def run(self) -> None:
        """Run all lives, then check what happened in them."""
        for number, life in enumerate(self._plan.lives):
            end = self._plan.ends[number] if number < len(self._plan.ends) else "close"
            self._live(number, life, end)
        if self._plan.lives and self._plan.ends:
            self._live(len(self._plan.lives), (), "close")
        digest = hashlib.sha256("\n".join(map(str, self._history.calls)).encode())
        self.outcome.trace += digest.hexdigest()[:16]
        Checker(self._history).check(self._recovered)

    def _live(self, number: int, life: tuple[Actor, ...], end: str) -> None:
        seed, outcome = f"{self._plan.seed} {number}", self.outcome
        scheduler = Scheduler(
            choices_of(Random(f"{seed} choices")), Random(f"{seed} time"), lines_kept=self._lines_kept
        )
        scheduler.now = self._seconds
        random = Random(f"{seed} life")
        if end != "close":
            calls = sum(len(actor.steps) for actor in life)
            scheduler.stop_at(random.randrange(1, _STEPS_OF_A_CALL * (calls + 4)), lambda: self._crash(end, random))
        disk = self._disk
        disk._mutex = Undivided(scheduler)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            lines = LineTurns(scheduler, Random(f"{seed} lines"), self._plan.line_every)
            with simulated(scheduler, random), _syncs_take(self._plan.sync_seconds, self._plan.slow_files), lines:
                scheduler.run(lambda: self._work(life, random))
        except Stopped:
            outcome.crashes += 1
        finally:
            outcome.steps += scheduler.steps
            outcome.switches += scheduler.switches
            self._seconds = scheduler.now + 0.001
            outcome.seconds = self._seconds
            outcome.trace += scheduler.trace[:16]
            outcome.lines += scheduler.lines
        if scheduler.failures and disk is self._disk:
            name, error = scheduler.failures[0]
            error.add_note(f"in the thread {name!r}")
            raise error

    def _work(self, life: tuple[Actor, ...], random: Random) -> None:
        store = Store.open(self._disk, self._plan.store_options)
        company = Company(store, self._disk, self._history, random, are_kept=self._plan.seed % 5 < 2)
        tables.create(company.database, self._plan.buckets, self._plan.history_seconds)
        self._since = self._since or company.database.now()
        self._look_back(company)
        company.run(life)
        for name in TABLES:
            self._final_scan(company, name)
        store.close()

    def _look_back(self, company: Company) -> None:
        """Read what the writes did that have no answer."""
        if all(call.ended != NEVER for call in self._history.calls):
            return
        answered = {getattr(call.answer, "timestamp", 0) for call in self._history.calls}
        changes: dict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        now = company.database.now()
        for name in TABLES:
            for row in tables.changes(company.database.table(name), self._since, now, is_every=True):
                if row["_timestamp"] not in answered:
                    changes[row["_timestamp"]].append((name, row))
        for moment, rows in changes.items():
            if moment not in self._recovered:
                self._recovered[moment] = rows
            elif sorted(map(str, rows)) != sorted(map(str, self._recovered[moment])):
                raise ViolationError(f"the commit at {moment} has changed: {self._recovered[moment]}, then {rows}")

    def _final_scan(self, company: Company, name: str) -> None:
        call = self._history.begin("last", Step("scan", name, (False,)))
        call.answer = tables.rows_of(company.database.table(name).scan().to_arrow())
        self._history.end(call)

    def _crash(self, end: str, random: Random) -> None:
        chance = random if end == "power" else Kept()
        self._disk = self._disk.crash_image(chance)
