"""Attackers that open streams by the thousand: strangers, and a user who may do nothing."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from tests.campaigns.attack.attackers import Attack
from tests.campaigns.attack.shown import VARIABLE
from tests.doubles.raw_streams import RawStreams

METHODS = ("DoPut", "DoExchange", "Handshake", "DoAction", "DoGet")
OPEN_SECONDS = 1.0
CONNECTIONS = 10


def _crowd(url: str, count: int, headers: dict[str, str]) -> None:
    """Open streams that send their headers only, of all methods in turn, and leave them for a while; over and over."""
    port = int(url.rpartition(":")[2])
    while True:
        for method in METHODS:
            streams: list[RawStreams] = []
            with suppress(OSError):
                for _ in range(CONNECTIONS):
                    streams.append(RawStreams(port, method, count // CONNECTIONS, headers))
                time.sleep(OPEN_SECONDS)
            for each in streams:
                with suppress(OSError):
                    each.close()


def strangers(url: str) -> None:
    """1,500 streams without a token, 190 KB."""
    _crowd(url, 1_500, {})


def false_tokens(url: str) -> None:
    """1,500 streams with a token that is not valid."""
    _crowd(url, 1_500, {"authorization": "Bearer nyala_" + "0" * 12 + "_" + "A" * 43})


def silent_streams(url: str) -> None:
    """1,500 streams of a user who has a token and no message."""
    _crowd(url, 1_500, {"authorization": f"Bearer {os.environ[VARIABLE]}"})


CROWDS: dict[str, Attack] = {each.__name__: each for each in (strangers, false_tokens, silent_streams)}
