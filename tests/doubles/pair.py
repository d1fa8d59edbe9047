"""Two processes that can have one store, in this one: Flight servers, each holder or standby as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast
from uuid import uuid4

from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.description import Health
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.proxy import Proxy


class Member:
    """One process. Its server passes calls to the store, or refuses them."""

    def __init__(self, store: Store, pair: Pair) -> None:
        self.is_holder = False
        self.epoch = 0
        self.process = uuid4().hex
        self.asked = 0
        """How often it was asked who has the store."""
        self.checked = 0
        """How often the holder was asked which store it has."""
        self.calls: list[str] = []
        """The calls that it refused."""
        self._store = store
        self._pair = pair
        self._server = FlightServer(cast(StoreService, self), "grpc://127.0.0.1:0", process=cast(Any, self))
        self._proxy = Proxy(self._server.port)
        self.url = self._proxy.url

    def whereabouts(self) -> Whereabouts:
        """What it answers to ``where``."""
        self.asked += 1
        state = "holder" if self.is_holder else "standby"
        holder = self._pair.holder_as(self)
        return Whereabouts(name=self._pair.name, state=state, holder=holder, end=9, age_seconds=0.1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self._store, name)
        if name == "health":
            self.checked += self.is_holder
        if self.is_holder or name == "grants_version":
            return found
        if name == "health":
            return lambda: Health(status="ok", name=self._pair.name, state="standby")

        def refuse(*_: Any, **__: Any) -> NoReturn:
            self.calls.append(name)
            holder = self._pair.holder_as(self)
            raise UnavailableError("this process is a standby of the store a", 0.2, holder.locations if holder else [])

        return refuse

    def become(self, store: Store) -> None:
        """Break its connections, and come back as another process with a store."""
        self._store, self.process = store, uuid4().hex
        self.cut()

    def cut(self) -> None:
        """Break its connections."""
        self._proxy.cut()

    def die(self) -> None:
        """Break its connections, and take no others."""
        self._proxy.close()

    def close(self) -> None:
        self._proxy.close()
        self._server.shutdown()


class Pair:
    """Two members, of which the first has the store at first."""

    def __init__(self, store: Store, name: str = "a") -> None:
        self.store = store
        self.name = name
        self.began = store.now()
        self._told: Holder | None = None
        self.first, self.second = Member(store, self), Member(store, self)
        self.give_to(self.first)

    @property
    def url(self) -> str:
        """Both locations; the second has no scheme of its own."""
        return f"{self.first.url},{self.second.url.removeprefix('grpc://')}"

    def holder_as(self, member: Member) -> Holder | None:
        """Who has the store, as a member knows."""
        if member.is_holder:
            return Holder(locations=[member.url], epoch=member.epoch, process=member.process)
        return self._told

    def give_to(self, member: Member | None) -> None:
        """Let a member have the store, or nobody."""
        for each in (self.first, self.second):
            each.is_holder = False
        self._told = None
        if member is not None:
            member.epoch = 1 + max(self.first.epoch, self.second.epoch)
            self._told = Holder(locations=[member.url], epoch=member.epoch, process=member.process)
            member.is_holder = True

    def close(self) -> None:
        self.first.close()
        self.second.close()
