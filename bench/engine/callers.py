"""Small requests over Flight by 1, 8 and 32 client processes at once, beside a bare pyarrow server.

Each process sends one request after the other, as fast as it is answered: a get, an upsert of one row (durable), a scan
that finds one row, or a scan of the whole table, whose batches are dropped as they come. The bare server holds the same
rows in memory and answers by what costs Flight the least: an open DoExchange, an open DoPut, and DoGet. It shows what
the transport alone takes on this machine, client and server.
"""

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
from rich.console import Console

import nyala
from bench.engine.scratch import Results
from bench.engine.servers import WHOLE, fill, rows_of, serve_bare, serve_nyala
from bench.report import Suite

NYALA, BARE = "Nyala over Flight", "bare pyarrow server"
OPERATIONS = {"get": (1, 8, 32), "upsert": (1, 8, 32), "scan": (1, 8, 32), "whole table": (1, 8)}
"""Each with the numbers of processes that send it."""
SECONDS = 2.0
_ROWS_MAX = 1_000_000
_ROOT = Path(__file__).parent.parent.parent
_THIS = ("-m", "bench.engine.callers")


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure a table of up to a million rows; the subjects take turns in every round."""
    rows = min(rows, _ROWS_MAX)
    results = Results(console)
    with _nyala(work, rows) as at_nyala, serve_bare(rows) as at_bare:
        urls = {NYALA: at_nyala, BARE: at_bare}
        for operation, counts in OPERATIONS.items():
            for processes in counts:
                found: dict[str, list[list[float]]] = {subject: [] for subject in urls}
                for number in range(rounds):
                    for subject in list(urls)[:: -1 if number % 2 else 1]:
                        found[subject].append(call(sys.executable, subject, urls[subject], operation, processes, rows))
                for subject, latencies in found.items():
                    case = f"{operation}, {processes} processes"
                    rates = [len(each) / SECONDS for each in latencies]
                    results.add(f"{case}: rate", "calls/s", rates, subject)
                    results.add(f"{case}: p50", "s", [statistics.median(each) for each in latencies], subject)
                    results.add(f"{case}: p99", "s", [_at_99(each) for each in latencies], subject)
    return Suite("callers", {"rows": rows, "rounds": rounds, "seconds": int(SECONDS)}, results.all)


def call(python: str, subject: str, url: str, operation: str, processes: int, rows: int) -> list[float]:
    """Let client processes send requests for a while; return the seconds of each request."""
    command = [python, *_THIS, subject, url, operation, str(rows)]
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, text=True)
        for _ in range(processes)
    ]
    for client in clients:
        assert client.stdout and client.stdout.readline() == "ready\n"
    for client in clients:
        assert client.stdin
        client.stdin.write("go\n")
        client.stdin.flush()
    return [seconds for client in clients for seconds in json.loads(client.communicate()[0])]


def _at_99(latencies: list[float]) -> float:
    return sorted(latencies)[len(latencies) * 99 // 100]


@contextmanager
def _nyala(work: Path, rows: int) -> Iterator[str]:
    with serve_nyala(work) as url:
        with nyala.connect(url) as database:
            fill(database, rows)
        yield url


def _bare_request(url: str, operation: str) -> Callable[[int], object]:
    client = fl.connect(url)
    row = rows_of(np.arange(1))
    if operation == "scan":
        return lambda _: client.do_get(fl.Ticket(b"")).read_all()
    if operation == "whole table":
        return lambda _: _drop(batch.data for batch in client.do_get(fl.Ticket(WHOLE)))
    descriptor = fl.FlightDescriptor.for_command(b"")
    if operation == "get":
        writer, reader = client.do_exchange(descriptor)
        keys = row.select(["id"])
        writer.begin(keys.schema)
        return lambda _: (writer.write_batch(keys), reader.read_chunk())
    writer, answers = client.do_put(descriptor, row.schema)
    return lambda _: (writer.write_batch(row), answers.read())


def _nyala_request(url: str, operation: str) -> Callable[[int], object]:
    table = nyala.connect(url).table("t")
    if operation == "get":
        return table.get
    if operation == "scan":
        return lambda key: table.scan(where=f"id = {key}").to_arrow()
    if operation == "whole table":
        return lambda _: _drop(table.scan())
    return lambda key: table.upsert(
        [{"id": key, "amount": key, "price": 0.5, "city": "city 1", "note": "a longer note", "count": 3}]
    )


def _drop(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _client(subject: str, url: str, operation: str, rows: int) -> None:
    """Send requests until the time is over; print the seconds of each."""
    request = (_nyala_request if subject == NYALA else _bare_request)(url, operation)
    keys = [random.randrange(rows) for _ in range(10_000)]
    for key in keys[: 3 if operation == "whole table" else 20]:
        request(key)
    print("ready", flush=True)
    sys.stdin.readline()
    latencies: list[float] = []
    end = time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < end:
        request(keys[len(latencies) % len(keys)])
        latencies.append(time.perf_counter() - began)
    print(json.dumps(latencies), flush=True)


if __name__ == "__main__":
    _client(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
