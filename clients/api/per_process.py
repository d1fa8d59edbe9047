"""The connections of this process: one to a server, and one to all servers that share their tables.

Jobs and Spark send work to other processes. Some of these are forked, and gRPC does not survive a fork. So a connection
is made on first use, and a process uses only connections that it made.
"""

from __future__ import annotations

import os

from ...schemas.errors import UnavailableError
from ...schemas.placement import Placement
from ...schemas.service import StoreService
from ..flight.server_wait import ServerWait
from ..flight.store import FlightStore
from .connect import connect, store_of

_servers: dict[tuple[int, str], FlightStore] = {}
_all_servers: dict[tuple[int, str], StoreService] = {}


def server_at(uri: str, patient: bool = True) -> FlightStore:
    """Return this process's connection to the server at ``uri``. With ``patient``, wait some seconds for a server that
    does not answer: it may be restarting, and each process of a stream has its own connection.

    Raises:
        UnavailableError: no server answers there.
        InvalidArgumentError: ``uri`` is invalid.
    """
    key = (os.getpid(), uri)
    return _servers.get(key) or _servers.setdefault(key, _connected(uri, patient))


def all_servers_at(place: str | Placement, patient: bool = True) -> StoreService:
    """Return this process's connection to all servers that share their tables, as one store: the servers of a
    placement, or those that share with the server at a URI.

    Raises:
        UnavailableError: no server answers there.
        InvalidArgumentError: the URI is invalid.
    """
    key = (os.getpid(), place if isinstance(place, str) else place.model_dump_json())
    return _all_servers.get(key) or _all_servers.setdefault(key, _united(place, patient))


def _united(place: str | Placement, patient: bool) -> StoreService:
    if isinstance(place, str):
        return store_of(server_at(place, patient))
    return connect(placement=place)._store


def _connected(uri: str, patient: bool) -> FlightStore:
    found: list[FlightStore] = []

    def is_back() -> bool:
        found.append(FlightStore(uri))
        return True

    try:
        return FlightStore(uri)
    except UnavailableError as error:
        ServerWait(is_back, patient).wait(error)
        return found[-1]
