"""The connections of this process: one to a server, and one to all servers that share their tables.

Jobs and Spark send work to other processes. Some of these are forked, and gRPC does not survive a fork. So a connection
is made on first use, and a process uses only connections that it made.
"""

from __future__ import annotations

import os

from ...schemas.protocol.service import StoreService
from ...schemas.store.placement import Placement
from ..flight.credentials import Credentials
from ..flight.store import FlightStore
from .connect import connection_to, store_at_placement, store_of

_servers: dict[tuple[int, str, Credentials], FlightStore] = {}
_all_servers: dict[tuple[int, str, Credentials], StoreService] = {}


def server_at(uri: str, patient: bool = True, credentials: Credentials | None = None) -> FlightStore:
    """Return the connection that this process's databases share to the server at ``uri``, with these credentials, or
    the environment's. With ``patient``, wait some seconds for a server that does not answer: it may be restarting, and
    each process of a stream has its own connection. Where somebody stands by for the store, wait in any case.

    Raises:
        UnavailableError: no server answers there.
        InvalidArgumentError: ``uri`` is invalid.
    """
    shown = Credentials.of() if credentials is None else credentials
    key = (os.getpid(), uri, shown)
    if (kept := _servers.get(key)) is None:
        new = connection_to(uri, True, shown, patient=patient)
        kept = _servers.setdefault(key, new)
        if kept is not new:  # another thread was faster
            new.close()
    return kept


def all_servers_at(
    place: str | Placement, patient: bool = True, credentials: Credentials | None = None
) -> StoreService:
    """Return the connection that this process's databases share to all servers that share their tables, as one store:
    the servers of a placement, or those that share with the server at a URI.

    Raises:
        UnavailableError: no server answers there.
        InvalidArgumentError: the URI is invalid.
    """
    shown = Credentials.of() if credentials is None else credentials
    key = (os.getpid(), place if isinstance(place, str) else place.model_dump_json(), shown)
    return _all_servers.get(key) or _all_servers.setdefault(key, _united(place, patient, shown))


def _united(place: str | Placement, patient: bool, credentials: Credentials) -> StoreService:
    if isinstance(place, str):
        return store_of(server_at(place, patient, credentials))
    return store_at_placement(place, True, credentials)
