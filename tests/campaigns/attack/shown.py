"""Connections that show a token with each call."""

from __future__ import annotations

import os
from typing import Any

import pyarrow.flight as fl

VARIABLE = "NYALA_TOKEN"
"""Where attackers have theirs from."""


class _Header(fl.ClientMiddleware):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}


class _Headers(fl.ClientMiddlewareFactory):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def start_call(self, _: fl.CallInfo) -> _Header:
        return _Header(self._token)


def connect(url: str, token: str = "", **options: Any) -> fl.FlightClient:
    """Connect with a token, by default the process's own."""
    return fl.connect(url, middleware=[_Headers(token or os.environ[VARIABLE])], **options)
