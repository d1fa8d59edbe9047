"""Processes that share a store in a bucket: one has it, and the others stand by or answer reads that may be late."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import nyala
from nyala.clients.flight.store import FlightStore
from nyala.schemas.errors import UnavailableError
from tests.campaigns.failover.member import Member
from tests.campaigns.failover.name_process import NameProcess
from tests.campaigns.failover.places import directory
from tests.campaigns.isolation.places import Place, maintain
from tests.doubles.waiting import until

_LEASE_SECONDS = 2.0
_FAULT_SECONDS = 2.0, 5.0
_START_SECONDS = 120.0
_REPLICA_LAG_SECONDS = 1.0


@dataclass
class Members:
    """Two servers of one store, of which one is killed, stopped, cut off or asked to end, again and again."""

    members: list[Member]
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    _connections: list[nyala.Database] = field(default_factory=list)

    def connect(self, number: int) -> nyala.Database:
        self._connections.append(nyala.connect([each.location for each in self.members]))
        return self._connections[-1]

    def holder(self) -> Member | None:
        """Return the member that has the store, if one answers."""
        for each in self.members:
            try:
                with closing(FlightStore(each.location, retries=False)) as store:
                    if store.whereabouts().state == "holder":
                        return each
            except UnavailableError:
                continue
        return None

    def disturb(self, stop: threading.Event) -> None:
        """Let a holder fail, and the other take over."""
        random, database = Random(self.seed), self.connect(-1)
        while not stop.wait(random.uniform(*_FAULT_SECONDS)):
            for each in self.members:
                each.keep()
                assert not each.problem, each.problem
            maintain(database, random, self.counts)
            if holder := self.holder():
                fault = random.choice(("kill", "zombie", "cut", "hand-over"))
                self.counts[fault] += 1
                self._fail(holder, fault, stop)
        for each in self.members:
            each.keep()
        until(lambda: self.holder() is not None, _START_SECONDS)

    def _fail(self, holder: Member, fault: str, stop: threading.Event) -> None:
        if fault == "kill":
            holder.kill()
        elif fault == "hand-over":
            holder.ask_to_end()
        else:
            holder.stop() if fault == "zombie" else holder.way.cut()
            stop.wait(2 * _LEASE_SECONDS)
            holder.go_on()
            holder.way.mend()

    def close(self) -> None:
        """End all processes."""
        for each in self._connections:
            each.close()
        for each in self.members:
            each.end()


@contextmanager
def failover(folder: Path, seed: int) -> Iterator[Place]:
    """Two servers of a store in a bucket, whose clocks are wrong by up to an hour."""
    random = Random(seed)
    with directory(folder / "bucket") as bucket:
        members = []
        for number in (1, 2):
            control = folder / str(number) / "control"
            control.mkdir(parents=True)
            way = bucket.way("root", control, seed)
            members.append(Member(number, folder / str(number), way, _LEASE_SECONDS, Random(random.random())))
        place = Members(members, seed)
        try:
            for each in members:
                each.start()
            until(lambda: place.holder() is not None, _START_SECONDS)
            yield place
        finally:
            place.close()


@dataclass
class HolderAndReplica:
    """A server of a store, and one that answers reads which may be late."""

    holder: NameProcess
    replica: NameProcess
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    _connections: list[nyala.Database] = field(default_factory=list)

    def connect(self, number: int) -> nyala.Database:
        self._connections.append(nyala.connect([self.holder.url, self.replica.url]))
        return self._connections[-1]

    def disturb(self, stop: threading.Event) -> None:
        """Flush and merge: the replica opens the files of the holder."""
        random, database = Random(self.seed), self.connect(-1)
        while not stop.wait(random.uniform(0, 0.4)):
            maintain(database, random, self.counts)
        with closing(self.replica.itself()) as itself:
            families = {family.name: family for family in itself.metrics().families}
        self.counts["bytes from the replica"] = round(
            sum(sample.value for sample in families["nyala_sent_bytes"].samples)
        )

    def close(self) -> None:
        """End all clients."""
        for each in self._connections:
            each.close()


@contextmanager
def replica(folder: Path, seed: int) -> Iterator[Place]:
    """A holder and a replica."""
    processes: list[NameProcess] = []
    try:
        for number, flags in enumerate(((), ("--replica",))):
            processes.append(NameProcess(folder / "bucket", folder / f"cache{number}", *flags))
            processes[-1].becomes(("holder", "standby")[number])

        def follows() -> bool:
            lag = processes[1].where().lag_seconds
            return lag is not None and lag < _REPLICA_LAG_SECONDS

        until(follows, _START_SECONDS)
        place = HolderAndReplica(processes[0], processes[1], seed)
        try:
            yield place
        finally:
            place.close()
    finally:
        for each in processes:
            each.end()
