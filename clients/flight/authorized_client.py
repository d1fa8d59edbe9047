"""AuthorizedClient: pyarrow's Flight client, showing a bearer token with each call."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from .credentials import Token, header


class AuthorizedClient:
    """Has those methods of ``FlightClient`` that clients here use. Thread safe.

    pyarrow's own means, a middleware, would call Python several times for each call.
    """

    def __init__(self, client: fl.FlightClient, token: Token) -> None:
        """Raises InvalidArgumentError if the token is not one."""
        self._client = client
        self._token = token
        self._shown: tuple[str, fl.FlightCallOptions] | None = None
        self._options()

    def _options(self) -> fl.FlightCallOptions:
        token = self._token if isinstance(self._token, str) else self._token()
        shown = self._shown
        if shown is None or shown[0] != token:
            shown = self._shown = (token, fl.FlightCallOptions(headers=[header(token)]))
        return shown[1]

    def within(self, seconds: float) -> fl.FlightCallOptions:
        """Return options for an action that ends after a time."""
        token = self._token if isinstance(self._token, str) else self._token()
        return fl.FlightCallOptions(timeout=seconds, headers=[header(token)])

    def do_action(self, action: fl.Action, options: fl.FlightCallOptions | None = None) -> Any:
        """See FlightClient. ``options`` are those of ``within``."""
        return self._client.do_action(action, options or self._options())

    def do_get(self, ticket: fl.Ticket) -> fl.FlightStreamReader:
        """See FlightClient."""
        return self._client.do_get(ticket, self._options())

    def do_put(self, descriptor: fl.FlightDescriptor, schema: pa.Schema) -> Any:
        """See FlightClient."""
        return self._client.do_put(descriptor, schema, self._options())

    def do_exchange(self, descriptor: fl.FlightDescriptor) -> Any:
        """See FlightClient."""
        return self._client.do_exchange(descriptor, self._options())

    def get_flight_info(self, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """See FlightClient."""
        return self._client.get_flight_info(descriptor, self._options())

    def close(self) -> None:
        """See FlightClient."""
        self._client.close()
