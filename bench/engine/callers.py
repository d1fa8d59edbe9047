"""Small requests over Flight by 1, 8 and 32 client processes at once, beside a bare pyarrow server.

Each process sends one request after the other, as fast as it is answered: a get, an upsert of one row (durable), a scan
that finds one row, or a scan of the whole table, whose batches are dropped as they come. The bare server holds the same
rows in memory and answers by what costs Flight the least: an open DoExchange, an open DoPut, and DoGet. It shows what
the transport alone takes on this machine, client and server.
"""

import json
import random
import shutil
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
from bench.report import Suite

NYALA, BARE = "Nyala over Flight", "bare pyarrow server"
OPERATIONS = {"get": (1, 8, 32), "upsert": (1, 8, 32), "scan": (1, 8, 32), "whole table": (1, 8)}
"""Each with the numbers of processes that send it."""
SECONDS = 2.0
_ROWS_MAX = 1_000_000
_BATCH_ROWS = 65_536
_WHOLE = b"whole table"
_ROOT = Path(__file__).parent.parent.parent
_THIS = ("-m", "bench.engine.callers")
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("city", pa.string()),
        ("note", pa.string()),
        ("count", pa.int32()),
    ]
)


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure a table of up to a million rows; the subjects take turns in every round."""
    rows = min(rows, _ROWS_MAX)
    results = Results(console)
    with _nyala(work, rows) as at_nyala, _bare(rows) as at_bare:
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
    shutil.rmtree(work, ignore_errors=True)
    command = [sys.executable, "-m", "nyala", "serve", "--data", str(work), "--listen", "grpc://127.0.0.1:0", "--json"]
    with _server(command) as said:
        url = json.loads(said)["location"]
        with nyala.connect(url) as database:
            table = database.create_table("t", _SCHEMA, primary_key=["id"])
            for first in range(0, rows, 100_000):
                table.insert(_rows(np.arange(first, min(first + 100_000, rows))))
            table.maintain("flush")
        yield url
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _bare(rows: int) -> Iterator[str]:
    with _server([sys.executable, *_THIS, str(rows)]) as said:
        yield said.strip()


@contextmanager
def _server(command: list[str]) -> Iterator[str]:
    """Run a server; yield the line that it prints when it is ready."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline()
    finally:
        server.terminate()
        server.wait()


def _rows(ids: np.ndarray) -> pa.RecordBatch:
    texts = [pa.array([f"{text} {number % 1_000}" for number in ids]) for text in ("city", "a longer note")]
    columns = [pa.array(ids), pa.array(ids * 7), pa.array(ids * 0.5), *texts, pa.array((ids % 100).astype(np.int32))]
    return pa.record_batch(columns, schema=_SCHEMA)


class _BareServer(fl.FlightServerBase):
    """Answers everything with one row, or with all."""

    def __init__(self, rows: int) -> None:
        self._row = _rows(np.arange(1))
        self._all = pa.Table.from_batches([_rows(np.arange(rows))])
        super().__init__("grpc://127.0.0.1:0")

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        rows = self._all.to_batches(_BATCH_ROWS) if ticket.ticket == _WHOLE else [self._row]
        return fl.RecordBatchStream(pa.Table.from_batches(rows))

    def do_put(self, context: object, descriptor: object, reader: fl.MetadataRecordBatchReader, writer: object) -> None:
        for _ in reader:
            writer.write(b"{}")  # pyright: ignore[reportAttributeAccessIssue]

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        writer.begin(self._row.schema)
        for _ in reader:
            writer.write_batch(self._row)


def _bare_request(url: str, operation: str) -> Callable[[int], object]:
    client = fl.connect(url)
    row = _rows(np.arange(1))
    if operation == "scan":
        return lambda _: client.do_get(fl.Ticket(b"")).read_all()
    if operation == "whole table":
        return lambda _: _drop(batch.data for batch in client.do_get(fl.Ticket(_WHOLE)))
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
    if len(sys.argv) > 2:
        _client(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        server = _BareServer(int(sys.argv[1]))
        print(f"grpc://127.0.0.1:{server.port}", flush=True)
        server.serve()
