"""Replicas: finds processes that answer scans that may be behind, beside the one that has the store."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.scan import ScanSpec
from ...schemas.whereabouts import Whereabouts
from .errors import as_store_errors
from .holder_client import Client, HolderClient

Answer = TypeVar("Answer")

_KEPT_SECONDS = 10.0
"""How long a replica is asked, or none is looked for, before all processes are asked again."""


class Replicas:
    """The replicas of one client's store. Thread safe.

    Of those that answer reads one is picked at random, so that clients spread, and asked for some seconds, so that the
    parts of a scan find what its plan keeps for them.
    """

    def __init__(self, client: HolderClient) -> None:
        self._client = client
        self._picked: str | None = None
        self._until = float("-inf")
        self._lock = threading.Lock()

    def ask(self, spec: ScanSpec, ask: Callable[[Client | HolderClient], Answer]) -> Answer:
        """Ask a replica if the scan may be behind and there is one, and else, or if it refuses, the process that has
        the store. Raises StoreError."""
        if spec.max_staleness is not None and (found := self._pick()):
            location, replica = found
            try:
                with as_store_errors():
                    return ask(replica)
            except UnavailableError:
                self._failed(location)
            except StoreError:
                pass  # it may lack what is new, or not know who may read what
        with as_store_errors():
            return ask(self._client)

    def _pick(self) -> tuple[str, Client] | None:
        with self._lock:
            if time.monotonic() >= self._until:
                self._picked = self._found()
                self._until = time.monotonic() + _KEPT_SECONDS
            if self._picked is None:
                return None
            client = self._client.client_at(self._picked)
            return None if client is None else (self._picked, client)

    def _failed(self, location: str) -> None:
        """Ask the process that has the store for some seconds."""
        with self._lock:
            if self._picked == location:
                self._picked, self._until = None, time.monotonic() + _KEPT_SECONDS

    def _found(self) -> str | None:
        told = self._client.told()
        able = [location for location, found in told.items() if isinstance(found, Whereabouts) and _reads(found)]
        random.shuffle(able)
        for location in able:
            with suppress(StoreError):
                self._client.confirm_at(location)
                return location
        return None


def _reads(found: Whereabouts) -> bool:
    return found.state == "standby" and found.lag_seconds is not None
