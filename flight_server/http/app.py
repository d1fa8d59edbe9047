"""The pages of the HTTP port: whether the server lives, whether it takes requests, and its metrics."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from ..errors import Translator, told
from ..security.identity import Identity
from ..server import FlightServer
from .console.html import STYLE
from .console.pages import activity_page, table_page, tables_page
from .exposition import exposed
from .state import READY, ServerState

Check = Callable[[Request], Identity | None]
"""Returns who asks; raises UnauthenticatedError if that is not known, but must be."""

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
    """Return the application. Functions that are not coroutines run in threads of its pool."""

    def health(_request: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=_HEADERS)

    def readiness(_request: Request) -> Response:
        status = state.readiness()
        return JSONResponse({"status": status}, 200 if status == READY else 503, _HEADERS)

    def metrics(request: Request) -> Response:
        text, content_type = exposed(state.metrics(check(request)), request.headers.get("accept", ""))
        return Response(text, headers={**_HEADERS, "content-type": content_type})

    def style(_request: Request) -> Response:
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

    def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return JSONResponse({"message": error.detail}, error.status_code, {**_HEADERS, **(error.headers or {})})
        known = translator.public(error, "http")
        asking = {"www-authenticate": _CHALLENGE} if known.code == UnauthenticatedError.code else {}
        return JSONResponse(told(known), _STATUSES.get(known.code, 500), {**_HEADERS, **asking})

    return Starlette(
        routes=[
            *(Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", metrics)),
            *(Route(path, shown(make)) for path, make in pages.items()),
            Route("/console/style.css", style),
        ],
        exception_handlers={StoreError: failed, HTTPException: failed, Exception: failed},
    )


def _first(request: Request) -> int:
    given = request.query_params.get("first", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise InvalidArgumentError("`first` is a number")
    return int(given)
