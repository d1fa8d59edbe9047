"""HeaderClient: pyarrow's Flight client, with headers in each call: a bearer token, and the caller's trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from .token import Token, header

_NONE = fl.FlightCallOptions()


class HeaderClient:
    """A Flight client that sends headers in each call: the token, and the caller's trace. It has those methods of
    ``FlightClient`` that clients here use. Thread safe.

    pyarrow's own means, a middleware, would call Python several times for each call.
    """

    def __init__(
        self, client: fl.FlightClient, token: Token | None, traceparent: Callable[[], str] | None = None
    ) -> None:
        """``traceparent`` returns the header of the caller's trace; empty: there is none. Raises InvalidArgumentError
        if the token is not one."""
        self._client = client
        self._token = token
        self.traceparent = traceparent
        """What is sent in an open stream takes it along by itself: see ``Sessions``."""
        self.current_token = token if callable(token) else None
        """The function of the token. An open stream belongs to the token that it was opened with."""
        self._shown: tuple[str | None, fl.FlightCallOptions] = (None, _NONE)
        self._of_stream()

    def _of_call(self) -> fl.FlightCallOptions:
        """Return the options of a call, which is for one caller."""
        trace = self._trace()
        return fl.FlightCallOptions(headers=[*self._token_header(), *trace]) if trace else self._of_stream()

    def _of_stream(self, token: str | None = None) -> fl.FlightCallOptions:
        """Return the options of a stream that later callers use again: it belongs to no trace. It shows a given token,
        else the current one."""
        token = token or self._current_token()
        shown = self._shown
        if shown[0] != token:
            headers = [] if token is None else [header(token)]
            shown = self._shown = (token, fl.FlightCallOptions(headers=headers))
        return shown[1]

    def within(self, seconds: float | None) -> fl.FlightCallOptions:
        """Return options for a call that ends after a time, if one is given."""
        return fl.FlightCallOptions(timeout=seconds, headers=[*self._token_header(), *self._trace()])

    def _current_token(self) -> str | None:
        return self._token() if callable(self._token) else self._token

    def _token_header(self) -> list[tuple[bytes, bytes]]:
        token = self._current_token()
        return [] if token is None else [header(token)]

    def _trace(self) -> list[tuple[bytes, bytes]]:
        trace = self.traceparent() if self.traceparent else ""
        return [(b"traceparent", trace.encode())] if trace else []

    def do_action(self, action: fl.Action, options: fl.FlightCallOptions | None = None) -> Any:
        """See FlightClient. ``options`` are those of ``within``."""
        return self._client.do_action(action, options or self._of_call())

    def do_get(self, ticket: fl.Ticket, options: fl.FlightCallOptions | None = None) -> fl.FlightStreamReader:
        """See FlightClient. ``options`` are those of ``within``."""
        return self._client.do_get(ticket, options or self._of_call())

    def do_put(self, descriptor: fl.FlightDescriptor, schema: pa.Schema) -> Any:
        """See FlightClient."""
        return self._client.do_put(descriptor, schema, self._of_call())

    def do_exchange(self, descriptor: fl.FlightDescriptor, token: str | None = None) -> Any:
        """See FlightClient. The stream shows ``token``, if it is given, in place of the current one."""
        return self._client.do_exchange(descriptor, self._of_stream(token))

    def get_flight_info(
        self, descriptor: fl.FlightDescriptor, options: fl.FlightCallOptions | None = None
    ) -> fl.FlightInfo:
        """See FlightClient. ``options`` are those of ``within``."""
        return self._client.get_flight_info(descriptor, options or self._of_call())

    def close(self) -> None:
        """See FlightClient."""
        self._client.close()
