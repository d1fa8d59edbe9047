"""The link from a job's tasks to a store: over Flight from any process, or in this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.store.locations import joined
from ...schemas.store.placement import Placement
from ..api.database import Database
from ..api.per_process import all_servers_at
from ..flight.credentials import Credentials
from ..flight.store import FlightStore
from .splits import TableSplit

Store = Database | str
"""The store of a job: a database, or the URL of a server."""


@dataclass(frozen=True)
class StoreLink:
    """The link from a job's tasks to a store: a reference that can be sent to other processes if the store has a URL;
    an embedded store cannot.

    For a server that shares its tables with others, it refers to all of them. A client is made on first use and kept
    for each process: a forked process makes its own.
    """

    url: str | None
    held: StoreService | None = None
    placement: Placement | None = None
    """The placement of the servers, if the store was named by one."""
    credentials: Credentials | None = None
    """What the database shows its servers; None: what the environment of each process says."""

    @classmethod
    def to(cls, store: Store) -> StoreLink:
        """Return the link to a database or a URL."""
        if isinstance(store, str):
            return cls(store)
        if not isinstance(store, Database):
            raise InvalidArgumentError(
                f"a store must be a Database or the URL of a server, not a {type(store).__name__}"
            )
        service = store._store
        if isinstance(service, FlightStore):
            held = service if service.holder_health().server is None else None
            return cls(service.url, held, None, service.credentials)
        if public := getattr(service, "public", None):
            return cls(public.url, service, None, public.credentials)
        servers = getattr(service, "servers", None)
        return cls(None, service, getattr(servers, "placement", None), getattr(servers, "credentials", None))

    @property
    def service(self) -> StoreService:
        """The store.

        Raises:
            UnavailableError: no server answers at the URL.
        """
        if self.held is not None:
            return self.held
        place = self.placement if self.url is None else self.url
        assert place is not None, "a link is to a store that is held, a URL or a placement"
        return all_servers_at(place, False, self.credentials)

    @property
    def location(self) -> str | None:
        """A URL by which other processes reach the store: that of one of its servers. None if it has none."""
        return joined(next(iter(self.placement.servers.values()))) if self.placement else self.url

    @property
    def database(self) -> Database:
        """The store as a database."""
        return Database(self.service)

    def scan(self, split: TableSplit) -> ScanStream:
        """Start the scan of one part of a table, wherever its tablet is now.

        Raises:
            WrongServerError: no server has it.
        """
        service = self.service
        if split.server is None:
            return (getattr(service, "public", None) or service).scan(split.scan)
        if isinstance(service, FlightStore) and split.server in service.holder_health().processes:
            return service.scan(split.scan)  # from here only its public address can be reached
        from ..cluster.store import PlacedStore  # needs numpy, and only here

        if not isinstance(service, PlacedStore):
            raise InvalidArgumentError(
                f"a part of the job is on the server {split.server!r}, but {service!r} does not share tables: "
                "give the servers with which the job was started"
            )
        return service.scan_split(split.server, split.scan)

    def check_portable(self) -> None:
        """Raise InvalidArgumentError if other processes cannot reach the store."""
        if self.location is None:
            raise InvalidArgumentError(
                "an embedded database cannot be used by other processes: serve its "
                "directory and give the server's URL, or run the job with executor='local'"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        self.check_portable()
        return (StoreLink, (self.url, None, self.placement, self.credentials))
