"""Errors as clients see them, and what is kept from clients.

A ``StoreError`` becomes the closest Flight error, with the text ``CODE: message`` and the JSON ``{"code", "message"}``
as ``extra_info``, plus ``retry_after_seconds`` if the store knows it, the ``locations`` of the process that has it if
that is another one, and ``request_id``, which the log names too.
Anything else is our bug: the client gets only this id, and the log has the traceback under it.

| code | Flight error | gRPC status |
|---|---|---|
| UNAVAILABLE | FlightUnavailableError | UNAVAILABLE |
| UNAUTHENTICATED | FlightUnauthenticatedError | UNAUTHENTICATED |
| PERMISSION_DENIED | FlightUnauthorizedError | PERMISSION_DENIED |
| CORRUPTION, INTERNAL | FlightInternalError | INTERNAL |
| all others | FlightServerError | UNKNOWN |

These five carry ``extra_info``. The exceptions that pyarrow turns into INVALID_ARGUMENT and NOT_FOUND carry none, but a
traceback; only GetSchema uses them, since pyarrow accepts nothing else there.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import (
    CorruptionError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from ...schemas.protocol.server_verbs import ACTIONS
from .client_gone import ClientGoneError
from .request_log import request_id_of

_HEADER_BYTES = 6_000
"""Header bytes for a message: clients reject more than 8 KiB of headers in total by default. The message is sent as
text, with all but ASCII escaped, and up to three times as Base64."""
_HIDES = "hides_from_wire"
_LOG = logging.getLogger("nyala.flight_server")
_FLIGHT_ERRORS: dict[str, Callable[[str, bytes], fl.FlightError]] = {
    UnavailableError.code: fl.FlightUnavailableError,
    UnauthenticatedError.code: fl.FlightUnauthenticatedError,
    PermissionDeniedError.code: fl.FlightUnauthorizedError,
    CorruptionError.code: fl.FlightInternalError,
    InternalError.code: fl.FlightInternalError,
}

Item = TypeVar("Item")
Verb = TypeVar("Verb", bound=Callable[..., Any])


class Translator:
    """Turns any exception of a call into the error that a client may see; removes ``private_paths`` from every text."""

    def __init__(
        self, private_paths: tuple[str, ...] = (), failed: Callable[[str, str, str], None] = lambda *_: None
    ) -> None:
        """``failed`` is told the id of the request, the verb and the code of each error."""
        self._private = tuple(sorted((path for path in private_paths if path), key=len, reverse=True))
        self._failed = failed

    def public(self, error: BaseException, where: str) -> StoreError:
        """Return ``error`` as a client may see it, with the id of the request, and report it; log what that hides,
        under this id."""
        request_id = request_id_of(error)
        shown = self._public(error, where)
        shown.request_id = request_id
        if not isinstance(error, ClientGoneError | fl.FlightError):  # else nobody gets it
            self._failed(request_id, where, shown.code)
        return shown

    def _public(self, error: BaseException, where: str) -> StoreError:
        if isinstance(error, CorruptionError):
            # Its path is relative to the store, which has logged it: many clients may ask for the same bytes.
            _LOG.info("%s found damaged data: %s", where, error.message)
            shown = StoreError(f"stored data is damaged: {error.message}")
            shown.code = error.code
            return self._shown(shown)
        if isinstance(error, ClientGoneError):
            _LOG.warning("%s: %s", where, error.message)
        if isinstance(error, StoreError):
            return self._shown(error)
        if isinstance(error, fl.FlightError):
            # pyarrow raises it in the middle of a stream: the client is gone.
            _LOG.warning("%s: client disconnected: %s", where, type(error).__name__)
            return UnavailableError("the stream is broken")
        if isinstance(error, MemoryError):
            return UnavailableError(f"the server does not have enough memory for this request; {_logged(error, where)}")
        return InternalError(f"internal error, {_logged(error, where)}")

    def flight(self, error: BaseException, where: str) -> fl.FlightError:
        """Return the Flight error for ``error``."""
        known = self.public(error, where)
        extra = told(known)
        make = _FLIGHT_ERRORS.get(known.code) or fl.FlightServerError
        return make(f"{known.code}: {known.message}", json.dumps(extra).encode())

    def for_get_schema(self, error: BaseException, where: str) -> Exception:
        """Return an exception that GetSchema may raise: pyarrow keeps only the text of these."""
        known = self.public(error, where)
        text = f"{known.code}: {known.message}"
        return pa.ArrowKeyError(text) if known.code == NotFoundError.code else ValueError(text)

    def _shown(self, error: StoreError) -> StoreError:
        """Return the error without private paths, and short enough: gRPC drops more than a few KB."""
        message = error.message
        for path in self._private:
            message = message.replace(path, "...")
        message = _fitting(message)
        if message == error.message:
            return error
        if isinstance(error, UnavailableError):
            return UnavailableError(message, error.retry_after_seconds, error.locations)
        shown = StoreError(message)
        shown.code = error.code
        return shown


def _fitting(message: str) -> str:
    """Return a message that fits in headers; a truncated one says so."""
    costs = list(accumulate(map(_cost, message)))
    if not costs or costs[-1] <= _HEADER_BYTES:
        return message
    return f"{message[: bisect_right(costs, _HEADER_BYTES)]}... (cut: {len(message):,} characters in all)"


@functools.lru_cache(4_096)
def _cost(character: str) -> float:
    """Return the header bytes of a character."""
    plain = len(character.encode(errors="replace"))
    as_text = plain if " " <= character <= "~" and character != "%" else 3 * plain
    return as_text + 4 / 3 * (2 * plain + len(json.dumps(character)) - 2)


def _logged(error: BaseException, where: str) -> str:
    request_id = request_id_of(error)
    fields = {"request": request_id}
    _LOG.error("%s failed, id=%s", where, request_id, exc_info=error, extra={"fields": fields})
    return f"id={request_id}"


def told(known: StoreError) -> dict[str, Any]:
    """Return the JSON of an error, as the server sends it to clients."""
    extra: dict[str, Any] = {"code": known.code, "message": known.message}
    if isinstance(known, UnavailableError):
        if known.retry_after_seconds is not None:
            extra["retry_after_seconds"] = known.retry_after_seconds
        if known.locations is not None:
            extra["locations"] = known.locations
    return {**extra, "request_id": known.request_id} if known.request_id else extra


def verb(method: Verb) -> Verb:
    """Make a verb of the server raise Flight errors only, as translated by its ``translator``, and check its caller
    first. ``refused`` is told of each error, too."""

    @functools.wraps(method)
    def guarded(self: Any, context: Any, *arguments: Any) -> Any:
        try:
            self.check_caller(context, method.__name__)
            return method(self, context, *arguments)
        except BaseException as error:
            name = _name(method, arguments)
            self.refused(name, error)
            raise self.translator.flight(error, name) from None

    return guarded  # pyright: ignore[reportReturnType]


def _name(method: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return the name of a call: that of its action, if there is one of that name."""
    name = getattr(arguments[0], "type", "") if arguments and isinstance(arguments[0], fl.Action) else ""
    return name if name in ACTIONS else method.__name__


class Guarded(Iterator[Item]):
    """The items of a running stream with errors that clients may see: translates them, and calls ``release`` exactly
    once, at the end.

    The end is the last item, an error, ``close``, or the last reference: when a client disconnects, even before the
    first item, the transport just drops the stream.
    """

    def __init__(self, items: Iterator[Item], translator: Translator, where: str, release: Callable[[], None]) -> None:
        self._items = items
        self._translator = translator
        self._where = where
        self._release: Callable[[], None] | None = release

    def __next__(self) -> Item:
        try:
            return next(self._items)
        except StopIteration:
            self.close()
            raise
        except BaseException as error:
            self.close()
            raise self._translator.flight(error, self._where) from None

    def close(self) -> None:
        """Release the stream's resources."""
        release, self._release = self._release, None
        if release:
            release()

    def __del__(self) -> None:
        self.close()


def hide_tracebacks() -> None:
    """Keep tracebacks out of the error texts that clients see, in this process, from now on.

    pyarrow appends the formatted traceback to the text of any exception that is not a Flight error, including its own
    (a handler's wrong answer, a batch of the wrong schema). For that it calls ``traceback.format_exception`` from C++,
    on a thread without any Python frame; no other call looks like this, and other calls are unaffected.
    """
    original = traceback.format_exception
    if hasattr(original, _HIDES):
        return

    @functools.wraps(original)
    def format_exception(*arguments: Any, **options: Any) -> list[str]:
        try:
            sys._getframe(1)
        except ValueError:
            return ["see the server's log"]
        return original(*arguments, **options)

    setattr(format_exception, _HIDES, True)
    traceback.format_exception = format_exception
