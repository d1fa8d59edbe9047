"""Reads of a store that another process has, beside those of that process; and what a reader that polls costs it."""

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

import nyala
from bench import data
from bench.engine.scratch import REHEARSAL_ROWS, Results, scratch_store
from bench.measure import take_turns
from bench.report import Suite

READS = 500
WRITE_SECONDS = 4.0
POLL_SECONDS = 0.01
IN_PROCESS, READ_ONLY = "the process that has it", "read_only, another process"


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    measure(REHEARSAL_ROWS, 1, work, Console(quiet=True))
    rows = min(rows, 1_000_000)
    return Suite("read_only", {"rows": rows, "rounds": rounds}, measure(rows, rounds, work, console).all)


def measure(rows: int, rounds: int, work: Path, console: Console) -> Results:
    """Return microseconds of reads here and in the reader, and the commits a second of a writer beside it."""
    results, context = Results(console), multiprocessing.get_context("spawn")
    with scratch_store(work) as database:
        table = database.create_table("orders", data.SCHEMA, [data.KEY])
        table.insert(data.orders(rows))
        table.maintain("flush")
        keys = table.scan([data.KEY], limit=READS).to_arrow()[data.KEY].to_pylist()
        here, there = context.Pipe()
        reader = context.Process(target=_serve_reads, args=(str(work), keys, there), daemon=True)
        reader.start()
        here.send(("look", rounds))
        results.add("a look at an idle log", "us", here.recv(), READ_ONLY)
        for case, reads in _cases(keys).items():
            samples = take_turns({IN_PROCESS: lambda _, reads=reads: reads(table)}, rounds)
            results.add(case, "us", [each / READS * 1e6 for each in samples[IN_PROCESS]], IN_PROCESS)
            here.send((case, rounds))
            results.add(case, "us", here.recv(), READ_ONLY)
        _write_beside(table, rows, rounds, here, results)
        here.send(("end", 0))
        reader.join()
    return results


def _cases(keys: list[int]) -> dict[str, Callable[[Any], None]]:
    random = Random(1)

    def get(table: Any) -> None:
        for _ in range(READS):
            table.get(random.choice(keys))

    def scan(table: Any) -> None:
        for _ in range(READS):
            table.scan(where=f"{data.KEY} = {random.choice(keys)} AND price >= 0").to_arrow()

    return {"get": get, "small scan": scan}


def _write_beside(table: Any, rows: int, rounds: int, reader: Any, results: Results) -> None:
    """Write single rows while nobody reads, and while the reader reads a row every ten milliseconds."""
    row = table.scan(limit=1).to_arrow().to_pylist()[0]
    numbers = iter(range(rows * 10, 1 << 60))

    def rate() -> float:
        end, commits = time.perf_counter() + WRITE_SECONDS, 0
        while time.perf_counter() < end:
            table.upsert([{**row, data.KEY: next(numbers)}])
            commits += 1
        return commits / WRITE_SECONDS

    rates: dict[str, list[float]] = {"no reader": [], "a reader polls": []}
    for _ in range(rounds):
        rates["no reader"].append(rate())
        reader.send(("poll", 0))
        rates["a reader polls"].append(rate())
        reader.send(("rest", 0))
        reader.recv()
    for subject, samples in rates.items():
        results.add("commits of single rows", "commits/s", samples, subject)


def _serve_reads(directory: str, keys: list[int], pipe: Any) -> None:
    """Measure in the process of the reader whatever the other one asks for."""
    with nyala.open(directory, read_only=True) as database:
        table, cases = database.table("orders"), _cases(keys)
        for reads in cases.values():
            reads(table)
        while True:
            case, rounds = pipe.recv()
            if case == "end":
                return
            if case == "poll":
                while not pipe.poll(POLL_SECONDS):
                    table.get(keys[0])
                pipe.recv()
                pipe.send(None)
                continue
            actions = {case: partial(cases[case], table) if case in cases else partial(_look, database)}
            samples = take_turns({name: lambda _, do=do: do() for name, do in actions.items()}, rounds)[case]
            pipe.send([each / READS * 1e6 for each in samples])


def _look(database: Any) -> None:
    for _ in range(READS):
        database._store._look(0.0)
