"""A large load as users make it, on a store that writes large batches to disk at once and on one that does not.

    python -m bench.engine.direct_load [--rows N] [--rounds N] [--order sorted shuffled] [--over process flight]
                                       [--commit MIB ...]

``Table.insert`` of one Arrow table; the client cuts it into commits, of rows in the order of their keys up to
``--commit``, of others 8 MiB. ``load`` ends when the last commit is acknowledged, ``first`` and ``longest`` are the
times to the first answer and between two of them, ``settled`` ends when all rows are in files. The store's process is
new for each load, so that processor time and memory are its own: over Flight the client has another. "off" is the
ordinary way, with commits of 8 MiB. Needs Linux.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import nyala
from bench import data
from nyala.clients.api.database import Database
from nyala.clients.convert import batching
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer

WORK = Path(__file__).parent.parent / "scratch" / "direct_load"
MIB = 1 << 20
NEVER = 1 << 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--order", nargs="+", choices=["sorted", "shuffled"], default=["sorted", "shuffled"])
    parser.add_argument("--over", nargs="+", choices=["process", "flight"], default=["process", "flight"])
    parser.add_argument("--commit", type=int, nargs="+", default=[batching.ORDERED_COMMIT_BYTES // MIB], metavar="MIB")
    parser.add_argument("--load", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(bool(given.serve))
    elif given.load:
        print(json.dumps(load(**given.load)))
    else:
        compare(given)


def compare(given: argparse.Namespace) -> None:
    """Load in all the ways asked for, in turn, and print the medians."""
    ways: list[dict[str, Any]] = [
        {"rows": given.rows, "order": order, "over": over, "commit": commit}
        for over in given.over
        for order in given.order
        for commit in (0, *(given.commit if order == "sorted" else given.commit[:1]))
    ]
    samples: list[list[dict[str, float]]] = [[] for _ in ways]
    for _ in range(given.rounds):
        for way, found in zip(ways, samples, strict=True):
            found.append(in_a_process(way))
    for way, found in zip(ways, samples, strict=True):
        medians = {name: statistics.median(sample[name] for sample in found) for name in found[0]}
        name = f"commits up to {way['commit']} MiB" if way["commit"] else "off"
        print(f"{way['over']:8} {way['order']:9} {name:22}  ", end="")
        print("  ".join(f"{name} {value:,.2f}" for name, value in medians.items()))


def in_a_process(way: dict[str, Any]) -> dict[str, float]:
    """Load in a new process and return its figures."""
    command = [sys.executable, "-m", "bench.engine.direct_load", "--load", json.dumps(way)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def load(rows: int, order: str, over: str, commit: int) -> dict[str, float]:
    """Load rows with ``Table.insert``; return seconds, and the MiB that the store's process grew by at its largest."""
    table = data.orders(rows)
    if order == "sorted":
        table = table.take(pc.sort_indices(table[data.KEY])).combine_chunks()
    batching.ORDERED_COMMIT_BYTES = commit * MIB
    shutil.rmtree(WORK, ignore_errors=True)
    server = None
    if over == "flight":
        command = [sys.executable, "-m", "bench.engine.direct_load", "--serve", str(int(commit > 0))]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout
        database = nyala.connect(f"grpc://127.0.0.1:{server.stdout.readline().strip()}")
    else:
        database = Database(Store.open(WORK, options(commit > 0)))
    process = Path(f"/proc/{server.pid if server else 'self'}")
    rehearsal = database.create_table("rehearsal", data.SCHEMA, primary_key=[data.KEY])
    rehearsal.insert(table.slice(0, 20_000))
    rehearsal.maintain("flush")
    loaded = database.create_table("orders", data.SCHEMA, primary_key=[data.KEY])
    answers = Answers(loaded)
    before, start, busy = _peak_mib(process, forget=True), time.perf_counter(), _processor_seconds(process)
    loaded.insert(table)
    acknowledged = time.perf_counter() - start
    loaded.maintain("flush")
    figures = {"load s": acknowledged, "Mrows/s": rows / acknowledged / 1e6, "settled s": time.perf_counter() - start}
    figures |= {"first s": answers.first_seconds, "longest s": answers.longest_seconds}
    figures |= {"processor s": _processor_seconds(process) - busy, "memory MiB": _peak_mib(process) - before}
    figures["rowsets"] = float(sum(tablet["rowsets"] for tablet in loaded.stats()["tablets"]))
    assert loaded.scan(columns=[data.KEY]).count() == rows
    database.close()
    if server:
        server.communicate("")
    shutil.rmtree(WORK, ignore_errors=True)
    return figures


class Answers:
    """Takes the times of the answers to a table's writes."""

    def __init__(self, table: nyala.Table) -> None:
        self._write_all = table._store.write_all
        table._store.write_all = self._timed
        self.first_seconds = self.longest_seconds = 0.0

    def _timed(self, command: Any, batches: Any) -> Iterator[Any]:
        start = time.perf_counter()
        for result in self._write_all(command, batches):
            seconds, start = time.perf_counter() - start, time.perf_counter()
            self.first_seconds = self.first_seconds or seconds
            self.longest_seconds = max(self.longest_seconds, seconds)
            yield result


def serve(direct: bool) -> None:
    """Serve a new store until standard input ends."""
    with Store.open(WORK, options(direct)) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0")
        print(server.port, flush=True)
        sys.stdin.read()
        server.shutdown()


def options(direct: bool) -> StoreOptions:
    return StoreOptions() if direct else StoreOptions(direct_load_bytes=NEVER, direct_load_unsorted_bytes=NEVER)


def _peak_mib(process: Path, forget: bool = False) -> float:
    """Return the most memory that a process had since its start, or since it was told to forget what it had before."""
    if forget:
        (process / "clear_refs").write_text("5")
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _processor_seconds(process: Path) -> float:
    """Return what a process has computed for so far."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
