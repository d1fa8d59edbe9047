"""Answering: makes the answers to requests of HTTP on threads, and tells what went wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from ..errors.errors import Translator, told

Make = Callable[[Request], Response]
Answer = Callable[[Request], Awaitable[Response]]
Failed = Callable[[Request, StoreError], Response]
"""Returns the answer for an error that is fit for clients; its status and headers are set later."""

_ANSWERS_MAX = 32
"""Answers that are made at the same time, each on a thread; the pool of these has 40."""
_STATUSES = {
    NotFoundError.code: 404,
    InvalidArgumentError.code: 400,
    UnauthenticatedError.code: 401,
    PermissionDeniedError.code: 403,
    UnavailableError.code: 503,
}
_CHALLENGE = 'Bearer realm="Nyala", Basic realm="Nyala"'
"""Browsers know Basic alone: they ask for a name and a password, which is the token."""
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def as_json(_request: Request, error: StoreError) -> Response:
    """Return the answer of the HTTP port to a request that failed: the error as programs read it."""
    return JSONResponse(told(error), headers=HEADERS)


class Answering:
    """Answers requests of HTTP on threads. For one event loop. Its threads are of starlette's pool, some at the same
    time."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._running = 0

    def in_thread(self, make: Make, failed: Failed = as_json) -> Answer:
        """Return what lets ``make`` answer a request; ``failed`` answers one that failed with an error."""

        async def answer(request: Request) -> Response:
            if self._running >= _ANSWERS_MAX:
                too_many = UnavailableError("too many pages are requested at the same time; try again", 1.0)
                return self._told(request, too_many, failed)
            self._running += 1
            try:
                return await run_in_threadpool(make, request)
            except Exception as error:
                return self._told(request, error, failed)
            finally:
                self._running -= 1

        return answer

    def _told(self, request: Request, error: Exception, failed: Failed) -> Response:
        known = self._translator.public(error, "http")
        answer = failed(request, known)
        answer.status_code = _STATUSES.get(known.code, 500)
        if known.code == UnauthenticatedError.code:
            answer.headers["www-authenticate"] = _CHALLENGE
        return answer
