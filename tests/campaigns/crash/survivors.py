"""Campaigns whose clients live through all kills: one server is killed again and again and restarted on its port."""

from __future__ import annotations

import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

import nyala
from tests.campaigns.crash.kill9 import Server
from tests.campaigns.options import LOADS, PLAIN, Features, Swarm
from tests.doubles.ports import free_port

FEATURES = Features(LOADS, allowed={"durability"})


class Survivor(Protocol):
    """A client that never hears of the kills."""

    @property
    def failure(self) -> BaseException | None:
        """The first thing that was wrong."""
        ...

    @property
    def done(self) -> int:
        """How much it has completed."""
        ...


@dataclass
class SurvivorCampaign(ABC):
    """Counts over all cycles."""

    cycles_a_store: ClassVar[int] = 10
    """After so many the store is left behind and a new one begun."""
    options: ClassVar[dict[str, Any]] = {}
    """Of the store."""
    pause_seconds: ClassVar[float] = 0.8
    """A kill comes within this time once all clients have found the server."""
    stuck_seconds: ClassVar[float] = 60
    """A client that completes nothing for so long has lost its way."""

    seed: int
    cycles: int = 0
    swarm: Swarm = PLAIN

    @abstractmethod
    def clients(
        self, database: nyala.Database, location: str, stop: threading.Event, random: Random
    ) -> tuple[Sequence[Survivor], list[Callable[[], None]]]:
        """Return clients of a new store, and what threads do until ``stop`` is set."""

    @abstractmethod
    def check(self, database: nyala.Database) -> None:
        """Compare what the clients of the store did with what is there."""

    def run(self, cycles: int) -> None:
        """Kill ``cycles`` times."""
        random = Random(self.seed)
        while self.cycles < cycles:
            with (
                self.swarm.round(self.cycles),
                tempfile.TemporaryDirectory(prefix="nyala-survivors-") as directory,
            ):
                self._one_store(Path(directory), min(self.cycles_a_store, cycles - self.cycles), random)

    def _one_store(self, directory: Path, cycles: int, random: Random) -> None:
        server = Server(directory, free_port(), **self.options)
        location, port = server.location, int(server.location.rpartition(":")[2])
        stop = threading.Event()
        try:
            with closing(nyala.connect(location)) as database:
                clients, work = self.clients(database, location, stop, random)
                threads = [threading.Thread(target=each) for each in work]
                for thread in threads:
                    thread.start()
                for _ in range(cycles):
                    self._wait_until_all_went_on(clients)
                    time.sleep(random.uniform(0.0, self.pause_seconds))
                    server.__exit__()
                    server = Server(directory, port, **self.options)
                    self.cycles += 1
                    print(f"cycle {self.cycles}: {sum(each.done for each in clients)} done", flush=True)
                self._wait_until_all_went_on(clients)
                stop.set()
                for thread in threads:
                    thread.join(self.stuck_seconds)
                assert not any(thread.is_alive() for thread in threads), "a client hangs"
                _raise_failures(clients)
                self.check(database)
        finally:
            stop.set()
            server.__exit__()

    def _wait_until_all_went_on(self, clients: Sequence[Survivor]) -> None:
        """Return when each client has completed something from now on: then it has found the server."""
        before = [each.done for each in clients]
        deadline = time.monotonic() + self.stuck_seconds
        while any(each.done == count for each, count in zip(clients, before, strict=True)):
            _raise_failures(clients)
            assert time.monotonic() < deadline, "a client is stuck"
            time.sleep(0.01)


def _raise_failures(clients: Sequence[Survivor]) -> None:
    for each in clients:
        if each.failure:
            raise each.failure
