"""The pages of the HTTP port: whether the server lives, whether it takes requests, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from ..errors import Translator, told
from ..security.identity import Identity
from ..server import FlightServer
from .console.html import STYLE
from .console.pages import activity_page, table_page, tables_page
from .exposition import exposed
from .state import READY, Readiness, ServerState

Check = Callable[[Request], Identity | None]
"""Returns who asks; raises UnauthenticatedError if that is not known, but must be."""

_ANSWERS_MAX = 32
"""Pages and metrics that are made at the same time, each on a thread; the pool of these has 40."""
_STATUSES = {
    NotFoundError.code: 404,
    InvalidArgumentError.code: 400,
    UnauthenticatedError.code: 401,
    PermissionDeniedError.code: 403,
    UnavailableError.code: 503,
}
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


_CHALLENGE = 'Bearer realm="Nyala", Basic realm="Nyala"'
"""Browsers know Basic alone: they ask for a name and a password, which is the token."""
_PAGE_HEADERS = {
    **_HEADERS,
    "content-security-policy": "default-src 'none'; style-src 'self'; frame-ancestors 'none'; form-action 'none'",
    "referrer-policy": "no-referrer",
}


def application(state: ServerState, check: Check, translator: Translator) -> Starlette:
    """Return the application. Health and readiness need no thread of its pool, which slow pages may fill."""
    ready = Readiness(state.readiness)

    def failed(error: Exception) -> Response:
        known = translator.public(error, "http")
        asking = {"www-authenticate": _CHALLENGE} if known.code == UnauthenticatedError.code else {}
        return JSONResponse(told(known), _STATUSES.get(known.code, 500), {**_HEADERS, **asking})

    async def misdirected(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"message": error.detail}, error.status_code, {**_HEADERS, **(error.headers or {})})

    in_thread = _Pages(failed).in_thread

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=_HEADERS)

    async def readiness(_request: Request) -> Response:
        status = await ready.status()
        return JSONResponse({"status": status}, 200 if status == READY else 503, _HEADERS)

    def metrics(request: Request) -> Response:
        text, content_type = exposed(state.metrics(check(request)), request.headers.get("accept", ""))
        return Response(text, headers={**_HEADERS, "content-type": content_type})

    async def style(_request: Request) -> Response:
        return Response(STYLE, headers=_HEADERS, media_type="text/css")

    def shown(make: Callable[[FlightServer, Identity | None, Request], bytes]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            caller = check(request)
            with state.asking() as server:
                return Response(make(server, caller, request), headers=_PAGE_HEADERS, media_type="text/html")

        return answer

    pages = {
        "/console": lambda server, caller, request: tables_page(server.store_of(caller), _first(request)),
        "/console/table": lambda server, caller, request: table_page(
            server.store_of(caller), request.query_params.get("name", ""), _first(request)
        ),
        "/console/activity": lambda server, caller, _: activity_page(server, caller),
    }
    return Starlette(
        routes=[
            *(Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", in_thread(metrics))),
            *(Route(path, in_thread(shown(make))) for path, make in pages.items()),
            Route("/console/style.css", style),
        ],
        exception_handlers={HTTPException: misdirected},
    )


class _Pages:
    """Makes pages on the threads of starlette's pool, some at the same time. For one event loop."""

    def __init__(self, failed: Callable[[Exception], Response]) -> None:
        """``failed`` answers a request that failed with an error."""
        self._failed = failed
        self._running = 0

    def in_thread(self, make: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Return what lets ``make`` answer a request."""

        async def answer(request: Request) -> Response:
            if self._running >= _ANSWERS_MAX:
                return self._failed(UnavailableError("too many pages are asked for at the same time", 1.0))
            self._running += 1
            try:
                return await run_in_threadpool(make, request)
            except Exception as error:
                return self._failed(error)
            finally:
                self._running -= 1

        return answer


def _first(request: Request) -> int:
    given = request.query_params.get("first", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise InvalidArgumentError("`first` is a number")
    return int(given)
