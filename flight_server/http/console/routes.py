"""The addresses of the console, and what answers there."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....schemas.errors import StoreError
from ...security.identity import Identity
from ..answering import HEADERS, Answering
from ..state import ServerState
from . import maintenance
from .activity import activity_page
from .charts import Samples
from .html import page, tag
from .maintenance import Buttons, maintenance_page
from .memory import memory_page
from .requests import scan_page, scans_page, writes_page
from .style import SCRIPT, STYLE
from .tables import table_page, tables_page
from .visit import Visit

Check = Callable[[Request], Identity | None]
"""Returns who asks; raises UnauthenticatedError if that is not known, but must be."""

_FORM_BYTES_MAX = 8192
_NO_CONTENT = 204
_PAGE_HEADERS = {
    **HEADERS,
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "referrer-policy": "same-origin",  # with less, a browser would not tell which page sent a form
}


class Console:
    """The console of one server."""

    def __init__(self, state: ServerState, check: Check, answering: Answering, samples: Samples) -> None:
        self._state = state
        self._check = check
        self._answering = answering
        self._buttons = buttons = Buttons()
        self._pages: dict[str, Callable[[Visit], bytes]] = {
            "/console": tables_page,
            "/console/table": lambda visit: table_page(visit, buttons),
            "/console/activity": lambda visit: activity_page(visit, samples),
            "/console/scans": scans_page,
            "/console/scan": scan_page,
            "/console/writes": writes_page,
            "/console/memory": memory_page,
            maintenance.PATH: lambda visit: maintenance_page(visit, buttons),
        }

    def routes(self) -> list[Route]:
        """Return all addresses."""
        in_thread = self._answering.in_thread
        return [
            Route(maintenance.PATH, self._press, methods=["POST"]),
            *(Route(path, in_thread(self._shown(make), _failed)) for path, make in self._pages.items()),
            Route("/", _first),
            Route("/console/style.css", _style),
            Route("/console/live.js", _script),
        ]

    def _shown(self, make: Callable[[Visit], bytes]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            caller = self._check(request)
            with self._state.asking() as server:
                made = make(Visit(server, caller, request.query_params))
            return Response(made, headers=_PAGE_HEADERS, media_type="text/html")

        return answer

    async def _press(self, request: Request) -> Response:
        known = await self._answering.in_thread(self._known, _failed)(request)
        if known.status_code != _NO_CONTENT:
            return known  # nothing of a stranger's is read
        try:
            form = await _form_of(request)
        except ClientDisconnect:
            return known  # to nobody

        def pressed(request: Request) -> Response:
            caller, headers = self._check(request), request.headers
            self._buttons.check(caller, form, headers.get("origin", ""), headers.get("host", ""))
            with self._state.asking() as server:
                self._buttons.press(Visit(server, caller), form)
            return Response(status_code=303, headers={**_PAGE_HEADERS, "location": maintenance.PATH})

        return await self._answering.in_thread(pressed, _failed)(request)

    def _known(self, request: Request) -> Response:
        self._check(request)
        return Response(status_code=_NO_CONTENT)


def _failed(error: StoreError) -> Response:
    said = tag("p", f"{error.code}: {error.message}", class_="bad")
    text = page("Not shown", said, tag("p", f"Request {error.request_id}."))
    return Response(text, headers=_PAGE_HEADERS, media_type="text/html")


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that a browser has sent; none of one that is too long."""
    body = b""
    async for part in request.stream():
        if len(body) + len(part) > _FORM_BYTES_MAX:
            return {}
        body += part
    return dict(parse_qsl(body.decode(errors="replace")))


async def _first(_request: Request) -> Response:
    return RedirectResponse("/console", headers=HEADERS)


async def _style(_request: Request) -> Response:
    return Response(STYLE, headers=HEADERS, media_type="text/css")


async def _script(_request: Request) -> Response:
    return Response(SCRIPT, headers=HEADERS, media_type="text/javascript")
