"""A server process over a store of dicts, for tests that send signals: ``python serve_fake.py DRAIN_SECONDS``.

The table ``homes`` has 1000 rows, ``slow`` gives a batch every 50 ms, ``endless`` never ends.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))

from nyala.flight_server.serve.lifecycle import run_server
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import ScanStream
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA


class SlowStore(FakeStore):
    """See above."""

    def scan(self, spec: ScanSpec) -> ScanStream:
        stream = super().scan(spec)
        if spec.table == "homes":
            return stream
        return ScanStream(stream.schema, stream.snapshot, self._slow(stream.schema, spec.table))

    def _slow(self, schema: pa.Schema, table: str) -> Iterator[pa.RecordBatch]:
        rows = pa.RecordBatch.from_pylist([{"id": i, "city": "x" * 700, "price": 0.0} for i in range(1000)], schema)
        for _ in range(10 if table == "slow" else 1_000_000):
            yield rows
            if table == "slow":
                time.sleep(0.05)

    def close(self) -> None:
        super().close()
        sys.stdout.write("closed\n")


def open_store() -> SlowStore:
    store = SlowStore()
    for table in ("homes", "slow", "endless"):
        store.create_table(TableDefinition.from_arrow(table, SCHEMA, ["id"]))
    rows = pa.RecordBatch.from_pylist([{"id": i, "city": "Oslo", "price": 1.0} for i in range(1000)], SCHEMA)
    store.write(WriteCommand(table="homes"), rows)
    return store


def announce(location: str) -> None:
    sys.stdout.write(location + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_server(open_store, "grpc://127.0.0.1:0", ServerConfig(drain_seconds=float(sys.argv[1])), announce)
