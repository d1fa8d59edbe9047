"""How the tasks of a job reach a store: over Flight from any process, or in this one."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.service import StoreService
from ..database import Database
from ..flight import FlightStore

Store = Database | str
"""What a job is given: a database, or the URL of a server."""

_clients: dict[tuple[int, str], FlightStore] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class StoreLink:
    """A store that tasks can be sent to other processes with, if it has a URL; an embedded one stays in this process.

    A client is made when it is first asked for, and kept by process: a forked process makes its own.
    """

    url: str | None
    held: StoreService | None = None

    @classmethod
    def to(cls, store: Store) -> StoreLink:
        """Return the link to a database or a URL."""
        if isinstance(store, str):
            return cls(store)
        if not isinstance(store, Database):
            raise InvalidArgumentError(f"a store is a Database or the URL of a server, not a {type(store).__name__}")
        service = store._store
        return cls(service.url if isinstance(service, FlightStore) else None, service)

    @property
    def service(self) -> StoreService:
        """The store.

        Raises:
            UnavailableError: nobody answers at the URL.
        """
        return self.held if self.held is not None else _client(self.url or "")

    @property
    def database(self) -> Database:
        """The store as a database."""
        return Database(self.service)

    def check_portable(self) -> None:
        """Raise InvalidArgumentError, if other processes cannot reach the store."""
        if self.url is None:
            raise InvalidArgumentError(
                "an embedded database lives in one process: tasks of other processes need a server; start one on the "
                "directory and give its URL, or let the job run with executor='local'"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        self.check_portable()
        return (StoreLink, (self.url,))


def _client(url: str) -> FlightStore:
    place = (os.getpid(), url)
    with _lock:
        if place not in _clients:
            _clients[place] = FlightStore(url)
        return _clients[place]
