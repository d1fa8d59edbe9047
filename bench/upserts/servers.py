"""Where each store's rows are: a folder, and for some a server before it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.compare.peers.nyala_subject import free_port, wait_until_open
from bench.postgres import Cluster, has_postgres

from . import clients


class Server(Protocol):
    """The place of a table, new or with the rows of an earlier server in the same folder."""

    address: str

    @property
    def process_ids(self) -> list[int]:
        """The processes whose memory is the store's, beside those of its clients; others may be below them."""
        ...

    def close(self) -> None:
        """Stop it; the folder stays."""
        ...


class Files:
    """No server: the clients use the folder."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self.process_ids: list[int] = []

    def close(self) -> None:
        """Nothing runs."""


class NyalaServer:
    """``nyala serve`` with its defaults."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"grpc://127.0.0.1:{port}"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(folder), "--listen", self.address]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_open(port, self.process)

    @property
    def process_ids(self) -> list[int]:
        return [self.process.pid]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=300)


class PostgresServer(Cluster):
    """A cluster with its defaults."""

    @property
    def process_ids(self) -> list[int]:
        return [self.process_id]


@dataclass(frozen=True)
class Subject:
    """A store, how its clients use it, and which of the two figures it has."""

    server: type
    client: type
    has_large: bool = True
    has_small: bool = True
    threads: bool = False
    """Its small upserts come from threads of one process."""


SUBJECTS = {
    "Nyala, server": Subject(NyalaServer, clients.NyalaClient),
    "Nyala, in process": Subject(Files, clients.EmbeddedNyala, has_small=False),
    "PostgreSQL": Subject(PostgresServer, clients.Postgres),
    "DuckDB": Subject(Files, clients.DuckDb),
    "DuckDB, threads of one process": Subject(Files, clients.SharedDuckDb, has_large=False, threads=True),
    "lancedb": Subject(Files, clients.Lance),
    "deltalake": Subject(Files, clients.Delta),
    "pyiceberg": Subject(Files, clients.Iceberg),
}


def available() -> dict[str, Subject]:
    """Return the stores that this machine has."""
    return {name: each for name, each in SUBJECTS.items() if has_postgres() or each.server is not PostgresServer}
