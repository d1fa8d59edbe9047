"""A server under steady work by client processes: how long gets take, how late a follower is, what the disk writes.

For write amplification alone, over as long as asked:  python -m bench.service.run --seconds 3600
"""

import argparse
import multiprocessing
import shutil
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench.report import Result, Suite
from bench.ycsb.mixes import ranks, scattered
from bench.ycsb.run import Pool
from bench.ycsb.servers import SCHEMA, NyalaServer, records
from bench.ycsb.stores import TABLE

READERS = 8
UPDATES_A_BATCH = 1_000
FOLLOWED_WRITES_A_SECOND = 50
SUBJECT = "Nyala over Flight"


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure for ``rounds`` times ten seconds each, on a tenth as many records as ``rows``."""
    count, period = max(1_000, rows // 10), 10.0 * rounds
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    console.print(f"  loading {count:,} records")
    server = NyalaServer(work, count)
    try:
        results = Service(server, count, period, console).run()
    finally:
        server.close()
        shutil.rmtree(work, ignore_errors=True)
    return Suite("service", {"records": count, "seconds a case": int(period)}, results)


def amplify(rows: int, seconds: float, work: Path, console: Console) -> None:
    """Update by zipf for so long, and show what the disk writes meanwhile."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    server = NyalaServer(work, rows)
    try:
        Service(server, rows, seconds, console).amplify()
    finally:
        server.close()
        shutil.rmtree(work, ignore_errors=True)


class Service:
    """One loaded server; each method measures one thing."""

    def __init__(self, server: NyalaServer, count: int, period: float, console: Console) -> None:
        self.server, self.count, self.period, self.console = server, count, period, console
        self.tasks = 0
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        pool = Pool("Nyala", self.server.address, READERS)
        try:
            self._gets(pool, "in peace")
            with Updates(self.server.address, self.count) as updates:
                begun, updated = self._written(), updates.bytes()
                self._gets(pool, "beside zipf updates, flushes and merges")
                self._follow("beside zipf updates")
                self._amplification(begun, updated, updates)
            self._follow("in peace")
            return self.results
        finally:
            pool.close()

    def amplify(self) -> None:
        with Updates(self.server.address, self.count) as updates:
            begun, updated = self._written(), updates.bytes()
            time.sleep(self.period)
            self._amplification(begun, updated, updates)

    def _gets(self, pool: Pool, when: str) -> None:
        self.tasks += 1
        taken, _ = pool.run(READERS, "C", "zipf", self.count, self.period, self.tasks)
        self._add(f"gets by {READERS} clients {when}, rate", "per s", len(taken) / self.period)
        self._quantiles(f"get by one of {READERS} clients {when}", taken)

    def _follow(self, when: str) -> None:
        """Time the way of a row from its acknowledgement to a reader that asks for changes again and again."""
        database = nyala.connect(self.server.address)
        table = database.create_table("followed", pa.schema([pa.field("id", pa.int64(), False)]), ["id"])
        acknowledged: dict[int, float] = {}
        seen: dict[int, float] = {}
        total = int(self.period * FOLLOWED_WRITES_A_SECOND)
        since = database.now()

        def follow() -> None:
            follower = nyala.connect(self.server.address).table("followed")
            at, stop = since, time.monotonic() + self.period * 3
            while len(seen) < total and time.monotonic() < stop:
                feed = follower.changes(at)
                found, moment = feed.to_arrow()["id"].to_pylist(), time.perf_counter()
                at = feed.snapshot or at
                for number in found:
                    seen[number] = moment

        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(total):
            table.insert([{"id": number}])
            acknowledged[number] = time.perf_counter()
            time.sleep(1 / FOLLOWED_WRITES_A_SECOND)
        thread.join()
        assert len(seen) == total, f"the follower saw {len(seen):,} of {total:,} rows"
        late = [max(0.0, seen[number] - acknowledged[number]) for number in range(total)]
        self._quantiles(f"from an acknowledged row to a follower of changes {when}", np.array(late))
        database.drop_table("followed")
        database.close()

    def _amplification(self, begun: int, updated: int, updates: "Updates") -> None:
        """Compare what the process wrote, logs included, with the bytes of the updates."""
        written, given = self._written() - begun, updates.bytes() - updated
        self._add("updates by zipf, keys and one field of 100 bytes", "MB", given / 1e6)
        self._add("written to disk meanwhile, logs included", "MB", written / 1e6)
        self._add("write amplification", "times", written / given)

    def _written(self) -> int:
        """Return the bytes that the server passed to ``write``; it sends to sockets by other calls.

        What the system counts as sent to the disk is no measure: it takes a large page whole for each write into it.
        """
        counters = Path(f"/proc/{self.server.process.pid}/io").read_text().splitlines()
        return int(next(line for line in counters if line.startswith("wchar")).partition(":")[2])

    def _quantiles(self, case: str, taken: np.ndarray) -> None:
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            self._add(f"{case}, {name}", "s", float(np.quantile(taken, share)))

    def _add(self, case: str, unit: str, value: float) -> None:
        self.console.print(f"  {case}: {value:,.5g} {unit}")
        self.results.append(Result(case, SUBJECT, unit, [value]))


class Updates:
    """A process that updates one field of zipf-chosen rows, a batch after the other, until the block ends."""

    def __init__(self, address: str, count: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._stop = spawn.Event()
        self._rows = spawn.Value("q", 0)
        self._process = spawn.Process(target=_update, args=(address, count, self._stop, self._rows))

    def bytes(self) -> int:
        """Return the bytes of keys and cells that were given so far."""
        return self._rows.value * (8 + 100)

    def __enter__(self) -> "Updates":
        self._process.start()
        while not self._rows.value:
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join()
        assert self._process.exitcode == 0, "the writer failed"


def _update(address: str, count: int, stop: Event, rows: Any) -> None:
    random = np.random.default_rng(3)
    chosen = ranks(count, "zipf", random)
    with nyala.connect(address) as database:
        table = database.table(TABLE)
        while not stop.is_set():
            keys = np.unique([scattered(next(chosen), count) for _ in range(UPDATES_A_BATCH)])
            values = next(records(len(keys))).column(1)
            table.update(pa.record_batch([pa.array(keys), values], schema=pa.schema([SCHEMA[0], SCHEMA[1]])))
            rows.value += len(keys)
            time.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="of updates (default: an hour)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of ten fields of 100 bytes")
    asked = parser.parse_args()
    amplify(asked.rows, asked.seconds, Path(__file__).parents[1] / "scratch" / "amplify", Console())
