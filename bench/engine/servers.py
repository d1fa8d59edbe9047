"""Servers in processes of their own: one of Nyala, and a bare one of pyarrow that answers with the same rows.

The bare server has the rows in memory and answers by what costs Flight the least. It shows what the transport alone
takes on this machine, client and server:  python -m bench.engine.servers ROWS [--middleware] [--tls CERTIFICATE KEY]
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

import nyala

WHOLE = b"whole table"
"""The ticket of all rows of the bare server."""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("city", pa.string()),
        ("note", pa.string()),
        ("count", pa.int32()),
    ]
)
_BATCH_ROWS = 65_536
_ROOT = Path(__file__).parent.parent.parent


@contextmanager
def serve_nyala(work: Path, *options: str, listen: str = "grpc://127.0.0.1:0") -> Iterator[str]:
    """Serve an empty store in the folder ``work``, which is emptied before and removed after; yield its address."""
    shutil.rmtree(work, ignore_errors=True)
    command = ["-m", "nyala", "serve", "--data", str(work), "--listen", listen, "--json", *options]
    with _started(command) as said:
        yield json.loads(said)["location"]
    shutil.rmtree(work, ignore_errors=True)


@contextmanager
def serve_bare(rows: int, *options: str) -> Iterator[str]:
    """Serve rows by pyarrow alone; yield its address."""
    with _started(["-m", "bench.engine.servers", str(rows), *options]) as said:
        yield said.strip()


@contextmanager
def _started(command: list[str]) -> Iterator[str]:
    """Run a server; yield the line that it prints when it is ready."""
    server = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, cwd=_ROOT, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline()
    finally:
        server.terminate()
        server.wait()


def fill(database: nyala.Database, rows: int) -> None:
    """Make the table ``t`` of these rows, all of them in files."""
    table = database.create_table("t", SCHEMA, primary_key=["id"])
    for first in range(0, rows, 100_000):
        table.insert(rows_of(np.arange(first, min(first + 100_000, rows))))
    table.maintain("flush")


def rows_of(ids: np.ndarray) -> pa.RecordBatch:
    """Return the rows of these keys."""
    texts = [pa.array([f"{text} {number % 1_000}" for number in ids]) for text in ("city", "a longer note")]
    columns = [pa.array(ids), pa.array(ids * 7), pa.array(ids * 0.5), *texts, pa.array((ids % 100).astype(np.int32))]
    return pa.record_batch(columns, schema=SCHEMA)


class _LookAtHeaders(fl.ServerMiddlewareFactory):
    """What each check of a header costs at least: pyarrow calls Python with all headers of a call."""

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str | bytes]]) -> None:
        headers.get("authorization")


class _BareServer(fl.FlightServerBase):
    """Answers everything with one row, or with all."""

    def __init__(self, rows: int, location: str, **options: Any) -> None:
        self._row = rows_of(np.arange(1))
        self._all = pa.Table.from_batches([rows_of(np.arange(rows))])
        super().__init__(location, **options)

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        return iter([b"{}"])

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.RecordBatchStream:
        rows = self._all.to_batches(_BATCH_ROWS) if ticket.ticket == WHOLE else [self._row]
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


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("--middleware", action="store_true", help="look at the headers of each call")
    parser.add_argument("--tls", nargs=2, type=Path, metavar=("CERTIFICATE", "KEY"))
    asked = parser.parse_args()
    options: dict[str, Any] = {"middleware": {"headers": _LookAtHeaders()}} if asked.middleware else {}
    if asked.tls:
        options["tls_certificates"] = [tuple(file.read_bytes() for file in asked.tls)]
    kind = "grpc+tls" if asked.tls else "grpc"
    server = _BareServer(asked.rows, f"{kind}://127.0.0.1:0", **options)
    print(f"{kind}://127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    _main()
