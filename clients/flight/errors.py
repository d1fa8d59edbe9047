"""Translates Flight's errors into the store's: by the code word that a server sends, or by what the connection did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import (
    NOT_BEGUN,
    InternalError,
    InvalidArgumentError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
    error_of,
)

_CODE = re.compile(r"(?:^|[\s:'])([A-Z]+(?:_[A-Z]+)*): (.*?)(?:\. Detail: |\. gRPC client debug context|$)", re.DOTALL)
_ADDRESS = re.compile(r"\b(?:ipv4:|ipv6:|unix:)(\S+):(?: |$)")
_ERRNO = re.compile(r" \(\d+\)$")
_GONE = (fl.FlightUnavailableError, fl.FlightTimedOutError, fl.FlightCancelledError)
_ENDED = "UNAVAILABLE: "
"""How a server begins that ends a call while it runs."""
_NO_THREAD = "Server Threadpool Exhausted"
"""gRPC's own words of a server that has as many threads as it may."""
_RETRY_SECONDS = 1.0
_NO_CONNECTION, _NO_ADDRESS = "failed to connect to all addresses", "empty address list"
_PORT_OF_HTTPS = ":443"
"""The port that gRPC takes where a URL has none."""
_ANSWERS = {
    "wrong version number": "the server{} answers without TLS; use grpc:// on this machine, or check the port",
    "certificate verify failed": "the certificate of the server{} is not from a trusted root; give --tls-roots "
    "(tls_roots, NYALA_TLS_ROOTS), and check that it has not expired",
    "is not in peer certificate": "the certificate of the server{} is for another name; use a name that is in it",
    "got frame type 80": "the server{} answers HTTP, not Arrow Flight; use the port of --listen (grpc://), not that of "
    "--http-port",
    "Failed parsing HTTP/2": "the server{} does not speak Arrow Flight; use the port of `nyala serve` (grpc://)",
    "Socket closed": "the server{} closed the connection: if it uses TLS, use grpc+tls:// and the client certificate "
    "that it asks for; otherwise the server may be starting or stopping",
}
"""Why no connection was made, by a part of gRPC's report."""


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Raise pyarrow errors of the Flight client from the body as the matching ``StoreError``."""
    try:
        yield
    except (fl.FlightError, pa.ArrowException, OSError) as error:
        raise store_error(error) from None


def store_error(error: Exception) -> StoreError:
    """Return the ``StoreError`` that an error of the Flight client means."""
    if sent := _sent(error):
        return sent
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    if isinstance(error, fl.FlightUnauthenticatedError):
        return UnauthenticatedError(text.rpartition("UNAUTHENTICATED: ")[2])
    if _NO_THREAD in text:
        return UnavailableError(f"{NOT_BEGUN}the server has no free thread for this call", _RETRY_SECONDS)
    if isinstance(error, _GONE):
        return _gone(text.removeprefix("Flight returned unavailable error, with message: "))
    if isinstance(error, OSError):
        return _lost(f"the connection broke: {text}")
    if isinstance(error, pa.ArrowInvalid | pa.ArrowKeyError | pa.ArrowTypeError):
        return InvalidArgumentError(text)
    return InternalError(text)


def told_error(extra: Mapping[str, Any]) -> StoreError:
    """Return the error that the JSON of a server tells its Flight client. Raises KeyError if it tells none."""
    return error_of(
        extra["code"],
        extra["message"],
        extra.get("retry_after_seconds"),
        extra.get("request_id"),
        extra.get("locations"),
    )


def _gone(text: str) -> UnavailableError:
    if text.startswith(f"{_ENDED}{NOT_BEGUN}"):
        return UnavailableError(text.removeprefix(_ENDED), _RETRY_SECONDS)
    if text.startswith(_ENDED):  # by the server, while it worked
        return _lost(text.removeprefix(_ENDED))
    why = f"the server cannot be reached: {_reason(text)}"
    return UnavailableError(why) if _NO_CONNECTION in text or _NO_ADDRESS in text else _lost(why)


def _lost(message: str) -> UnavailableError:
    error = UnavailableError(message)
    error.answer_is_lost = True
    return error


def _reason(text: str) -> str:
    """Return why a connection failed, from gRPC's report of all attempts."""
    where = _ADDRESS.search(text)
    address = f" at {where[1]}" if where else ""
    if _NO_ADDRESS in text:
        return "no connection can be made; the host may be unknown, or a file of certificates invalid"
    if _NO_CONNECTION not in text:
        return text
    if why := next((why for part, why in _ANSWERS.items() if part in text), None):
        return why.format(address)
    why = _ERRNO.sub("", text.rpartition(": ")[2]).lower()
    port = " If the URL has no port, add it, such as :8815" if address.endswith(_PORT_OF_HTTPS) else ""
    return f"{why}{address}; is it running, and is this its address?{port}"


def _sent(error: Exception) -> StoreError | None:
    """Return the error that a Nyala server sent, or None if no server sent it."""
    try:
        return told_error(json.loads(getattr(error, "extra_info", None) or b"null"))
    except (ValueError, TypeError, KeyError):
        match = _CODE.search(str(error)) if not isinstance(error, fl.FlightError) else None
        return error_of(match[1], match[2]) if match else None
