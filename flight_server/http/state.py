"""ServerState: what the HTTP port knows of the server, from before the store is open until after it is closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.metrics import Metrics

if TYPE_CHECKING:
    from ..security.identity import Identity
    from ..server import FlightServer

READY = "ready"


class ServerState:
    """Thread safe."""

    def __init__(self) -> None:
        self._server: FlightServer | None = None
        self._is_closed = False
        self._asking = threading.Lock()

    def serves(self, server: FlightServer) -> None:
        """Note that the store is open, and the server takes requests."""
        self._server = server

    def closes(self) -> None:
        """Note that the store is about to be closed."""
        self._is_closed = True

    def readiness(self) -> str:
        """Return ``ready``, or why clients should not come: ``starting``, ``stopping``, ``read_only``, ``failed``."""
        server = self._server
        if server is None:
            return "starting"
        if self._is_closed or server.admission.is_draining:
            return "stopping"
        try:
            return READY if server.store.health().takes_writes else "read_only"
        except StoreError:
            return "failed"

    def metrics(self, caller: Identity | None) -> Metrics:
        """Return what the server and its store have counted, if it is for this caller.

        Raises:
            UnavailableError: the store is not open.
            PermissionDeniedError: it is not for this caller.
            StoreError: the store's error.
        """
        with self.asking() as server:
            return server.metrics(caller)

    @contextmanager
    def asking(self) -> Iterator[FlightServer]:
        """Ask the server during the body; one caller at a time, since an answer may take a while.

        Raises:
            UnavailableError: the store is not open.
        """
        with self._asking:
            server = self._server
            if server is None or self._is_closed:
                raise UnavailableError("the store is not open", 1.0)
            yield server
