"""Servers that share their tables: in this process, over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight.credentials import Credentials
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.home import Home
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.placement import Placement, ServerIdentity
from tests.campaigns.options import stored

_CACHE_BYTES = 64 << 20
"""Of each server: all of them are in one process, and would take a half of the machine each."""


class Member:
    """One server and its store."""

    def __init__(self, here: ServerIdentity, fs: FileSystem | Home, collector: str | None = None) -> None:
        self.here = here
        self.fs = fs
        self.collector = collector
        self.start()

    @property
    def location(self) -> str:
        return self.here.placement.servers[self.here.server][0]

    def start(self) -> None:
        here = {"placement": self.here.placement, "server": self.here.server}
        options = StoreOptions(maintenance="off", page_cache_bytes=_CACHE_BYTES, **here)
        self.store = Store.open(self.fs, stored(options))
        self.gateway = Gateway(self.store, self.here, Credentials(traces=self.collector is not None))
        traces = None
        if self.collector is not None:
            from nyala.flight_server.requests.traces import Traces

            traces = Traces(self.collector, self.here.server)
        self.server = FlightServer(cast(StoreService, self.gateway), self.location, traces=traces)

    def stop(self) -> None:
        self.server.shutdown()
        self.gateway.close()


class Cluster:
    """Two servers, or as many as there are names."""

    def __init__(
        self, folder: Path, names: str = "ab", collector: str | None = None, bucket: str | None = None
    ) -> None:
        """Traces of their requests go to a ``collector``; their stores are in a ``bucket``, or in memory."""
        servers = {name: (f"grpc+unix://{folder}/{name}",) for name in names}
        self.placement = Placement(servers=servers)
        self.members = {
            name: Member(
                ServerIdentity(self.placement, name), home_at(bucket, name) if bucket else MemoryFileSystem(), collector
            )
            for name in names
        }
        self._databases: list[Database] = []

    def connect(self, name: str | None = None) -> Database:
        """A database of all servers; by the placement, or by what the server ``name`` says."""
        made = nyala.connect(placement=self.placement) if name is None else nyala.connect(self.members[name].location)
        self._databases.append(made)
        return made

    def close(self) -> None:
        for database in self._databases:
            database.close()
        for member in self.members.values():
            member.stop()
