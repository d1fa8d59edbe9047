"""Servers of one store, the clients that use it, and who has it at the moment."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import nyala
from nyala.engine.home.bucket import BucketHome
from nyala.engine.recovery.sweep_bucket import sweep
from nyala.schemas.errors import UnavailableError
from tests.campaigns.crash.kill9 import OPTIONS, SCHEMA
from tests.campaigns.failover.callers import Answers, Caller
from tests.campaigns.failover.clients import (
    REGISTERS,
    Follower,
    NumberedWriter,
    Reader,
    maintain_until,
    started,
    write_registers,
)
from tests.campaigns.failover.history import Acknowledged, Life, Registers, Snapshots
from tests.campaigns.failover.member import STANDS_BY, Member
from tests.campaigns.failover.places import Place, bucket_at, url_at
from tests.campaigns.options import columns, table

STUCK_SECONDS = 120.0
"""Longer than this nothing may take, however slow the machine is."""
_REGISTERS, _REGISTER_WRITERS = 16, 2
_KEEP_SECONDS = 0.1
_SWEEP_SECONDS = 2.0
_FENCED_SECONDS = 3.0


class Cluster:
    """``count`` servers of the store at ``root``, and their clients. ``end`` leaves the store to who checks it."""

    def __init__(
        self,
        place: Place,
        root: str,
        folder: Path,
        random: Random,
        lease_seconds: float,
        count: int = 3,
        planted: str = "",
        calm: float = 1,
    ) -> None:
        self.lease_seconds, self._calm = lease_seconds, calm
        self.url = url_at(place, root)
        self.home = BucketHome(bucket_at(place, root), "a", self.url)
        self.members = [
            self._member(place, root, folder / str(each), random, planted, each) for each in range(1, count + 1)
        ]
        self.random = random
        self.answers = Answers()
        self.registers = Registers(_REGISTERS)
        self.snapshots = Snapshots(Random(random.random()))
        self.writers = [NumberedWriter(number, Random(random.random())) for number in range(2)]
        self.failures: list[str] = []
        self._acknowledged = Acknowledged()
        self._callers: list[Caller] = []
        self._threads: list[threading.Thread] = []
        self._stop, self._end = threading.Event(), threading.Event()

    def _member(self, place: Place, root: str, folder: Path, random: Random, planted: str, number: int) -> Member:
        control = folder / "control"
        control.mkdir(parents=True)
        way = place.way(root, control, random.randrange(1 << 30))
        return Member(number, folder, way, self.lease_seconds, Random(random.random()), planted)

    def start(self) -> None:
        """Start all servers, make the tables, start the clients."""
        calm = self._calm
        for member in self.members:
            member.start()
        self._run(self._keep_members, "keeper")
        self.caller = self._new_caller()
        self.begin, _ = self.caller.ask(_make_tables)
        self.follower = Follower(self.begin)
        mine = [range(first, _REGISTERS, _REGISTER_WRITERS) for first in range(_REGISTER_WRITERS)]
        for writer in self.writers:
            self._run(partial(writer.run_until, self._new_caller(), self.answers, self._stop, calm), "writer")
        for some in mine:
            caller, random = self._new_caller(), Random(self.random.random())
            work = partial(write_registers, some, self.registers, caller, self.answers, random, self._stop, calm)
            self._run(work, "registers")
        for member in self.members:
            reader = Reader(member, self.registers, self.snapshots, Random(self.random.random()))
            self._run(partial(reader.run_until, self._stop, calm), f"reader of {member.number}")
        self._run(partial(self.follower.run_until, self._new_caller(), self._stop), "follower")
        random = Random(self.random.random())
        self._run(partial(maintain_until, self._new_caller(), random, self._stop, calm), "maintenance")
        self._run(self._sweep, "sweep")

    def end(self) -> None:
        """Heal everything, let the clients finish, follow to the end, stop the servers."""
        self._stop.set()
        for member in self.members:
            self.heal(member)
        deadline = time.monotonic() + STUCK_SECONDS
        for thread in self._threads[1:]:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.raise_failures()
        hanging = [thread.name for thread in self._threads[1:] if thread.is_alive()]
        assert not hanging, f"clients hang: {hanging}"
        self.follower.follow(self.caller)
        self.close()
        self.raise_failures()

    def close(self) -> None:
        """Stop the servers, whatever the clients do."""
        self._stop.set()
        self._end.set()
        self._threads[0].join() if self._threads else None
        for member in self.members:
            member.end()
        for caller in self._callers:
            caller.close()

    def heal(self, member: Member) -> None:
        """Take all faults from a server."""
        member.way.mend()
        member.proxy.mend()
        member.go_on()

    @property
    def holder(self) -> Member:
        """The server that acknowledged last."""
        return self.members[self.answers.last[1][0] - 1]

    def standbys(self) -> list[Member]:
        """Return the others that run."""
        return [member for member in self.members if member is not self.holder and not member.is_stopped]

    def moved(self, since: float, lives: Sequence[Life]) -> float | None:
        """Return how long after ``since`` a process other than ``lives`` acknowledged a write; None if none has."""
        at, life = self.answers.last
        return at - since if at > since and life not in lives else None

    def wait_elsewhere(self, since: float, lives: Sequence[Life]) -> float:
        """Wait until a process that is none of ``lives`` acknowledges a write; return how long after ``since``."""
        self.wait(lambda: self.moved(since, lives) is not None, f"no other server than {lives} takes over")
        return self.moved(since, lives) or 0.0

    def wait_until_ready(self) -> None:
        """Return when clients go on, and each server that is not stopped can take over."""
        self.wait(lambda: all(each.is_ready or each.is_stopped for each in self.members), "a server does not start")
        self.wait_for_answers()

    def wait_for_answers(self, count: int = 8) -> None:
        """Return when so many more writes were acknowledged."""
        before = self.answers.count
        self.wait(lambda: self.answers.count >= before + count, "no write is acknowledged")

    def raise_failures(self) -> None:
        """Raise the first thing that was wrong."""
        problems = [*self.failures, *(member.problem for member in self.members if member.problem)]
        assert not problems, problems[0]

    def last_words(self) -> str:
        """Return what all servers said last."""
        return "\n".join(f"server {each.number}, {each.shift_seconds} s:\n{each.last_words()}" for each in self.members)

    def wait(self, is_true: Callable[[], bool], otherwise: str) -> None:
        """Return when something is true; fail if it does not become so in a long time."""
        deadline = time.monotonic() + STUCK_SECONDS
        while not is_true():
            self.raise_failures()
            assert time.monotonic() < deadline, f"{otherwise}\n{self.last_words()}"
            time.sleep(0.01)

    def _new_caller(self) -> Caller:
        self._callers.append(Caller(self.members, self._acknowledged, self._fail))
        return self._callers[-1]

    def _run(self, work: Callable[[], None], name: str) -> None:
        self._threads.append(started(work, self._fail, name))

    def _fail(self, error: BaseException) -> None:
        if not self._end.is_set():
            self.failures.append("".join(traceback.format_exception(error)))

    def _keep_members(self) -> None:
        """Start again what has ended, and what has lost the store."""
        while not self._end.wait(_KEEP_SECONDS):
            at, life = self.answers.last
            for member in self.members:
                was_holder = not STANDS_BY and member.life in self.answers.first and member.life != life
                if was_holder and at > self.answers.first[life] + _FENCED_SECONDS and not member.is_stopped:
                    member.kill()
                member.keep()

    def _sweep(self) -> None:
        """Sweep as an operator may at any time."""
        while not self._stop.wait(_SWEEP_SECONDS):
            with suppress(UnavailableError):
                sweep(self.home)


def _make_tables(database: nyala.Database) -> int:
    key, options = ["writer", "number"], table()
    database.create_table("t", SCHEMA, key, (), columns(SCHEMA, OPTIONS), if_not_exists=True, **options)
    registers = database.create_table("r", REGISTERS, ["k"], (), columns(REGISTERS), if_not_exists=True, **options)
    registers.upsert([{"k": register, "v": 0} for register in range(_REGISTERS)])
    return database.now()
