"""Servers that share their tables, whose stores are in one bucket: for each name two processes, of which one has it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight.deadline import answered_within
from nyala.clients.flight.store import FlightStore
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.store.placement import Placement
from nyala.schemas.store.whereabouts import Whereabouts
from tests.campaigns.failover.checks import check_sound, check_swept
from tests.campaigns.failover.member import Member
from tests.campaigns.failover.places import Place, bucket_at, url_at

STUCK_SECONDS = 180.0
"""Longer than this nothing may take, however slow the machine is."""
_TELL_SECONDS = 15.0
_ASK_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_KEEP_SECONDS = 0.1
_OPTIONS = {"log_patience_seconds": 20}
"""A process that is cut off from the bucket still answers what it may."""


class Served:
    """A context manager: the servers run inside, and are healed and stopped at its end."""

    def __init__(
        self,
        place: Place,
        root: str,
        folder: Path,
        random: Random,
        lease_seconds: float,
        names: str = "ab",
        planted: str = "",
    ) -> None:
        self.lease_seconds = lease_seconds
        self.random = random
        self.names = names
        self._place, self._root, self._folder = place, root, folder
        self._end = threading.Event()
        self._databases: list[Database] = []
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self.file = folder / "servers.json"
        self.members = {name: [self._member(name, number, planted) for number in (1, 2)] for name in names}
        servers = {name: tuple(each.location for each in some) for name, some in self.members.items()}
        self.file.write_text(json.dumps({"servers": servers}))
        self.placement = Placement(servers=servers)

    def _member(self, name: str, number: int, planted: str) -> Member:
        folder = self._folder / f"{name}{number}"
        control = folder / "control"
        control.mkdir(parents=True)
        way = self._place.way(self._root, control, self.random.randrange(1 << 30))
        flags = ["--placement", str(self.file), "--maintenance", "off"]
        member = Member(
            number,
            folder,
            way,
            self.lease_seconds,
            Random(self.random.random()),
            planted,
            name,
            flags,
            _OPTIONS,
            shifts=(0,),
        )
        member.flags = [*flags, "--advertise", member.location]
        return member

    def __enter__(self) -> Served:
        for member in self.all:
            member.start()
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._end.set()
        self._keeper.join()
        for database in self._databases:
            with suppress(StoreError):
                database.close()
        for member in self.all:
            member.ask_to_end()
        for member in self.all:
            member.end()

    @property
    def all(self) -> list[Member]:
        """Return all processes."""
        return [member for some in self.members.values() for member in some]

    def connect(self) -> Database:
        """A database of all servers, whose calls wait for those that are away."""
        self._databases.append(nyala.connect(placement=self.placement))
        return self._databases[-1]

    def heal(self) -> None:
        """Take all faults from all processes."""
        for member in self.all:
            member.way.mend()
            member.proxy.mend()
            member.go_on()

    def holder(self, name: str, but: Sequence[Member] = ()) -> Member:
        """Return the process that has a store and can be asked, once there is one."""
        found: list[Member] = []

        def is_there() -> bool:
            told = {each.number: where(each) for each in self.members[name] if not each.is_stopped and each not in but}
            epochs = {number: _epoch(each) for number, each in told.items() if each and each.state == "holder"}
            if epochs:
                found.append(self.members[name][max(epochs, key=lambda number: epochs[number]) - 1])
            return bool(found)

        self.wait(is_there, lambda: f"nobody has the store {name}")
        return found[-1]

    def other(self, member: Member) -> Member:
        """Return the other process of the same name."""
        return next(each for each in self.members[member.name] if each is not member)

    def wait_until_ready(self) -> None:
        """Return when each name has a holder, and another process that stands by."""

        def states() -> list[list[str]]:
            told = [[where(each) for each in some] for some in self.members.values()]
            return [sorted(each.state for each in some if each is not None and each.holder) for some in told]

        def lacking() -> str:
            return f"not all names are served: {states()}"

        self.wait(lambda: all(each == ["holder", "standby"] for each in states()), lacking)

    def wait(self, is_true: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Return when something is true; fail if it does not become so in a long time, and say what is so otherwise."""
        began, told = time.monotonic(), 0
        while not is_true():
            self.raise_problems()
            seconds = time.monotonic() - began
            assert seconds < STUCK_SECONDS, f"{otherwise()}\n{self.last_words()}"
            if seconds > (told + 1) * _TELL_SECONDS:
                told += 1
                print(f"    for {seconds:.0f} s {otherwise()}", flush=True)
            time.sleep(_LOOK_SECONDS)

    def raise_problems(self) -> None:
        """Raise what was wrong with a process."""
        problems = [member.problem for member in self.all if member.problem]
        assert not problems, problems[0]

    def last_words(self) -> str:
        """Return what all processes said last."""
        return "\n".join(f"{each.name}{each.number}:\n{each.last_words()}" for each in self.all)

    def check_stores(self) -> int:
        """Check the stores when nobody has them: nothing is missing, and a sweep leaves only what they need. Return how
        much it deleted."""
        swept = 0
        for name in self.names:
            home = BucketHome(bucket_at(self._place, self._root), name, url_at(self._place, self._root))
            check_sound(home)
            cache = str(self._folder / f"check-{name}")
            Store.open(home, StoreOptions(maintenance="off", bucket_cache=cache, lease_seconds=1)).close()
            swept += check_swept(home)
        return swept

    def _keep(self) -> None:
        while not self._end.wait(_KEEP_SECONDS):
            for member in self.all:
                member.keep()


def where(member: Member) -> Whereabouts | None:
    """Return what a process says of itself; None if it does not answer."""
    try:
        with answered_within(_ASK_SECONDS), closing(FlightStore(member.location, retries=False)) as itself:
            return itself.whereabouts()
    except UnavailableError:
        return None


def _epoch(found: Whereabouts) -> int:
    return found.holder.epoch if found.holder else 0
