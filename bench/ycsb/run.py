"""YCSB's workloads A to F by 1, 8 and 32 client processes, uniform and zipf, beside SQLite and PostgreSQL."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.report import Result, Suite

from .client import KEYS_A_TASK, WARM_SECONDS, Task, line
from .mixes import DISTRIBUTIONS, MIXES
from .servers import available

CLIENTS = (1, 8, 32)
ROWS_A_RECORD = 10
"""A record is a thousand bytes: ten million rows of other suites stand for one million here."""


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

    def run(self, count: int, mix: str, distribution: str, records: int, seconds: float, number: int) -> np.ndarray:
        """Run the ``number``-th task by the first ``count`` clients; return the seconds of all operations."""
        start = time.time() + WARM_SECONDS
        for place, process in enumerate(self.processes[:count]):
            first_key = (1 + number * len(self.processes) + place) * KEYS_A_TASK
            process.stdin.write(line(Task(mix, distribution, records, start, seconds, first_key)))  # pyright: ignore
        taken = [json.loads(process.stdout.readline()) for process in self.processes[:count]]  # pyright: ignore
        return np.concatenate([np.array(each) for each in taken])

    def close(self) -> None:
        for process in self.processes:
            process.communicate(timeout=60)


class Ycsb:
    """The stores with the same records, asked in turns."""

    def __init__(self, records: int, seconds: float, work: Path, console: Console) -> None:
        self.records, self.seconds, self.console = records, seconds, console
        shutil.rmtree(work, ignore_errors=True)
        self.servers, self.pools = {}, {}
        for name, server in available().items():
            folder = work / name.lower()
            folder.mkdir(parents=True)
            console.print(f"  loading {records:,} records into {name}")
            self.servers[name] = server(folder, records)
            self.pools[name] = Pool(name, self.servers[name].address, max(CLIENTS))
        self.tasks = 0

    def run(self) -> list[Result]:
        results: list[Result] = []
        for mix, what in MIXES.items():
            for distribution in DISTRIBUTIONS:
                for clients in CLIENTS:
                    case = f"{mix} ({what.name}), {distribution}, clients: {clients}"
                    results += self._case(case, mix, distribution, clients)
        return results

    def _case(self, case: str, mix: str, distribution: str, clients: int) -> list[Result]:
        results: list[Result] = []
        for name, pool in self.pools.items():
            self.tasks += 1
            taken = pool.run(clients, mix, distribution, self.records, self.seconds, self.tasks)
            if not len(taken):
                raise RuntimeError(f"{name} ended no operation within {self.seconds} s: {case}")
            results += [
                Result(case, f"{name}, rate", "per s", [len(taken) / self.seconds]),
                Result(case, f"{name}, p50", "s", [float(np.quantile(taken, 0.5))]),
                Result(case, f"{name}, p99", "s", [float(np.quantile(taken, 0.99))]),
            ]
        rates = ", ".join(f"{name} {found.median:,.0f}" for name, found in zip(self.pools, results[::3], strict=True))
        self.console.print(f"  {case}: {rates} per s")
        return results

    def close(self) -> None:
        for part in [*self.pools.values(), *self.servers.values()]:
            part.close()


def measure(records: int, seconds: float, work: Path, console: Console) -> Suite:
    """Measure each case once, for some seconds."""
    bench = Ycsb(records, seconds, work, console)
    try:
        results = bench.run()
    finally:
        bench.close()
        shutil.rmtree(work, ignore_errors=True)
    return Suite("ycsb", {"records": records, "seconds a case": seconds}, results)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure each case for as many seconds as other suites have rounds, on a tenth of their rows."""
    return measure(max(1_000, rows // ROWS_A_RECORD), rounds, work, console)
