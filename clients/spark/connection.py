"""One connection a server and process, and one to all servers that share their tables.

Spark forks the processes that run Python, and gRPC does not survive a fork: so a connection is made when it is first
used, and never looked at by a process that did not make it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from ...schemas.errors import UnavailableError, WrongServerError
from ...schemas.scan import ScanSpec
from ...schemas.service import StoreService
from ..api.connect import store_of
from ..flight.scan_parts import ScanPart
from ..flight.server_wait import ServerWait
from ..flight.store import FlightStore

_servers: dict[tuple[int, str], FlightStore] = {}
_all_servers: dict[tuple[int, str], StoreService] = {}


def server_at(uri: str, patient: bool = True) -> FlightStore:
    """Return this process's connection to the one server at ``uri``. With ``patient`` one that does not answer is
    waited for, for some seconds: it may be restarting, and a stream has many processes, each with its own connection.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``uri`` is no location.
    """
    key = (os.getpid(), uri)
    if key not in _servers:
        _servers[key] = _connected(uri, patient)
    return _servers[key]


def all_servers_at(uri: str) -> StoreService:
    """Return this process's connection to all servers that share their tables with the one at ``uri``, as one store.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``uri`` is no location.
    """
    key = (os.getpid(), uri)
    if key not in _all_servers:
        server_at(uri)  # which waits for it
        _all_servers[key] = store_of(uri)
    return _all_servers[key]


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


def batches_of(uri: str, part: ScanPart) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a part as they come, from the server that has its tablet now.

    Raises:
        WrongServerError: no server has it.
        UnavailableError: that server cannot be reached; the text says which.
    """
    location = part.locations[0] if part.locations else uri
    try:
        yield from server_at(location).read_part(part)
    except WrongServerError:  # raised before the first batch: the tablet was moved since the scan was planned
        yield from _followed(uri, part)
    except UnavailableError as error:
        if location in error.message:
            raise
        raise UnavailableError(f"the server at {location}: {error.message}", error.retry_after_seconds) from None


def _followed(uri: str, part: ScanPart) -> Iterator[pa.RecordBatch]:
    """Return the batches of a part whose tablet is not where it was planned, from the server that it was moved to."""
    from ..cluster.store import PlacedStore  # needs numpy, and only here

    store, ticket = all_servers_at(uri), ScanSpec.model_validate_json(part.ticket)
    if not isinstance(store, PlacedStore) or ticket.partition is None:
        raise WrongServerError("the part is of a tablet that was moved to another server: plan the scan again")
    return store.follow(ticket)
