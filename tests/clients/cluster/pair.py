"""Servers that share their tables, in this process and without sockets, on disks that can lose power."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, cast

from nyala.clients.api.database import Database
from nyala.clients.cluster.servers import Servers
from nyala.clients.cluster.store import PlacedStore
from nyala.clients.cluster.tablet_locations import TabletLocationsCache
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.placement import Placement, ServerIdentity, TablePlacement
from nyala.schemas.store.store_key import StoreKey


class _Door:
    """A server as others reach it: whichever process runs there now. May be told to break off after some calls."""

    def __init__(self, pair: Pair, name: str) -> None:
        self._pair = pair
        self._name = name

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._pair.gateways[self._name], verb)
        return self._pair.watched(self._name, verb, found) if verb.startswith("move_") else found


class Stopped(BaseException):
    """Whoever drives a move is gone."""


class Pair:
    """Two servers, or as many as there are names."""

    def __init__(
        self,
        names: str = "ab",
        placed_on: str | None = None,
        keys: Mapping[str, StoreKey] | None = None,
        **options: Any,
    ) -> None:
        """New tables are placed on the servers ``placed_on``, all if that is None; ``options`` are of the stores, and
        those that have ``keys`` are encrypted."""
        self.options = options
        self.keys = keys or {}
        tables = {"t": TablePlacement(servers=tuple(placed_on))} if placed_on else {}
        self.placement = Placement(servers={name: (f"grpc://{name}:1",) for name in names}, tables=tables)
        self.disks = {name: MemoryFileSystem() for name in names}
        self.stores: dict[str, Store] = {}
        self.gateways: dict[str, Gateway] = {}
        known = {name: cast(StoreService, _Door(self, name)) for name in names}
        self.members = Servers(self.placement, known=known)
        self.cache = TabletLocationsCache(self.members)
        self.db = Database(cast(StoreService, PlacedStore(self.members)))
        self.calls: list[str] = []
        self.stop_at: int | None = None
        self.clock_error_seconds = 10
        self.after = False
        """Whether the call at which it stops is still made."""
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        here = ServerIdentity(self.placement, name)
        options = StoreOptions(
            maintenance="off",
            placement=self.placement,
            server=name,
            wal_segment_bytes=1 << 18,
            key=self.keys.get(name),
            **{"clock_error_seconds": self.clock_error_seconds, **self.options},
        )
        self.stores[name] = self.opened(name, options)
        gateway = self.gateways[name] = Gateway(self.stores[name], here)
        gateway._servers.close()
        gateway._servers = self.members
        gateway._all = PlacedStore(self.members)

    def opened(self, name: str, options: StoreOptions) -> Store:
        """Return the store of a server, as a process that starts finds it."""
        return Store.open(self.disks[name], options)

    def crash(self, name: str, seed: int = 0) -> None:
        """Let the power fail on a server, and start it again with what its disk has."""
        self.disks[name] = self.disks[name].crash_image(Random(seed))
        self.start(name)

    def watched(self, name: str, verb: str, found: Any) -> Any:
        def call(*arguments: Any) -> Any:
            stops = self.stop_at == len(self.calls)
            self.calls.append(f"{name} {verb}")
            if stops and not self.after:
                raise Stopped
            answer = found(*arguments)
            if stops:
                raise Stopped
            return answer

        return call

    def owners(self, table: str) -> list[str]:
        """The servers that have each tablet, in an order of the partitions."""
        found: dict[Any, list[str]] = {}
        for name, store in self.stores.items():
            for place in store.tablets(table).tablets:
                owner = found.setdefault(place.partition.buckets, [])
                if place.server is None:
                    owner.append(name)
        assert all(len(names) == 1 for names in found.values()), found
        return [found[key][0] for key in sorted(found)]

    def close(self) -> None:
        self.members.close()
        for store in self.stores.values():
            store.close()
