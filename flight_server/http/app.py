"""The pages of the HTTP port: whether the server lives, whether it takes requests, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

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
from .console.activity import activity_page
from .console.charts import Samples
from .console.html import page, tag
from .console.requests import scan_page, scans_page, writes_page
from .console.style import SCRIPT, STYLE
from .console.tables import table_page, tables_page
from .console.visit import Visit
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
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    "referrer-policy": "no-referrer",
}


def application(state: ServerState, check: Check, translator: Translator, samples: Samples) -> Starlette:
    """Return the application. Health and readiness need no thread of its pool, which slow pages may fill."""
    ready = Readiness(state.readiness)

    def failed(error: Exception, is_page: bool = False) -> Response:
        known = translator.public(error, "http")
        status = _STATUSES.get(known.code, 500)
        asking = {"www-authenticate": _CHALLENGE} if known.code == UnauthenticatedError.code else {}
        if not is_page:
            return JSONResponse(told(known), status, {**_HEADERS, **asking})
        said = tag("p", f"{known.code}: {known.message}", class_="bad")
        text = page("Not shown", said, tag("p", f"Request {known.request_id}."))
        return Response(text, status, {**_PAGE_HEADERS, **asking}, "text/html")

    async def misdirected(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"message": error.detail}, error.status_code, {**_HEADERS, **(error.headers or {})})

    answering = _Pages()

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

    def shown(make: Callable[[Visit], bytes]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            caller = check(request)
            with state.asking() as server:
                made = make(Visit(server, caller, request.query_params))
            return Response(made, headers=_PAGE_HEADERS, media_type="text/html")

        return answer

    async def script(_request: Request) -> Response:
        return Response(SCRIPT, headers=_HEADERS, media_type="text/javascript")

    in_thread, failed_page = answering.in_thread, partial(failed, is_page=True)
    return Starlette(
        routes=[
            *(Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", in_thread(metrics, failed))),
            *(Route(path, in_thread(shown(make), failed_page)) for path, make in _pages_of(samples).items()),
            *(Route("/console/style.css", style), Route("/console/live.js", script)),
        ],
        exception_handlers={HTTPException: misdirected},
    )


def _pages_of(samples: Samples) -> dict[str, Callable[[Visit], bytes]]:
    """Return the pages of the console by their paths."""
    return {
        "/console": tables_page,
        "/console/table": table_page,
        "/console/activity": lambda visit: activity_page(visit, samples),
        "/console/scans": scans_page,
        "/console/scan": scan_page,
        "/console/writes": writes_page,
    }


class _Pages:
    """Makes pages on the threads of starlette's pool, some at the same time. For one event loop."""

    def __init__(self) -> None:
        self._running = 0

    def in_thread(
        self, make: Callable[[Request], Response], failed: Callable[[Exception], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return what lets ``make`` answer a request; ``failed`` answers one that failed with an error."""

        async def answer(request: Request) -> Response:
            if self._running >= _ANSWERS_MAX:
                return failed(UnavailableError("too many pages are asked for at the same time", 1.0))
            self._running += 1
            try:
                return await run_in_threadpool(make, request)
            except Exception as error:
                return failed(error)
            finally:
                self._running -= 1

        return answer
