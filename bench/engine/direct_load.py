"""Rows in key order, in large batches, on a store that writes them to disk at once and on one that does not.

    python -m bench.engine.direct_load [--rows N] [--batch-rows N] [--rounds N] [--threshold MIB ...]

Each batch is one commit: without ``commit="stream"`` the client would cut it. Each load runs in a process of its own,
so that the memory taken is its own too. ``load`` ends when the last batch is acknowledged, ``settled`` when all rows
are in files. With ``--threshold`` batches of these sizes are loaded both ways.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import nyala
from bench import data

WORK = Path(__file__).parent.parent / "scratch" / "direct_load"
NEVER = 1 << 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batch-rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threshold", type=float, nargs="*", default=[], metavar="MIB")
    parser.add_argument("--load", choices=["on", "off"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        print(json.dumps(load(given.rows, given.batch_rows, given.load == "on")))
        return
    row_bytes = data.orders(10_000).nbytes / 10_000
    sizes = [int(size * (1 << 20) / row_bytes) for size in given.threshold] or [given.batch_rows]
    for batch_rows in sizes:
        samples: dict[str, list[dict[str, float]]] = {"on": [], "off": []}
        for number in range(given.rounds):
            for way in ("on", "off") if number % 2 else ("off", "on"):
                samples[way].append(in_a_process(given.rows, batch_rows, way))
        size = batch_rows * row_bytes / (1 << 20)
        print(f"batches of {batch_rows:,} rows, {size:.1f} MiB; medians of {given.rounds}", flush=True)
        for way, found in samples.items():
            medians = {name: statistics.median(sample[name] for sample in found) for name in found[0]}
            print(f"  direct {way:3}  " + "  ".join(f"{name} {value:,.2f}" for name, value in medians.items()))


def in_a_process(rows: int, batch_rows: int, way: str) -> dict[str, float]:
    """Load in a new process and return its figures."""
    sizes = ["--rows", str(rows), "--batch-rows", str(batch_rows)]
    command = [sys.executable, "-m", "bench.engine.direct_load", "--load", way, *sizes]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def load(rows: int, batch_rows: int, direct: bool) -> dict[str, float]:
    """Load rows in key order; return seconds, and the MiB that the process grew by at its largest."""
    table = data.orders(rows)
    table = table.take(pc.sort_indices(table[data.KEY])).combine_chunks()
    batches = [pa.table(table.slice(first, batch_rows)).combine_chunks() for first in range(0, rows, batch_rows)]
    shutil.rmtree(WORK, ignore_errors=True)
    with nyala.open(str(WORK), direct_load_bytes=1 if direct else NEVER, direct_load_unsorted_bytes=NEVER) as database:
        rehearsal = database.create_table("rehearsal", data.SCHEMA, primary_key=[data.KEY])
        rehearsal.insert(batches[0].slice(0, 20_000))
        rehearsal.maintain("flush")
        loaded = database.create_table("orders", data.SCHEMA, primary_key=[data.KEY])
        before, start, busy = _peak_mib(), time.perf_counter(), time.process_time()
        for batch in batches:
            loaded.write(batch, "insert", commit="stream")
        acknowledged = time.perf_counter() - start
        loaded.maintain("flush")
        figures = {"load s": acknowledged, "settled s": time.perf_counter() - start}
        figures |= {"processor s": time.process_time() - busy, "memory MiB": _peak_mib() - before}
        figures["rowsets"] = float(sum(tablet["rowsets"] for tablet in loaded.stats()["tablets"]))
        assert loaded.scan(columns=[data.KEY]).count() == rows
    shutil.rmtree(WORK, ignore_errors=True)
    return figures


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
