"""The pages of the HTTP port: whether the server lives, whether it takes requests, and its metrics."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...schemas.errors import PermissionDeniedError, StoreError, UnauthenticatedError, UnavailableError
from ..errors import Translator, told
from ..security.identity import Identity
from .exposition import exposed
from .state import READY, ServerState

Check = Callable[[Request], Identity | None]
"""Returns who asks; raises UnauthenticatedError if that is not known, but must be."""

_STATUSES = {UnauthenticatedError.code: 401, PermissionDeniedError.code: 403, UnavailableError.code: 503}
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


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

    def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return JSONResponse({"message": error.detail}, error.status_code, {**_HEADERS, **(error.headers or {})})
        shown = translator.public(error, "http")
        more = {"www-authenticate": "Bearer"} if shown.code == UnauthenticatedError.code else {}
        return JSONResponse(told(shown), _STATUSES.get(shown.code, 500), {**_HEADERS, **more})

    return Starlette(
        routes=[Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", metrics)],
        exception_handlers={StoreError: failed, HTTPException: failed, Exception: failed},
    )
