"""YCSB's workloads A to F by 1, 8 and 32 client processes, uniform and zipf, beside SQLite and PostgreSQL; and two of
them on more records than the cache has room for."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.report import Result, Suite

from .client import KEYS_A_TASK, WARM_SECONDS, Task, line
from .mixes import DISTRIBUTIONS, MIXES
from .servers import LARGE, SERVERS, available

CLIENTS = (1, 8, 32)
ROWS_A_RECORD = 10
"""A record is a thousand bytes: ten million rows of other suites stand for one million here."""
FEW = 10
"""So many times fewer records fit into all caches."""
LARGE_MIXES = "AC"
FIGURES = ("rate", "p50", "p99", "client")
"""Of each case, in the order of the table."""


class Pool:
    """Client processes of one store, started once."""

    def __init__(self, store: str, address: str, count: int) -> None:
        command = [sys.executable, "-m", "bench.ycsb.client", store, address]
        root = Path(__file__).parent.parent.parent
        self.processes = [
            subprocess.Popen(
                [*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True, bufsize=1
            )
            for number in range(count)
        ]
        for process in self.processes:  # the first case would run beside their start
            process.stdout.readline()  # pyright: ignore

    def run(
        self, count: int, mix: str, distribution: str, records: int, seconds: float, number: int
    ) -> tuple[np.ndarray, float]:
        """Run the ``number``-th task by the first ``count`` clients; return the seconds of all operations, and those of
        the clients' processors for all together."""
        start = time.time() + WARM_SECONDS
        for place, process in enumerate(self.processes[:count]):
            first_key = (1 + number * len(self.processes) + place) * KEYS_A_TASK
            process.stdin.write(line(Task(mix, distribution, records, start, seconds, first_key)))  # pyright: ignore
        taken = [json.loads(process.stdout.readline()) for process in self.processes[:count]]  # pyright: ignore
        return np.concatenate([np.array(each[1:]) for each in taken]), sum(each[0] for each in taken)

    def close(self) -> None:
        for process in self.processes:
            process.communicate(timeout=60)


class Ycsb:
    """The stores with the same records, asked in turns."""

    def __init__(self, servers: dict[str, type], records: int, seconds: float, work: Path, console: Console) -> None:
        self.records, self.seconds, self.console = records, seconds, console
        shutil.rmtree(work, ignore_errors=True)
        self.servers, self.pools = {}, {}
        for name, server in available(servers).items():
            folder = work / name.lower().replace(", ", "-").replace(" ", "-")
            folder.mkdir(parents=True)
            console.print(f"  loading {records:,} records into {name}")
            self.servers[name] = server(folder, records)
            self.pools[name] = Pool(name, self.servers[name].address, max(CLIENTS))
        self.tasks = 0
        os.sync()  # else a store that syncs waits for what another one has loaded

    def run(self, mixes: Iterable[str], suffix: str = "") -> list[Result]:
        """Run some mixes by all numbers of clients; ``suffix`` ends the names of the cases."""
        results: list[Result] = []
        for mix in mixes:
            for distribution in DISTRIBUTIONS:
                for clients in CLIENTS:
                    case = f"{mix} ({MIXES[mix].name}), {distribution}, clients: {clients}{suffix}"
                    results += self._case(case, mix, distribution, clients)
        return results

    def _case(self, case: str, mix: str, distribution: str, clients: int) -> list[Result]:
        results: list[Result] = []
        for name, pool in self.pools.items():
            self.tasks += 1
            taken, spent = pool.run(clients, mix, distribution, self.records, self.seconds, self.tasks)
            if not len(taken):
                raise RuntimeError(f"{name} ended no operation within {self.seconds} s: {case}")
            results += [
                Result(f"{case}: rate", name, "per s", [len(taken) / self.seconds]),
                Result(f"{case}: p50", name, "s", [float(np.quantile(taken, 0.5))]),
                Result(f"{case}: p99", name, "s", [float(np.quantile(taken, 0.99))]),
                Result(f"{case}: client", name, "s", [spent / len(taken)]),
            ]
        rates = ", ".join(f"{each.subject} {each.median:,.0f}" for each in results[::4])
        self.console.print(f"  {case}: {rates} per s")
        return results

    def close(self) -> None:
        for part in [*self.pools.values(), *self.servers.values()]:
            part.close()


def measure(records: int, seconds: float, work: Path, console: Console) -> Suite:
    """Measure each case once, for some seconds: all mixes on records that fit into all caches, and some of them on
    ``records``, four times the page cache of Nyala."""
    few = max(1_000, records // FEW)
    results: list[Result] = []
    for servers, count, mixes, suffix in (
        (SERVERS, few, MIXES, ""),
        (LARGE, records, LARGE_MIXES, "; four times the cache"),
    ):
        bench = Ycsb(servers, count, seconds, work, console)
        try:
            results += bench.run(mixes, suffix)
        finally:
            bench.close()
            shutil.rmtree(work, ignore_errors=True)
    results.sort(key=lambda each: FIGURES.index(each.case.rpartition(": ")[2]))
    return Suite("ycsb", {"records": few, "records, four times the cache": records, "seconds a case": seconds}, results)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure each case for as many seconds as other suites have rounds, on a tenth of their rows."""
    return measure(max(1_000, rows // ROWS_A_RECORD), rounds, work, console)
