"""The addresses of the console, and what answers there."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from socket import gethostname
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ....schemas.errors import StoreError
from ...security.identity import Identity
from ..answering import HEADERS, Answering
from ..state import ServerState
from . import jobs, log, maintenance, options, servers, users
from .activity import activity_page
from .frame import SCHEME_PATH, SCHEMES, Frame, Page, Scheme, page
from .html import tag
from .jobs import jobs_page
from .log import log_page
from .maintenance import Buttons, maintenance_page
from .memory import memory_page
from .one_table import table_page
from .options import settings_page
from .requests import scan_page, scans_page, writes_page
from .sample import sample_page
from .servers import servers_page
from .style import SCRIPT, STYLE
from .tables import tables_page
from .users import users_page
from .visit import Surroundings, Visit

Check = Callable[[Request], Identity | None]
"""Returns who asks; raises UnauthenticatedError if that is not known, but must be."""

_FORM_BYTES_MAX = 8192
_SCHEME_COOKIE = "nyala-scheme"
_SCHEME_SECONDS = 365 * 86_400
_NO_CONTENT = 204
_PAGE_HEADERS = {
    **HEADERS,
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "referrer-policy": "same-origin",  # with less, a browser would not tell which page sent a form
}


class Console:
    """The console of one server."""

    def __init__(self, state: ServerState, check: Check, answering: Answering, around: Surroundings) -> None:
        self._state = state
        self._around = around
        self._version = metadata.version("nyala")
        self._check = check
        self._answering = answering
        self._buttons = buttons = Buttons()
        self._pages: dict[str, Callable[[Visit], Page]] = {
            "/console": tables_page,
            "/console/table": lambda visit: table_page(visit, buttons),
            "/console/activity": activity_page,
            "/console/scans": scans_page,
            "/console/scan": scan_page,
            "/console/writes": writes_page,
            "/console/memory": memory_page,
            "/console/rows": sample_page,
            users.PATH: users_page,
            jobs.PATH: jobs_page,
            servers.PATH: servers_page,
            options.PATH: settings_page,
            log.PATH: log_page,
            maintenance.PATH: lambda visit: maintenance_page(visit, buttons),
        }

    def routes(self) -> list[Route]:
        """Return all addresses."""
        in_thread = self._answering.in_thread
        return [
            Route(maintenance.PATH, self._press, methods=["POST"]),
            *(Route(path, in_thread(self._shown(make), _failed)) for path, make in self._pages.items()),
            Route("/", _first),
            Route(SCHEME_PATH, _choose_scheme),
            Route("/console/style.css", _style),
            Route("/console/live.js", _script),
        ]

    def _shown(self, make: Callable[[Visit], Page]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            caller = self._check(request)
            with self._state.asking() as server:
                visit = Visit(server, caller, request.query_params, self._around)
                text = make(visit).write(self._frame(visit, request))
            return Response(text, headers=_PAGE_HEADERS, media_type="text/html")

        return answer

    def _frame(self, visit: Visit, request: Request) -> Frame:
        name = self._around.name or f"{gethostname()}:{visit.server.port}"
        user = "no login" if visit.caller is None else visit.caller.user
        return Frame(name, self._version, user, visit.operates, visit.administers, _scheme_of(request))

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


def _failed(request: Request, error: StoreError) -> Response:
    why = tag("p", f"{error.code}: {error.message}", class_="bad")
    shown = page("Not shown", why, tag("p", f"Request {error.request_id}."))
    return Response(shown.write(Frame(scheme=_scheme_of(request))), headers=_PAGE_HEADERS, media_type="text/html")


async def _form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that a browser has sent; none of one that is too long."""
    body = b""
    async for part in request.stream():
        if len(body) + len(part) > _FORM_BYTES_MAX:
            return {}
        body += part
    return dict(parse_qsl(body.decode(errors="replace")))


def _scheme_of(request: Request) -> Scheme:
    return _scheme_named(request.cookies.get(_SCHEME_COOKIE, ""))


def _scheme_named(name: str) -> Scheme:
    found: Scheme = ""
    for each in SCHEMES:
        found = each if each == name else found
    return found


async def _choose_scheme(request: Request) -> Response:
    """Keep the scheme in a cookie, for the console alone, and lead back to the page that asked."""
    answer = RedirectResponse(_page_before(request), 303, HEADERS)
    chosen = _scheme_named(request.query_params.get("to", ""))
    is_secure = request.url.scheme == "https"
    answer.set_cookie(
        _SCHEME_COOKIE, chosen, _SCHEME_SECONDS, path="/console", secure=is_secure, httponly=True, samesite="lax"
    )
    return answer


def _page_before(request: Request) -> str:
    """Return the page of this console that led to a request, or the first one."""
    try:
        came_from = urlsplit(request.headers.get("referer", ""))
    except ValueError:  # anyone may send anything
        return "/console"
    is_own = came_from.netloc == request.headers.get("host", "") and came_from.path.startswith("/console")
    return f"{came_from.path}?{came_from.query}" if is_own else "/console"


async def _first(_request: Request) -> Response:
    return RedirectResponse("/console", headers=HEADERS)


async def _style(_request: Request) -> Response:
    return Response(STYLE, headers=HEADERS, media_type="text/css")


async def _script(_request: Request) -> Response:
    return Response(SCRIPT, headers=HEADERS, media_type="text/javascript")
