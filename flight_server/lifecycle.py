"""The life of a server process: start, announce, wait for a signal, drain, stop.

pyarrow's ``serve`` is never called: it dies of SIGTERM at once, and its shutdown waits for ever for a client that
has stopped reading. The server runs from its construction on; the main thread only waits.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import pyarrow as pa

from ..schemas.errors import UnavailableError
from ..schemas.service import StoreService
from .config import ServerConfig
from .location import bound_location
from .server import FlightServer

_LOG = logging.getLogger("nyala.flight_server")

SWITCH_INTERVAL_SECONDS = 2e-4
"""How long a thread may keep the interpreter: with Python's 5 ms one busy scan delays every small request."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
SHUTDOWN_SECONDS = 2.0
"""What the transport gets to close idle connections, after the requests have ended or run out of time."""


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, a second to stop at once.

    Python runs a signal's handler on the main thread, between two of its instructions. A main thread that sleeps in a
    lock does not get there when the system gave the signal to another thread, nor when the signal came just before it
    fell asleep. So the handler does nothing, and a thread reads the number that the interpreter writes into a socket
    the moment a signal comes, whichever thread gets it (``signal.set_wakeup_fd``).
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._received_count = 0
        self._asked: Callable[[], None] = lambda: None
        self._in_a_hurry: Callable[[], None] = lambda: None

    def install(self) -> StopSignals:
        """Take the two signals over; only the main thread may."""
        heard, woken = socket.socketpair()
        woken.setblocking(False)  # what set_wakeup_fd asks for
        threading.Thread(target=self._listen, args=(heard, woken), name="nyala-signals", daemon=True).start()
        signal.set_wakeup_fd(woken.fileno())
        for number in STOPPING:
            signal.signal(number, lambda *_: None)
        return self

    def wait(self) -> None:
        """Return when the first signal has come."""
        self._stop.wait()

    def on_first(self, asked: Callable[[], None]) -> None:
        """Call ``asked`` when the first signal comes; it may come on any thread."""
        self._asked = asked

    def on_second(self, hurry: Callable[[], None]) -> None:
        """Call ``hurry`` when a second signal comes, or at once when it has come already."""
        self._in_a_hurry = hurry
        if self._received_count > 1:
            hurry()

    def ignore(self) -> None:
        """Take no more of them: all is done, and one that comes while the interpreter ends would kill it."""
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self, heard: socket.socket, woken: socket.socket) -> None:
        """Read numbers of signals for ever; ``woken`` is held open for the interpreter."""
        while numbers := heard.recv(64):
            for number in numbers:
                if number in STOPPING:
                    self._received()
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
) -> None:
    """Serve until a signal comes, then drain and close the store; return if all ended in time, else end the process,
    which is all that is left to do: signals that stop it are not heard any more.

    ``open_store`` is called before the first request can come in, ``announce`` with the bound location when it can. A
    signal that comes while the store is opened ends the process at once: nothing has been promised to anybody, and what
    an opening leaves unfinished is what a crash does.

    Raises:
        StoreError: what opening the store raises; UNAVAILABLE when the location cannot be listened on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    signals = StopSignals().install()
    signals.on_first(_leave)
    store = open_store()
    signals.on_first(lambda: None)
    try:
        server = _listen(store, location, config)
    except BaseException:
        store.close()
        raise
    gc.freeze()  # what was imported stays: no full collection need go through it
    announce(bound_location(location, server.port))
    signals.wait()
    signals.on_second(server.admission.expire)
    has_ended = drain(server, store)
    signals.ignore()
    if not has_ended:
        # Threads of the transport are stuck in clients that stopped reading; the store is closed, nothing is lost.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _leave() -> None:
    _LOG.info("stopped while the store was opening")
    logging.shutdown()
    os._exit(0)


def _listen(store: StoreService, location: str, config: ServerConfig) -> FlightServer:
    try:
        return FlightServer(store, location, config)
    except (pa.ArrowException, OSError) as error:
        raise UnavailableError(f"cannot listen on {location}: {str(error).partition('. Detail')[0]}") from None


def drain(server: FlightServer, store: StoreService) -> bool:
    """Let nothing new in, let running requests end, close the store; return False if the transport did not end."""
    seconds = server.config.drain_seconds
    _LOG.info("stopping: running requests have %g seconds to finish", seconds)
    admission = server.admission
    admission.drain()
    if not admission.wait_until_idle(max(seconds - SHUTDOWN_SECONDS, seconds / 2)):
        _LOG.warning("some requests did not finish in time")
    admission.expire()
    server.calls.end_all()  # those that are stuck in their clients hear nothing else
    closing = threading.Thread(target=server.shutdown, name="nyala-shutdown", daemon=True)
    closing.start()
    closing.join(SHUTDOWN_SECONDS)
    store.close()
    _LOG.info("stopped")
    return not closing.is_alive()
