"""The pages of the HTTP port: whether the server lives, whether it takes requests, its metrics, and the console."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..errors.errors import Translator
from ..http.answering import HEADERS, Answering
from ..http.console.routes import Check, Console
from ..http.console.visit import Surroundings
from ..http.exposition import exposed
from ..http.state import DEGRADED, READY, STANDBY, Readiness, ServerState


def application(state: ServerState, check: Check, translator: Translator, around: Surroundings) -> Starlette:
    """Return the application that a server process serves on its HTTP port. Health and readiness need no thread of its
    pool, which slow pages may fill."""
    ready, answering = Readiness(state.readiness), Answering(translator)

    async def misdirected(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"message": error.detail}, error.status_code, {**HEADERS, **(error.headers or {})})

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=HEADERS)

    async def readiness(_request: Request) -> Response:
        status = await ready.status()
        return JSONResponse({"status": status}, 200 if status in (READY, STANDBY, DEGRADED) else 503, HEADERS)

    def metrics(request: Request) -> Response:
        text, content_type = exposed(state.metrics(check(request)), request.headers.get("accept", ""))
        return Response(text, headers={**HEADERS, "content-type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", health),
            Route("/readyz", readiness),
            Route("/metrics", answering.in_thread(metrics)),
            *Console(state, check, answering, around).routes(),
        ],
        exception_handlers={HTTPException: misdirected},
    )
