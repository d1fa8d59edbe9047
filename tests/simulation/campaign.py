"""Campaign: many seeds of a simulation in several processes, and what to do with a seed that failed.

A seed that fails is run again, made smaller, and printed with the command that replays it. Each process works on its
own processor: a turn that goes from one thread to another costs a quarter there.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.progress import track
from rich.table import Table

_SECONDS_OF_A_SEED = 120
_RECORD = "seed-record:"


class Outcome(Protocol):
    """What became of a seed."""

    plan: Any
    trace: str
    steps: int
    switches: int
    seconds: float
    crashes: int
    error: BaseException | None
    lines: list[str]


@dataclass(frozen=True)
class Simulation:
    """A kind of simulation: how it is called, and how a plan is drawn, run and shown."""

    module: str
    draw: Callable[[int], Any]
    run: Callable[[Any, int], Outcome]
    story: Callable[[Any], Iterator[str]]
    """Yields the calls of an outcome, for a reader."""
    planted: Mapping[str, Callable[[], contextlib.AbstractContextManager[object]]]
    """Mistakes that it must find, by name."""


@dataclass
class Sums:
    """What many seeds came to."""

    seeds: int = 0
    steps: int = 0
    switches: int = 0
    crashes: int = 0
    virtual_seconds: float = 0.0


def main(simulation: Simulation) -> int:
    """Run what the command line names; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {simulation.module}")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this one, and show all that it did")
    parser.add_argument("--start", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="end after so long, however many seeds are left")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    planted = "break the product in a way that the simulation must find"
    parser.add_argument("--planted", choices=sorted(simulation.planted), help=planted)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        words = [sys.executable, *_module_words(), *sys.argv[1:]]
        os.execve(sys.executable, words, os.environ | {"PYTHONHASHSEED": "0"})
    if options.planted:
        with simulation.planted[options.planted]():
            return _run(simulation, options)
    return _run(simulation, options)


def _run(simulation: Simulation, options: argparse.Namespace) -> int:
    if options.replay is not None:
        return show(simulation, options.replay)
    return sweep(simulation, options)


def show(simulation: Simulation, seed: int) -> int:
    """Run one seed twice, and print its plan and its calls; if it fails, the smallest plan that still does."""
    console = Console(highlight=False, soft_wrap=True)
    plan = simulation.draw(seed)
    first, second = simulation.run(plan, 200), simulation.run(plan, 0)
    if first.trace != second.trace:
        console.print(f"[red]seed {seed} went two ways[/]: {first.trace} and {second.trace}")
        return 1
    if first.error is not None:
        console.print(f"seed {seed} fails; looking for the smallest plan that does", markup=False)
        plan, first = smallest(simulation, plan)
    console.print(str(plan), markup=False)
    for line in simulation.story(first):
        console.print(line, markup=False)
    console.print("the last turns:", *first.lines[-40:], sep="\n  ", markup=False)
    console.print(f"trace {first.trace}, {first.steps:,} steps, {first.switches:,} turns given away", markup=False)
    if first.error is not None:
        console.print(f"{type(first.error).__name__}: {first.error}", markup=False)
    return int(first.error is not None)


def smallest(simulation: Simulation, plan: Any, seconds: float = 60.0) -> tuple[Any, Outcome]:
    """Return the smallest plan found that fails as ``plan`` does, and its outcome."""
    outcome = simulation.run(plan, 200)
    reason, until = type(outcome.error), time.monotonic() + seconds
    is_smaller = True
    while is_smaller and time.monotonic() < until:
        is_smaller = False
        for smaller in plan.smaller():
            if time.monotonic() > until:
                break
            tried = simulation.run(smaller, 200)
            if type(tried.error) is reason:
                plan, outcome, is_smaller = smaller, tried, True
                break
    return plan, outcome


def run_some(simulation: Simulation, seeds: range, until: float, report: Callable[[int, Outcome], None]) -> None:
    """Run seeds one after the other until a moment."""
    for seed in seeds:
        if time.monotonic() > until:
            return
        faulthandler.dump_traceback_later(_SECONDS_OF_A_SEED, exit=True)
        report(seed, simulation.run(simulation.draw(seed), 0))
    faulthandler.cancel_dump_traceback_later()


def sweep(simulation: Simulation, options: argparse.Namespace) -> int:
    """Run many seeds in processes of their own; return 1 if one failed."""
    console = Console(highlight=False, soft_wrap=True)
    until = time.monotonic() + (options.minutes * 60 if options.minutes else 1e9)
    began, sums, failures = time.monotonic(), Sums(), list[tuple[int, str]]()
    if (place := os.environ.get("NYALA_SIMULATION_PLACE")) is not None:
        _work_at(simulation, options, int(place), until)
        return 0
    with _workers(options) as workers:
        for line in track(_lines(workers), "seeds", options.seeds, console=console, disable=not console.is_terminal):
            seed, steps, switches, crashes, seconds, error = line.split(" ", 5)
            sums.seeds += 1
            sums.steps, sums.switches = sums.steps + int(steps), sums.switches + int(switches)
            sums.crashes, sums.virtual_seconds = sums.crashes + int(crashes), sums.virtual_seconds + float(seconds)
            if error.strip():
                failures.append((int(seed), error.strip()))
                console.print(f"seed {seed} fails: {error.strip()[:300]}", markup=False)
                console.print(f"  python -m {simulation.module} --replay {seed}", markup=False)
    spent = time.monotonic() - began
    table = Table(
        "seeds", "failed", "steps", "turns", "crashes", "virtual hours", "seeds an hour", title=simulation.module
    )
    table.add_row(
        f"{sums.seeds:,}", f"{len(failures):,}", f"{sums.steps:,}", f"{sums.switches:,}", f"{sums.crashes:,}",
        f"{sums.virtual_seconds / 3600:,.1f}", f"{sums.seeds / spent * 3600:,.0f}",
    )  # fmt: skip
    console.print(table)
    codes = [worker.wait() for worker in workers]
    if any(codes):
        console.print(f"a process ended with {codes}: a seed hangs, see above", markup=False)
    return int(bool(failures) or any(codes))


def _work_at(simulation: Simulation, options: argparse.Namespace, place: int, until: float) -> None:
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[place % len(processors)]})

    def report(seed: int, outcome: Outcome) -> None:
        error = "" if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}".replace("\n", " ")
        figures = f"{outcome.steps} {outcome.switches} {outcome.crashes} {outcome.seconds:.3f}"
        print(f"{_RECORD}{seed} {figures} {error}", flush=True)

    seeds = range(options.start + place, options.start + options.seeds, options.workers)
    run_some(simulation, seeds, until, report)


@contextlib.contextmanager
def _workers(options: argparse.Namespace) -> Iterator[list[subprocess.Popen[str]]]:
    """Start this command once for each worker, with the same order of all sets in each."""
    workers = [
        subprocess.Popen(
            [sys.executable, *_module_words(), *sys.argv[1:]],
            env=os.environ | {"NYALA_SIMULATION_PLACE": str(place), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in range(options.workers)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def _module_words() -> list[str]:
    spec = sys.modules["__main__"].__spec__
    return ["-m", spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]


def _lines(workers: list[subprocess.Popen[str]]) -> Iterator[str]:
    """Yield the records of all workers as they come."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read(worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            if line.startswith(_RECORD):
                lines.put(line.removeprefix(_RECORD))
        lines.put(None)

    for worker in workers:
        threading.Thread(target=read, args=(worker,), daemon=True).start()
    left = len(workers)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            yield line
