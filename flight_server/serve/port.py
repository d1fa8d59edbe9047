"""HttpPort: health, readiness and metrics over HTTP, on a port of their own and a thread of the server's process."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from starlette.requests import Request

from ...schemas.errors import PermissionDeniedError
from ..errors.errors import Translator
from ..errors.request_log import RequestLog
from ..http.connections import CERTIFICATE_NAME, HANDSHAKE_SECONDS, CurrentCertificates, HttpConnection
from ..http.console.charts import SAMPLE_SECONDS
from ..http.console.visit import Surroundings
from ..http.state import ServerState
from ..runtime.location import cannot_listen, is_loopback
from ..security.identity import Identity
from .app import application

if TYPE_CHECKING:
    from ..security.security import Security

_HEAD_BYTES_MAX = 16 << 10
_STOP_SECONDS = 1
_LOG = logging.getLogger("nyala.flight_server")


class HttpPort:
    """The HTTP port of a server process: serves health, metrics and pages from its construction until ``stop``."""

    def __init__(
        self,
        host: str,
        port: int,
        security: Security | None,
        private_paths: tuple[str, ...] = (),
        around: Surroundings | None = None,
    ) -> None:
        """Listen; port 0 picks a free one. The console shows what it is given of its surroundings.

        Raises:
            UnavailableError: that is impossible.
        """
        self.state = ServerState()
        self._around = around or Surroundings()
        self._authentication = security.authentication if security else None
        self._names = {"localhost", "127.0.0.1", "::1", host.lower()} if is_loopback(host) else None
        tls = security.tls if security else None
        listening = _listening(host, port)
        scheme, shown = "https" if tls else "http", f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            application(self.state, self._caller, Translator(private_paths, _logged_by(RequestLog(0))), self._around),
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        config.load()
        config.ssl = CurrentCertificates.of(tls) if tls else None
        _log_as_ours()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(listening,), name="nyala-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and close the connections."""
        self._server.should_exit = True
        self._thread.join(2 * _STOP_SECONDS)

    def _run(self, listening: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listening))
        except Exception:
            _LOG.exception("the HTTP port %s stopped", self.url)

    async def _serve(self, listening: socket.socket) -> None:
        if self._server.config.ssl:  # uvicorn has no option for it, and asyncio's default is a minute
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=HANDSHAKE_SECONDS)
        sampling = asyncio.create_task(self._sample())
        try:
            await self._server.serve([listening])
        finally:
            sampling.cancel()

    async def _sample(self) -> None:
        while True:
            if server := self.state.server:
                self._around.samples.take(server)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _caller(self, request: Request) -> Identity | None:
        if self._authentication is None:
            _check_name(request, self._names)
            return None
        given = list(map(as_bearer, request.headers.getlist("authorization")))
        return self._authentication.of_request(given, getattr(request.state, CERTIFICATE_NAME, None))


def _logged_by(log: RequestLog) -> Callable[[str, str, str], None]:
    return lambda request_id, where, code: log.failed(request_id, where, code, None)


def _check_name(request: Request, names: set[str] | None) -> None:
    """Reject a request by a name that is not one of ``names``, if these are known. A browser asks so for a page of
    somebody whose name has become this machine's address, and would let that page read the answer.

    Raises:
        PermissionDeniedError: that is so.
    """
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        name = None
    if names is not None and name not in names:
        raise PermissionDeniedError(f"unknown Host; use one of {', '.join(sorted(names))}")


def as_bearer(header: str) -> str:
    """Return the header of authorization of a request to the server process's HTTP port. That of a browser, which asks
    for a name and a password, has the token as the password."""
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return header
    try:
        return f"Bearer {base64.b64decode(encoded, validate=True).decode().partition(':')[2]}"
    except (ValueError, UnicodeDecodeError):
        return header


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise cannot_listen(f"{host}:{port}", error, "--http-port") from None


def _log_as_ours() -> None:
    """Let uvicorn log where the server does: errors alone, since anyone may cause its warnings."""
    theirs: Any = logging.getLogger("uvicorn")
    theirs.handlers[:] = logging.getLogger("nyala").handlers
    theirs.setLevel(logging.ERROR)
    theirs.propagate = False
