"""SqlSessions: the transactions that clients begin by a statement, and the options of their sessions.

A session is known by the cookie that its client sends. A client that keeps no cookies has none: its next statement
would not be within the transaction, so its BEGIN is refused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from ...clients.sql.control import IS_OPEN, Control, control_in, none_is_open
from ...clients.sql.statement import CATALOG, SCHEMA
from ...schemas.errors import InvalidArgumentError
from ..requests.calls import Call
from . import messages
from .handles import TRANSACTION_SECONDS
from .statements import SqlStatements

_SESSIONS_MAX = 4096
_OPTIONS = {"catalog": CATALOG, "schema": SCHEMA}
_INVALID_NAME, _INVALID_VALUE = 1, 2
_CLOSED = 1


class SqlSessions:
    """The transactions that clients of Flight SQL begin by a statement, and the options of their sessions. Thread
    safe."""

    def __init__(self, statements: SqlStatements) -> None:
        self._statements = statements
        self._transactions: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def control(self, text: str, transaction: bytes | None, cookie: str | None, call: Call) -> bool:
        """Run a statement if it begins or ends a transaction. Return whether it does. ``transaction`` is the one that
        the driver has begun.

        Raises:
            InvalidArgumentError: the client keeps no cookies, or has a transaction already, or none.
            ConflictError: other writers have changed rows that the transaction changes.
        """
        which = control_in(text)
        if which is None:
            return False
        if transaction:
            raise InvalidArgumentError(
                f"the driver has begun this transaction: instead of {which.upper()}, call commit or rollback of the "
                "driver"
            )
        if cookie is None:
            raise InvalidArgumentError(
                f"{which.upper()} as a statement needs a client that keeps cookies: let the driver begin the "
                "transaction (ADBC: autocommit=False), or let it keep cookies "
                "(ADBC: adbc.flight.sql.rpc.with_cookie_middleware)"
            )
        key = call.user or "", cookie
        if which is Control.BEGIN:
            if self._statements.is_open(self._transactions.get(key)):
                raise InvalidArgumentError(IS_OPEN)
            self._add(key, self._statements.begin(call))
            return True
        handle = self._transactions.get(key)
        if handle is None:
            raise InvalidArgumentError(none_is_open(which))
        if not self._end(key, handle, which is Control.COMMIT, call) and which is Control.COMMIT:
            raise InvalidArgumentError(_rolled_back())
        return True

    def transaction(self, cookie: str | None, call: Call) -> bytes | None:
        """Return the transaction that the statements of a session are within; None: they are within none.

        Raises:
            InvalidArgumentError: the transaction was rolled back meanwhile.
        """
        handle = self._transactions.get((call.user or "", cookie)) if cookie is not None else None
        if handle is not None and not self._statements.is_open(handle):
            raise InvalidArgumentError(_rolled_back())
        return handle

    def set_options(self, body: bytes) -> bytes:
        """Answer SetSessionOptions: there is one catalog, and one schema in it."""
        errors: list[dict[str, Any]] = []
        for entry in messages.read_plain("SetSessionOptionsRequest", body).session_options:
            if entry.key not in _OPTIONS:
                errors.append({"key": entry.key, "value": {"value": _INVALID_NAME}})
            elif entry.value.string_value != _OPTIONS[entry.key]:
                errors.append({"key": entry.key, "value": {"value": _INVALID_VALUE}})
        return messages.plain("SetSessionOptionsResult", errors=errors)

    def options(self) -> bytes:
        """Answer GetSessionOptions."""
        entries = [{"key": name, "value": {"string_value": value}} for name, value in _OPTIONS.items()]
        return messages.plain("GetSessionOptionsResult", session_options=entries)

    def close(self, cookie: str | None, call: Call) -> bytes:
        """Answer CloseSession: roll its transaction back."""
        key = call.user or "", cookie or ""
        handle = self._transactions.get(key)
        if handle is not None:
            self._end(key, handle, False, call)
        return messages.plain("CloseSessionResult", status=_CLOSED)

    def _end(self, key: tuple[str, str], handle: bytes, is_commit: bool, call: Call) -> bool:
        """End a transaction, and forget it unless it is still open. Return whether it was open."""
        is_open = self._statements.is_open(handle)
        try:
            if is_open:
                self._statements.end(handle, is_commit, call)
        finally:
            with self._lock:
                if self._transactions.get(key) == handle and not self._statements.is_open(handle):
                    del self._transactions[key]
        return is_open

    def _add(self, key: tuple[str, str], handle: bytes) -> None:
        with self._lock:
            self._transactions[key] = handle
            self._transactions.move_to_end(key)
            if len(self._transactions) > _SESSIONS_MAX:  # those that are open are fewer
                ended = (each for each, held in self._transactions.items() if not self._statements.is_open(held))
                self._transactions.pop(next(ended))


def _rolled_back() -> str:
    minutes = round(TRANSACTION_SECONDS / 60)
    return (
        f"the transaction was rolled back: it had no statement for {minutes} minutes, or its process has ended; "
        "ROLLBACK, and BEGIN again"
    )
