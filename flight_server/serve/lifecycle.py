"""The life of a server process: start, announce, wait for a signal, drain, stop.

pyarrow's ``serve`` is never called: SIGTERM kills it at once, and its shutdown waits for ever for a client that has
stopped reading. The server runs from its construction on; the main thread only waits.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.server_verbs import ServerVerbs
from ...schemas.protocol.service import StoreService
from ..runtime.flush_before_close import HAND_OVER_SECONDS, flush_within, rest_within
from ..runtime.location import bound_location, reachable
from ..runtime.service_manager import tell_manager
from ..runtime.stop_signals import StopSignals
from ..server import FlightServer, SqlCalls
from ..settings.config import ServerConfig
from ..stores.fixed_whereabouts import OwnStore

if TYPE_CHECKING:
    from ..requests.traces import Traces
    from ..security.security import Security
    from .name_server import NameServer
    from .port import HttpPort

_LOG = logging.getLogger("nyala.flight_server")

SWITCH_INTERVAL_SECONDS = 2e-4
"""How long a thread may keep the interpreter: with Python's default of 5 ms one scan delays all small requests."""
SHUTDOWN_SECONDS = 2.0
"""Time for the transport to close idle connections, after the requests have ended or timed out."""
_CLOSE_SECONDS = 1.0
"""How long a store that others wait for may take to close, at least."""

_ARENA_MAX = -8
"""The parameter of mallopt(3)."""


def run_server(
    open_store: Callable[[], StoreService],
    location: str,
    config: ServerConfig,
    announce: Callable[[str], None],
    security: Security | None = None,
    exit_code: Callable[[], int] = int,
    http: HttpPort | None = None,
    traces: Traces | None = None,
    process: NameServer | None = None,
    name: str | None = None,
) -> None:
    """Run a server process: serve until a signal, then drain and close the store; return if all ended in time.
    Otherwise exit the process with ``exit_code``, by default 0: signals no longer reach it.

    ``open_store`` is called before the first request can arrive, ``announce`` with the bound location when it can. A
    signal that arrives while the store is opened ends the process at once: nothing has been acknowledged, and an
    interrupted opening is like a crash. ``http`` listens already, and is stopped at the end.

    ``process`` waits for its store, which another process may have: ``open_store`` returns what is served meanwhile. A
    signal that arrives while it opens the store lets it end that, and release the store. Without it ``name`` is that of
    the store in a bucket, or of the server in its placement.

    Raises:
        StoreError: the store cannot be opened; UNAVAILABLE if the location cannot be listened on.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    share_arenas()
    signals = StopSignals().install()
    signals.on_first(lambda: _leave(exit_code()))
    store = open_store()
    if process is None:
        signals.on_first(lambda: None)
    try:
        server = _listen(store, location, config, security, traces, process or OwnStore(config.advertise, name))
    except BaseException:
        store.close()
        raise
    if http:
        http.state.serves(server)
    if process:
        signals.on_first(process.ask_to_stop)  # what it is opening then is released
        _begin(process, server, location, config)
        signals.on_first(lambda: None)
    gc.freeze()  # imported objects stay: full collections need not scan them
    if security:
        signals.on_hangup(security.load_again)
    announce(bound_location(location, server.port))
    tell_manager("READY=1")
    signals.wait()
    tell_manager("STOPPING=1")
    signals.on_second(server.admission.expire)
    has_ended = drain(server, store, http, process)
    signals.ignore()
    if not has_ended:
        # Transport threads are stuck in clients that stopped reading, or the store is; nothing is lost.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exit_code())


def share_arenas() -> None:
    """Let all threads of this server process allocate from as many arenas of malloc as there are processors, from now
    on.

    The GNU C library makes eight times as many, and each keeps what was freed in it: the transport's threads, which
    come and go, took turns in filling all of them. ``MALLOC_ARENA_MAX`` in the environment counts more.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, len(os.sched_getaffinity(0)))


def _leave(exit_code: int) -> None:
    _LOG.info("stopped while the store was opening")
    logging.shutdown()
    os._exit(exit_code)


def _begin(process: NameServer, server: FlightServer, location: str, config: ServerConfig) -> None:
    try:
        process.begin(server, config.advertise or [reachable(bound_location(location, server.port))])
    except BaseException:
        server.shutdown()
        raise


def _listen(
    store: StoreService,
    location: str,
    config: ServerConfig,
    security: Security | None,
    traces: Traces | None,
    process: ServerVerbs,
) -> FlightServer:
    try:
        return FlightServer(store, location, config, security, traces, process, _sql() if config.sql else None)
    except (pa.ArrowException, OSError) as error:
        raise UnavailableError(f"cannot listen on {location}: {str(error).partition('. Detail')[0]}") from None


def _sql() -> Callable[[FlightServer], SqlCalls]:
    """Return what makes a server answer Flight SQL. Raises InvalidArgumentError: packages are missing."""
    try:
        from ..sql.front import SqlFront
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"Flight SQL needs the package {error.name}: pip install 'nyala[sql]', or leave --sql out"
        ) from None
    return SqlFront


def drain(
    server: FlightServer, store: StoreService, http: HttpPort | None = None, process: NameServer | None = None
) -> bool:
    """Drain a server process that is to exit: reject new requests, let running ones end, flush, close the store; return
    False if the transport did not end, or the store of ``process`` is not closed in time: then its lease has to end
    before another process has it."""
    seconds, began = server.config.drain_seconds, time.monotonic()
    patience = max(seconds - SHUTDOWN_SECONDS, seconds / 2)
    if process:
        serving = max(patience - HAND_OVER_SECONDS - _CLOSE_SECONDS, patience / 2)
        if not process.stop(serving):
            _LOG.warning(
                "stopping while the store is being opened or released; the next process to open it waits until "
                "the lease has expired"
            )
            return False
        store = server.store
        if process.has_store:  # others wait for it: flush first, while it serves, and let clients repeat what is long
            rest_within(store, min(serving / 2, serving - (time.monotonic() - began)))
            flush_within(store, serving - (time.monotonic() - began))
            patience = min(patience, HAND_OVER_SECONDS)
    _LOG.info("stopping: running requests have %g seconds to finish", seconds)
    admission = server.admission
    admission.drain()
    if not admission.wait_until_idle(patience):
        _LOG.warning("some requests did not finish in time")
    admission.expire()
    server.calls.end_all()  # calls stuck in their clients notice nothing else
    closing = threading.Thread(target=server.shutdown, name="nyala-shutdown", daemon=True)
    closing.start()
    if process is None:
        flush_within(store, seconds - SHUTDOWN_SECONDS - (time.monotonic() - began))
    closing.join(SHUTDOWN_SECONDS)
    if http:
        http.state.closes()
    if process is None or not process.has_store:
        store.close()
    elif not _closes_within(store, seconds - (time.monotonic() - began)):
        _LOG.warning(
            "the store was not closed in time; nothing is lost, but the next process to open it may wait until the "
            "lease has expired"
        )
        return False
    if http:
        http.stop()
    _LOG.info("stopped")
    return not closing.is_alive()


def _closes_within(store: StoreService, seconds: float) -> bool:
    """Close a store; return False if that takes longer. It waits for maintenance that runs, and whoever waits for the
    store has it sooner by its lease: so it has little time then."""
    if store.maintenance().running:
        seconds = 0.0
    closed = ThreadPoolExecutor(1, "nyala-close").submit(store.close)
    if not wait([closed], max(seconds, _CLOSE_SECONDS)).done:
        return False
    closed.result()
    return True
