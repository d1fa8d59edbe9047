"""A server with an HTTP port, and a client of that, as tests want them."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from nyala.flight_server.serve.port import HttpPort
from tests.flight_server.served import Served

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Port:
    """A server in this process with an HTTP port, and a client of that."""

    def __init__(self, served: Served, http: HttpPort, context: ssl.SSLContext | None = None) -> None:
        self.served, self.http, self.context = served, http, context

    def ask(self, path: str, token: str | None = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        shown = {"authorization": f"Bearer {token}"} if token is not None else {}
        return ask(self.http.url + path, {**shown, **headers}, self.context)

    def values(self, token: str | None = None) -> Values:
        status, text = self.ask("/metrics", token)
        assert status == 200, text
        return values_of(text)


def ask(url: str, headers: dict[str, str] | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers or {}), None, 20, context=context
        ) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def values_of(text: str) -> Values:
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def of(values: Values, name: str, **labels: str) -> float:
    return values[name, frozenset(labels.items())]
