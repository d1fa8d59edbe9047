"""Headers of a call: options of an ingest, and the cookie by which a client's session is known."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any

import pyarrow.flight as fl

MIDDLEWARE = "nyala-sql"
COOKIE = "arrow_flight_session_id"
_PREFIX = "x-nyala-"
_BYTES_MAX = 4096
_OFFERED_BY = (fl.FlightMethod.GET_FLIGHT_INFO, fl.FlightMethod.DO_ACTION, fl.FlightMethod.HANDSHAKE)
"""The calls that a connection begins with."""


class SqlHeaders(fl.ServerMiddlewareFactory):
    """Keeps the headers of each call whose names begin with ``x-nyala-``, and its cookie. A client without a cookie is
    offered one: it has a session if it sends this cookie from then on."""

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Any:
        """Called by pyarrow for each call, before anything else."""
        mine: dict[str, str] = {}
        cookie = None
        for name, values in headers.items():
            lower = name.lower()
            if lower.startswith(_PREFIX):
                mine[lower] = str(values[0])[:_BYTES_MAX]
            elif lower == "cookie":
                cookie = _cookie(values)
        if not mine and cookie is None and info.method not in _OFFERED_BY:
            return None
        return _Of(mine, cookie)


class _Of(fl.ServerMiddleware):
    def __init__(self, values: dict[str, str], cookie: str | None) -> None:
        super().__init__()
        self.values = values
        self.cookie = cookie

    def sending_headers(self) -> dict[str, str]:
        """Called by pyarrow before the first answer."""
        return {} if self.cookie else {"set-cookie": f"{COOKIE}={secrets.token_urlsafe(16)}"}


def _cookie(values: Sequence[str | bytes]) -> str | None:
    for value in values:
        try:
            cookie = SimpleCookie(str(value)[:_BYTES_MAX]).get(COOKIE)
        except CookieError:
            continue
        if cookie is not None and cookie.value:
            return cookie.value
    return None


def of_call(context: fl.ServerCallContext) -> dict[str, str]:
    """Return the headers of a call that Flight SQL reads, by their names in lower case."""
    middleware = context.get_middleware(MIDDLEWARE)
    return middleware.values if isinstance(middleware, _Of) else {}


def cookie_of(context: fl.ServerCallContext) -> str | None:
    """Return the cookie by which a call tells its session of Flight SQL; None: its client keeps none."""
    middleware = context.get_middleware(MIDDLEWARE)
    return middleware.cookie if isinstance(middleware, _Of) else None
