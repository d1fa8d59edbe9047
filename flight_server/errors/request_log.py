"""RequestLog: a line for each request that failed or took long, with the id that its client sees in the error.

It has the verb, the user, the code and the time; never what was asked for, nor the error's text, which may have cells.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
import secrets
import threading
import time
from contextlib import suppress

from ...schemas.errors import StoreError

_LOG = logging.getLogger("nyala.flight_server")
_START = secrets.token_hex(3)
_numbers = itertools.count(1)
_LINES_A_SECOND = 20
_EXPECTED = frozenset({("moves", "NOT_FOUND"), ("tablets", "NOT_FOUND")})
"""Answers that whoever moves tablets expects: the other server has nothing of the table yet. They are no failures."""
_ID = re.compile(r"[0-9a-f]{1,32}")


def new_request_id() -> str:
    """Return an id for a request in its errors and in the log, which no other request has, here or in another
    process."""
    return f"{_START}{next(_numbers):06x}"


def request_id_of(error: BaseException) -> str:
    """Return the id, for the log of requests, of the request that failed with an error; give it one if none is
    known."""
    known = getattr(error, "request_id", None)
    if not (isinstance(known, str) and _ID.fullmatch(known)):
        known = new_request_id()
        mark(error, known)
    return known


def mark(error: BaseException, request_id: str) -> None:
    """Note on an error which request failed with it. One that came from another server keeps its id, so that both logs
    have the same, unless it is not one; one that was raised here before, for another request, does not."""
    known = getattr(error, "request_id", None)
    if not (isinstance(known, str) and _ID.fullmatch(known)) or known.startswith(_START):
        with suppress(AttributeError):  # one without room for attributes
            error.request_id = request_id  # pyright: ignore[reportAttributeAccessIssue]


def code_of(error: BaseException) -> str:
    """Return the code of an error, for the log of requests."""
    return error.code if isinstance(error, StoreError) else type(error).__name__


class RequestLog:
    """Logs requests that failed or took long: writes at most some lines a second, and how many it left out. Thread
    safe."""

    def __init__(self, slow_seconds: float) -> None:
        """Requests that the server works for as long are slow; 0: none is."""
        self.slow_seconds = slow_seconds or math.inf
        self._lock = threading.Lock()
        self._second = self._lines = self._left_out = 0

    def failed(self, request_id: str, verb: str, code: str, user: str | None) -> None:
        """Log a request that failed."""
        level = logging.DEBUG if (verb, code) in _EXPECTED else logging.INFO
        if _LOG.isEnabledFor(level) and self._may_write():
            fields = {"request": request_id, "verb": verb, "code": code, **({"user": user} if user else {})}
            whose = f" of {user!r}" if user else ""
            _LOG.log(level, "request %s: %s%s failed: %s", request_id, verb, whose, code, extra={"fields": fields})

    def took(self, seconds: float, request_id: str | None, verb: str, user: str | None, table: str = "") -> None:
        """Log a request that the server worked for so long, if it was slow."""
        if seconds < self.slow_seconds or not self._may_write():
            return
        request_id = request_id or new_request_id()
        fields = {"request": request_id, "verb": verb, "seconds": round(seconds, 3)}
        fields |= {name: value for name, value in (("user", user), ("table", table)) if value}
        whose = (f" of {user!r}" if user else "") + (f" on table {table!r}" if table else "")
        _LOG.info("request %s: %s%s took %.3f s", request_id, verb, whose, seconds, extra={"fields": fields})

    def _may_write(self) -> bool:
        with self._lock:
            now = int(time.monotonic())
            if now != self._second:
                left_out, self._left_out = self._left_out, 0
                self._second, self._lines = now, 0
                if left_out:
                    _LOG.info("%d more requests failed or were slow, and were left out of the log", left_out)
            if self._lines >= _LINES_A_SECOND:
                self._left_out += 1
                return False
            self._lines += 1
            return True
