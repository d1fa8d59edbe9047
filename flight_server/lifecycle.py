"""The life of a server process: start, announce, wait for a signal, drain, stop.

pyarrow's ``serve`` is never called: SIGTERM kills it at once, and its shutdown waits for ever for a client that has
stopped reading. The server runs from its construction on; the main thread only waits.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from ..schemas.errors import StoreError, UnavailableError
from ..schemas.service import MaintenanceKind, StoreService
from .config import ServerConfig
from .location import bound_location
from .server import FlightServer
from .service_manager import tell_manager

if TYPE_CHECKING:
    from .http.port import HttpPort
    from .security.security import Security
    from .traces import Traces

_LOG = logging.getLogger("nyala.flight_server")

SWITCH_INTERVAL_SECONDS = 2e-4
"""How long a thread may keep the interpreter: with Python's default of 5 ms one scan delays all small requests."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
SHUTDOWN_SECONDS = 2.0
"""Time for the transport to close idle connections, after the requests have ended or timed out."""


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, the second to stop at once.

    Python runs signal handlers on the main thread, between two instructions. A main thread that sleeps in a lock never
    gets there if the system delivered the signal to another thread, or just before the main thread fell asleep. So the
    handler does nothing, and a thread reads the signal's number, which the interpreter writes into a socket as soon as
    a signal arrives on any thread (``signal.set_wakeup_fd``).
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._received_count = 0
        self._asked: Callable[[], None] = lambda: None
        self._in_a_hurry: Callable[[], None] = lambda: None
        self._hung_up: Callable[[], None] = lambda: None

    def install(self) -> StopSignals:
        """Install the handlers; only the main thread may."""
        heard, woken = socket.socketpair()
        woken.setblocking(False)  # set_wakeup_fd requires it
        threading.Thread(target=self._listen, args=(heard, woken), name="nyala-signals", daemon=True).start()
        signal.set_wakeup_fd(woken.fileno())
        for number in STOPPING:
            signal.signal(number, lambda *_: None)
        return self

    def wait(self) -> None:
        """Return when the first signal has arrived."""
        self._stop.wait()

    def on_first(self, asked: Callable[[], None]) -> None:
        """Call ``asked`` when the first signal arrives, on any thread."""
        self._asked = asked

    def on_second(self, hurry: Callable[[], None]) -> None:
        """Call ``hurry`` when a second signal arrives, or at once if it has."""
        self._in_a_hurry = hurry
        if self._received_count > 1:
            hurry()

    def on_hangup(self, act: Callable[[], None]) -> None:
        """Call ``act`` at each SIGHUP, which otherwise ends the process; only the main thread may."""
        self._hung_up = act
        signal.signal(signal.SIGHUP, lambda *_: None)

    def ignore(self) -> None:
        """Ignore further signals: all is done, and a signal would kill the interpreter while it exits."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self, heard: socket.socket, woken: socket.socket) -> None:
        """Read signal numbers for ever; ``woken`` is kept open for the interpreter."""
        while numbers := heard.recv(64):
            for number in numbers:
                if number in STOPPING:
                    self._received()
                elif number == signal.SIGHUP:
                    try:
                        self._hung_up()
                    except Exception:  # this thread must go on, or nothing would stop the server
                        _LOG.exception("SIGHUP failed")
        woken.close()

    def _received(self) -> None:
        self._received_count += 1
        if self._received_count == 1:
            self._asked()
        else:
            self._in_a_hurry()
        self._stop.set()


def run_server(
    open_store: Callable[[], StoreService],
    location: str,
    config: ServerConfig,
    announce: Callable[[str], None],
    security: Security | None = None,
    exit_code: Callable[[], int] = int,
    http: HttpPort | None = None,
    traces: Traces | None = None,
) -> None:
    """Serve until a signal, then drain and close the store; return if all ended in time. Otherwise exit the process
    with ``exit_code``, by default 0: signals no longer reach it.

    ``open_store`` is called before the first request can arrive, ``announce`` with the bound location when it can. A
    signal that arrives while the store is opened ends the process at once: nothing has been acknowledged, and an
    interrupted opening is like a crash. ``http`` listens already, and is stopped at the end.

    Raises:
        StoreError: the store cannot be opened; UNAVAILABLE if the location cannot be listened on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    signals = StopSignals().install()
    signals.on_first(lambda: _leave(exit_code()))
    store = open_store()
    signals.on_first(lambda: None)
    try:
        server = _listen(store, location, config, security, traces)
    except BaseException:
        store.close()
        raise
    if http:
        http.state.serves(server)
    gc.freeze()  # imported objects stay: full collections need not scan them
    if security:
        signals.on_hangup(security.load_again)
    announce(bound_location(location, server.port))
    tell_manager("READY=1")
    signals.wait()
    tell_manager("STOPPING=1")
    signals.on_second(server.admission.expire)
    has_ended = drain(server, store, http)
    signals.ignore()
    if not has_ended:
        # Transport threads are stuck in clients that stopped reading; the store is closed, and nothing is lost.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exit_code())


def _leave(exit_code: int) -> None:
    _LOG.info("stopped while the store was opening")
    logging.shutdown()
    os._exit(exit_code)


def _listen(
    store: StoreService, location: str, config: ServerConfig, security: Security | None, traces: Traces | None
) -> FlightServer:
    try:
        return FlightServer(store, location, config, security, traces)
    except (pa.ArrowException, OSError) as error:
        raise UnavailableError(f"cannot listen on {location}: {str(error).partition('. Detail')[0]}") from None


def drain(server: FlightServer, store: StoreService, http: HttpPort | None = None) -> bool:
    """Reject new requests, let running ones end, flush, close the store; return False if the transport did not end."""
    seconds, began = server.config.drain_seconds, time.monotonic()
    _LOG.info("stopping: running requests have %g seconds to finish", seconds)
    admission = server.admission
    admission.drain()
    if not admission.wait_until_idle(max(seconds - SHUTDOWN_SECONDS, seconds / 2)):
        _LOG.warning("some requests did not finish in time")
    admission.expire()
    server.calls.end_all()  # calls stuck in their clients notice nothing else
    closing = threading.Thread(target=server.shutdown, name="nyala-shutdown", daemon=True)
    closing.start()
    _flush(store, seconds - SHUTDOWN_SECONDS - (time.monotonic() - began))
    closing.join(SHUTDOWN_SECONDS)
    if http:
        http.state.closes()
    store.close()
    if http:
        http.stop()
    _LOG.info("stopped")
    return not closing.is_alive()


def _flush(store: StoreService, seconds: float) -> None:
    """Flush the tables, as far as that goes in ``seconds``: what is in files the next start need not replay."""
    is_over = threading.Event()
    flushing = threading.Thread(target=_flush_until, args=(store, is_over), name="nyala-flush", daemon=True)
    if seconds > 0:
        flushing.start()
        flushing.join(seconds)
        is_over.set()


def _flush_until(store: StoreService, is_over: threading.Event) -> None:
    try:
        if not store.maintenance().is_on:
            return
        for kind in (MaintenanceKind.FLUSH, MaintenanceKind.FLUSH_DELTAS):
            for table in store.tables():
                if is_over.is_set():
                    return
                if store.describe_table(table).options.maintenance == "on":
                    store.maintain(table, kind)
    except StoreError as error:
        _LOG.warning("not all was flushed; the next start replays the rest from the log: %s", error.message)
