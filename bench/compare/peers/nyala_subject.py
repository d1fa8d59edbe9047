"""Nyala through its public API: behind a server of its own, and in this process."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import nyala

from ..workload import Aggregate, Filter, Workload, sql

START_SECONDS_MAX = 120


class EmbeddedNyala:
    """The engine in this process, with its defaults: every acknowledged batch is fsynced."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, workload: Workload) -> None:
        self._use(nyala.open(str(folder), **self.options), workload)

    def _use(self, database: Any, workload: Workload) -> None:
        self.database = database
        self.table = database.create_table("rows", workload.table.schema, primary_key=list(workload.key))

    def load(self, table: pa.Table) -> None:
        self.table.insert(table)

    def settle(self) -> None:
        self.table.maintain("flush")
        self.table.maintain("flush_deltas")

    def scan(self, columns: list[str] | None = None, where: Filter | None = None) -> pa.Table:
        return self.table.scan(columns=columns, where=sql(where) if where else None).to_arrow()

    def aggregate(self, asked: Aggregate) -> pa.Table:
        scan = self.table.scan(where=sql(asked.where) if asked.where else None)
        return scan.aggregate(asked.measures, asked.groups)

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows)

    def get(self, key: tuple[int, ...]) -> dict[str, Any] | None:
        return self.table.get(key)

    def close(self) -> None:
        self.database.close()


class TunedNyala(EmbeddedNyala):
    """With a third of the machine's memory, and with larger flushes and merged files, which suit loads and scans."""

    options: ClassVar = {"budget_bytes": 8 << 30, "flush_bytes": 256 << 20}

    def settle(self) -> None:
        super().settle()
        self.table.maintain("compact")


class ServedNyala(EmbeddedNyala):
    """The same behind ``nyala serve`` in a process of its own: everything goes through DoPut, DoGet and a socket."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        port = free_port()
        url = f"grpc://127.0.0.1:{port}"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(folder), "--listen", url]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until_open(port, self.process)
        self._use(nyala.connect(url), workload)

    def close(self) -> None:
        super().close()
        self.process.terminate()
        self.process.wait(timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_open(port: int, process: subprocess.Popen) -> None:
    """Return when the port accepts connections; raise when the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("nyala serve did not start")
