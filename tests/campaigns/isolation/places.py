"""The stores of a campaign, and what disturbs them while clients use them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import nyala
from nyala.engine.options import StoreOptions
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.options import database_at, store_at
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.moves_campaign import LOST

_OPTIONS: dict[str, Any] = {
    "flush_bytes": 64 << 10,
    "flush_deltas_bytes": 16 << 10,
    "direct_load_bytes": 4_000,
    "lease_seconds": 60,
}
_PAUSE_SECONDS = 0.2
_NAMES = "abc"
_SHIFTS_MICROSECONDS = (0, 40_000, -40_000)
"""How far the clocks of several servers are off."""


class Place(Protocol):
    """A store, or several, and those who use it."""

    counts: Counter[str]
    """What disturbed it."""

    def connect(self, number: int) -> nyala.Database:
        """Return a database for a client."""
        ...

    def disturb(self, stop: threading.Event) -> None:
        """Do what a history must bear, until it is to stop."""
        ...


@dataclass
class OneStore:
    """One store, which is maintained all the time."""

    databases: Callable[[int], nyala.Database]
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def connect(self, number: int) -> nyala.Database:
        return self.databases(number)

    def disturb(self, stop: threading.Event) -> None:
        """Flush, merge and collect."""
        random, database = Random(self.seed), self.connect(-1)
        while not stop.wait(random.uniform(0, _PAUSE_SECONDS)):
            maintain(database, random, self.counts)


def maintain(database: nyala.Database, random: Random, counts: Counter[str]) -> None:
    """Do some maintenance on some table."""
    with suppress(UnavailableError):  # nobody has the store just now, or the tablet has gone
        table = database.table(random.choice(database.tables()))
        table.maintain(random.choice(list(MaintenanceKind)))
        counts["maintenance"] += 1


@contextmanager
def embedded(folder: Path, seed: int) -> Iterator[Place]:
    """Threads of one process."""
    with database_at(folder / "store", **_OPTIONS) as database:
        yield OneStore(lambda number: database, seed)


@contextmanager
def server(folder: Path, seed: int) -> Iterator[Place]:
    """One server, and a connection for each client."""
    with closing(store_at(folder / "store", StoreOptions(**_OPTIONS))) as store:
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


@dataclass
class Servers:
    """Servers that share the tables. Their clocks differ, and tablets move between them."""

    cluster: Cluster
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def connect(self, number: int) -> nyala.Database:
        return self.cluster.connect()

    def disturb(self, stop: threading.Event) -> None:
        """Move tablets, flush and merge."""
        random, database = Random(self.seed), self.connect(-1)
        while not stop.is_set():
            maintain(database, random, self.counts)
            table = random.choice(database.tables())
            place = random.choice(database.table(table).tablets())
            with suppress(*LOST):
                database.move_tablet(table, place.tablet, random.choice(_NAMES), server=place.server)
                self.counts["moves"] += 1
            stop.wait(random.uniform(0, 2 * _PAUSE_SECONDS))


@contextmanager
def servers(folder: Path, seed: int) -> Iterator[Place]:
    """Three servers in this process, over sockets."""
    cluster = Cluster(folder, _NAMES)
    try:
        for member, shift in zip(cluster.members.values(), _SHIFTS_MICROSECONDS, strict=True):
            shift_clock(member.store._clock, shift)
        yield Servers(cluster, seed)
    finally:
        cluster.close()


def shift_clock(clock: Any, microseconds: int) -> None:
    """Let a clock be wrong from now on."""
    right = clock.physical_microseconds
    clock.physical_microseconds = lambda: right() + microseconds
