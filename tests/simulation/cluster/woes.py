"""Woes: what befalls the servers and their bucket: each failure lasts for a while, and is healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nyala.engine import threads
from nyala.engine.bucket.patient import PatientBucket
from nyala.engine.home.bucket import BucketHome
from nyala.engine.recovery.sweep_bucket import sweep
from nyala.flight_server.serve.name_server import NameServer
from nyala.schemas.errors import UnavailableError
from tests.simulation.scheduler import Scheduler
from tests.simulation.store.plan import Actor, Step

from .member import NAME, Member
from .network import DistantObjects, Network, Way


class Woes:
    """Brings failures over a cluster. ``events`` gets a line for each."""

    def __init__(self, members: list[Member], network: Network, events: list[str], scheduler: Scheduler) -> None:
        self._members, self._network, self._events, self._scheduler = members, network, events, scheduler
        self.count = 0
        self._kinds: dict[str, Callable[[Member, float, object], object]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "cut_bucket": lambda member, seconds, how: self._cut(member.way, seconds, how),
            "cut_clients": lambda member, seconds, how: self._cut(member.clients_way, seconds, how),
            "faults": self._faults,
            "slow": self._slow,
            "stop": self._stop,
            "release": lambda member, seconds, how: self._command(member, NameServer.server_release, seconds),
            "take": lambda member, seconds, how: self._command(member, NameServer.server_take, seconds),
            "force": lambda member, seconds, how: self._command(self._standby(member), _take_by_force, seconds),
            "usurp": self._usurp,
            "sweep": lambda member, seconds, how: self._sweep(seconds),
            "blackout": lambda member, seconds, how: self._black_out(seconds),
            "calm": lambda member, seconds, how: threads.sleep(seconds),
        }

    def run(self, actor: Actor) -> None:
        """Bring the failures of an actor, one after the other."""
        for step in actor.steps:
            place, seconds, how = step.given
            member = self._holder() if place < 0 else self._members[place % len(self._members)]
            with self._noted(step, member):
                self._kinds[step.kind](member, seconds, how)

    def _holder(self) -> Member:
        return next((member for member in self._members if member.has_store), self._members[0])

    def _standby(self, member: Member) -> Member:
        """Return a server that has not the store, if there is one."""
        return next((each for each in self._members if not each.has_store), member)

    @contextmanager
    def _noted(self, step: Step, member: Member) -> Iterator[None]:
        self.count += 1
        self._events.append(f"{self._scheduler.now:.3f} {step.kind} {member} {step.given}")
        yield
        self._events.append(f"{self._scheduler.now:.3f} {step.kind} {member} is over")

    def _kill(self, member: Member, seconds: float, clock_error: object) -> None:
        """Kill a process, and start another one, whose time of day may be another."""
        member.kill()
        threads.sleep(seconds)
        assert isinstance(clock_error, int)
        member.clock_error_seconds = clock_error
        member.start()

    def _black_out(self, seconds: float) -> None:
        """Kill all processes, and start others."""
        for member in self._members:
            member.kill()
        threads.sleep(seconds)
        for member in self._members:
            member.start()

    def _stop(self, member: Member, seconds: float, clock_error: object) -> None:
        """Let a process release what it has, and start another one."""
        member.stop()
        self._kill(member, seconds, clock_error)

    @staticmethod
    def _command(member: Member, work: Callable[[NameServer], object], seconds: float) -> None:
        member.command(work)
        threads.sleep(seconds)

    def _sweep(self, seconds: float) -> None:
        """Sweep as an operator may at any time."""
        home = BucketHome(PatientBucket(DistantObjects(self._network, Way())), NAME, "memory://bucket", probes=False)
        with suppress(UnavailableError):
            sweep(home)
        threads.sleep(seconds)

    def _usurp(self, member: Member, seconds: float, how: object) -> None:
        """Cut a server off from the bucket, and have another one take the store by force meanwhile."""
        member.way.loses_requests = True
        self._command(self._standby(member), _take_by_force, seconds)
        member.way.mend()

    def _freeze(self, member: Member, seconds: float, how: object) -> None:
        process = member.freeze()
        threads.sleep(seconds)
        if process is not None:
            member.thaw(process)

    @staticmethod
    def _cut(way: Way, seconds: float, how: object) -> None:
        way.loses_requests, way.loses_answers = how in ("requests", "both"), how in ("answers", "both")
        threads.sleep(seconds)
        way.mend()

    def _faults(self, member: Member, seconds: float, how: object) -> None:
        assert isinstance(how, float)
        self._network.fault_chance = how
        threads.sleep(seconds)
        self._network.fault_chance = 0.0

    def _slow(self, member: Member, seconds: float, how: object) -> None:
        assert isinstance(how, float)
        self._network.slow_chance = how
        threads.sleep(seconds)
        self._network.slow_chance = 0.0


def _take_by_force(server: NameServer) -> None:
    server.server_take(force=True)
