"""How long each page of the console takes for a table of many tablets:  python -m bench.console --tablets 1000

The server, with its store in memory, is in this process; the client takes the page over HTTP. Prints the median of five
for each page, with the processor time of both, which is the same on a busy machine, and its size.
"""

from __future__ import annotations

import argparse
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.serve.port import HttpPort
from nyala.flight_server.server import FlightServer

ROWS_A_TABLET = 200
ROUNDS = 5
PAGES = (
    *("/console", "/console/table?name=homes", "/console/activity", "/console/scans", "/console/writes"),
    *("/console/maintenance", "/console/memory", "/console/rows?name=homes", "/console/users", "/console/jobs"),
    *("/console/servers", "/console/settings", "/console/log", "/metrics"),
)


@contextmanager
def served(tablets: int) -> Iterator[str]:
    """The URL of a server with a table of so many tablets, each with two rowsets and with rows in memory."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    http = HttpPort("127.0.0.1", 0, None)
    server = FlightServer(store, "grpc://127.0.0.1:0")
    http.state.serves(server)
    try:
        with nyala.connect(f"grpc://127.0.0.1:{server.port}") as db:
            fill(db, tablets)
            yield http.url
    finally:
        http.stop()
        server.shutdown()
        store.close()


def fill(db: nyala.Database, tablets: int) -> None:
    """Make the table, in batches that leave each tablet some rows."""
    fields = [pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("price", pa.float64())]
    by_hash = nyala.partition.hash("id", buckets=tablets)
    homes = db.create_table("homes", pa.schema(fields), primary_key=["id"], partition_by=[by_hash])
    count = ROWS_A_TABLET * tablets
    for start in range(3):
        ids = np.arange(start, 3 * count, 3)
        cities = pa.array(np.char.mod("city %d", ids % 97))
        homes.insert(pa.table([ids, cities, ids * 0.5], names=["id", "city", "price"]))
        if start < 2:
            homes.maintain("flush")
    homes.scan(where="price < 10").to_arrow()


def taken(url: str) -> tuple[float, float, int]:
    """Return how long a page took, how much processor time, both in ms, and its bytes."""
    began, worked = time.perf_counter(), time.process_time()
    with urllib.request.urlopen(url, timeout=60) as page:
        size = len(page.read())
    return 1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - worked), size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--tablets", type=int, default=1000, help="tablets of the table (default: 1,000)")
    given = parser.parse_args()
    shown = Table("page", "median, ms", "longest, ms", "processor, ms", "KiB", title=f"{given.tablets:,} tablets")
    with served(given.tablets) as url:
        for path in PAGES:
            times, worked, sizes = zip(*(taken(url + path) for _ in range(ROUNDS)), strict=True)
            figures = statistics.median(times), max(times), statistics.median(worked), sizes[0] / 1024
            shown.add_row(path, *(f"{each:.0f}" for each in figures))
    Console().print(shown)


if __name__ == "__main__":
    main()
