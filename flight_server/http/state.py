"""ServerState: what the HTTP port knows of the server, from before the store is open until after it is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...clients.flight.deadline import answered_within
from ...schemas.errors import StoreError, UnavailableError
from ...schemas.store.metrics import Metrics

if TYPE_CHECKING:
    from ..security.identity import Identity
    from ..server import FlightServer

READY = "ready"
STANDBY = "standby"
DEGRADED = "degraded"
_READINESS_SECONDS = 3.0
_TURN_SECONDS = 5.0
_PAGE_SECONDS = 4.0


class ServerState:
    """The state of the server that the HTTP port shows: from before the store is open until after it is closed. Thread
    safe."""

    def __init__(self) -> None:
        self._server: FlightServer | None = None
        self._is_closed = False
        self._pages = threading.Lock()
        self._metrics = threading.Lock()

    def serves(self, server: FlightServer) -> None:
        """Note that the store is open, and the server takes requests."""
        self._server = server

    def closes(self) -> None:
        """Note that the store is about to be closed."""
        self._is_closed = True

    @property
    def server(self) -> FlightServer | None:
        """The server; None before the store is open."""
        return self._server

    def readiness(self) -> str:
        """Return ``ready``; ``standby``, which is a duty, too, or ``degraded`` if it could not take over now; or why
        clients should not come: ``starting``, ``stopping``, ``read_only``, ``failed``."""
        server = self._server
        if server is None:
            return "starting"
        if self._is_closed or server.admission.is_draining:
            return "stopping"
        try:
            health = server.store.health()
            if health.state == STANDBY:
                return STANDBY if health.status == "ok" else DEGRADED
            return READY if health.takes_writes else "read_only"
        except StoreError:
            return "failed"

    def metrics(self, caller: Identity | None) -> Metrics:
        """Return what the server and its store have counted, if it is for this caller.

        Raises:
            UnavailableError: the store is not open.
            PermissionDeniedError: it is not for this caller.
            StoreError: the store's error.
        """
        with self._turn(self._metrics) as server:
            return server.metrics(caller)

    @contextmanager
    def asking(self) -> Iterator[FlightServer]:
        """Ask the server for a page during the body; one caller at a time, since an answer may take a while.
        Other processes have some seconds for theirs.

        Raises:
            UnavailableError: the store is not open, or others ask for too long.
        """
        with self._turn(self._pages) as server, answered_within(_PAGE_SECONDS):
            yield server

    @contextmanager
    def _turn(self, lock: threading.Lock) -> Iterator[FlightServer]:
        if not lock.acquire(timeout=_TURN_SECONDS):
            raise UnavailableError("an earlier request for the same page is still running; try again", 1.0)
        try:
            server = self._server
            if server is None or self._is_closed:
                raise UnavailableError("the store is not open", 1.0)
            yield server
        finally:
            lock.release()


class Readiness:
    """The readiness that the HTTP port shows: asks whether the server takes requests, once for all who want to know at
    the same time, and not for ever. For one event loop."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[str] | None = None
        self._end = 0.0

    async def status(self) -> str:
        """Return the answer, or ``unresponsive`` if there is none in time."""
        loop, asked = asyncio.get_running_loop(), self._asked
        if asked is None or asked.done():
            asked = self._asked = loop.run_in_executor(None, self._ask)
            self._end = loop.time() + _READINESS_SECONDS
        done, _ = await asyncio.wait([asked], timeout=max(self._end - loop.time(), 0))
        return asked.result() if done else "unresponsive"
