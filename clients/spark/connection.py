"""One connection a server and process, and one to all servers that share their tables.

Spark forks the processes that run Python, and gRPC does not survive a fork: so a connection is made when it is first
used, and never looked at by a process that did not make it.
"""

from __future__ import annotations

import os

from ...schemas.service import StoreService
from ..connect import store_of
from ..flight import FlightStore

_stores: dict[tuple[int, str], FlightStore] = {}
_whole: dict[tuple[int, str], StoreService] = {}


def store_at(uri: str) -> FlightStore:
    """Return this process's connection to a server.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``uri`` is no location.
    """
    key = (os.getpid(), uri)
    if key not in _stores:
        _stores[key] = FlightStore(uri)
    return _stores[key]


def whole_store_at(uri: str) -> StoreService:
    """Return this process's connection to all servers that share their tables with the one at ``uri``: for writing.

    Raises:
        UnavailableError: nobody answers there.
        InvalidArgumentError: ``uri`` is no location.
    """
    key = (os.getpid(), uri)
    if key not in _whole:
        _whole[key] = store_of(uri)
    return _whole[key]
