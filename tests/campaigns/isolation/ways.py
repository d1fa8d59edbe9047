"""The combinations of processes and clients, and the isolation level that each promises for each workload.

``docs/guarantees.md`` has them as a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import nyala
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.isolation.checker import STRICT, STRONG_SNAPSHOT, Level
from tests.campaigns.isolation.clients import Workload

_OPTIONS: dict[str, Any] = {"flush_bytes": 64 << 10, "flush_deltas_bytes": 16 << 10, "direct_load_bytes": 4_000}
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Promise:
    """A level that a workload has."""

    workload: Workload
    level: Level
    is_of_each_key: bool = False
    """Whether the level is that of each key by itself."""


class Place(Protocol):
    """A store, or several, and those who use it."""

    def connect(self, number: int) -> nyala.Database:
        """Return a database for a client."""
        ...

    def disturb(self, stop: threading.Event) -> None:
        """Do what a history must bear, until it is to stop."""
        ...


@dataclass
class Way:
    """A combination: how it begins, and what it promises."""

    start: Callable[[Path, int], AbstractContextManager[Place]]
    promises: Sequence[Promise]


_READS = ("scan", "scan of a moment", "scan of the past", "get", "get_many")
LISTS = Workload("lists", True, True, ("batch", "numbered", "conditional", "statement", "guarded"), _READS)
TRANSACTIONS = Workload("transactions", True, False, ("transaction", "guarded", "batch"), _READS)
REGISTERS = Workload(
    "registers", False, True, ("batch", "numbered", "conditional", "statement", "drop", "guarded"), _READS
)


@dataclass
class OneStore:
    """One store, which is maintained all the time."""

    databases: Callable[[int], nyala.Database]
    seed: int

    def connect(self, number: int) -> nyala.Database:
        return self.databases(number)

    def disturb(self, stop: threading.Event) -> None:
        """Flush, merge and collect."""
        maintain(self.connect(-1), Random(self.seed), stop)


def maintain(database: nyala.Database, random: Random, stop: threading.Event) -> None:
    """Do all kinds of maintenance on all tables."""
    while not stop.wait(random.uniform(0, _PAUSE_SECONDS)):
        with suppress(UnavailableError):  # nobody has the store just now
            name = random.choice(database.tables())
            database.table(name).maintain(random.choice(list(MaintenanceKind)))


@contextmanager
def embedded(folder: Path, seed: int) -> Iterator[Place]:
    """Threads of one process."""
    with nyala.open(folder / "store", **_OPTIONS) as database:
        yield OneStore(lambda number: database, seed)


@contextmanager
def server(folder: Path, seed: int) -> Iterator[Place]:
    """One server, and a connection for each client."""
    with closing(Store.open(folder / "store", StoreOptions(**_OPTIONS))) as store:
        flight = FlightServer(store, "grpc://127.0.0.1:0")
        connections: list[nyala.Database] = []

        def connect(number: int) -> nyala.Database:
            connections.append(nyala.connect(f"grpc://127.0.0.1:{flight.port}"))
            return connections[-1]

        try:
            yield OneStore(connect, seed)
        finally:
            for each in connections:
                each.close()
            flight.shutdown()


_ONE_STORE = (Promise(LISTS, STRICT), Promise(TRANSACTIONS, STRONG_SNAPSHOT), Promise(REGISTERS, STRICT))
WAYS: dict[str, Way] = {"embedded": Way(embedded, _ONE_STORE), "server": Way(server, _ONE_STORE)}
