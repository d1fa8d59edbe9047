"""Replicas: finds processes that answer scans that may be behind, beside the one that has the store."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.whereabouts import Whereabouts
from .errors import as_store_errors
from .holder_client import Client, HolderClient

Answer = TypeVar("Answer")

_KEPT_SECONDS = 10.0
"""How long replicas are asked, or none is looked for, before all processes are asked again."""


class Replicas:
    """The replicas of one client's store, which a Flight client may ask for scans in place of the process that has the
    store. Thread safe.

    They are asked in an order that is picked at random, so that clients spread, and kept for some seconds, so that the
    parts of a scan find what its plan keeps for them. Those that are further behind than a scan allows come last: they
    do not answer before they have caught up, whatever they said when they were asked. One thread asks all processes
    again; the others go on with those of before, at first with the process that has the store.
    """

    def __init__(self, client: HolderClient) -> None:
        self._client = client
        self._found: list[_Replica] = []
        self._until = float("-inf")
        self._lock = threading.Lock()
        self._looking = threading.Lock()

    def ask(self, spec: ScanSpec, ask: Callable[[Client | HolderClient], Answer]) -> Answer:
        """Ask the replicas if the scan may be behind, until one answers, and else the process that has the store.
        Raises StoreError."""
        if spec.max_staleness is not None:
            for replica in self._in_order(spec.max_staleness):
                try:
                    with as_store_errors():
                        return ask(self._checked(replica))
                except UnavailableError:
                    self._failed(replica)
                except StoreError:
                    break  # it may lack what is new, or not know who may read what
        with as_store_errors():
            return ask(self._client)

    def _in_order(self, seconds: float) -> list[_Replica]:
        """Return the replicas, those first that are at most so many seconds behind; then those that are least."""
        if time.monotonic() >= self._until and self._looking.acquire(blocking=False):  # the others need not wait
            try:
                self._look()
            finally:
                self._looking.release()
        with self._lock:
            return sorted(self._found, key=lambda replica: max(replica.lag_seconds - seconds, 0.0))

    def _look(self) -> None:
        if time.monotonic() < self._until:
            return  # another thread has just done so
        told = self._client.told()
        found = [_Replica(location, lag) for location, each in told.items() if (lag := _lag(each)) is not None]
        random.shuffle(found)
        with self._lock:
            self._found = found
            self._until = time.monotonic() + _KEPT_SECONDS

    def _checked(self, replica: _Replica) -> Client:
        """Return the client of a replica, after it told that it follows the store. Raises StoreError."""
        if not replica.is_checked:
            try:
                self._client.confirm_at(replica.location)
            except StoreError as error:
                raise UnavailableError(error.message) from error  # this one is not asked
            replica.is_checked = True
        return self._client.client_at(replica.location)

    def _failed(self, replica: _Replica) -> None:
        """Do without a replica for some seconds."""
        with self._lock:
            if replica in self._found:
                self._found.remove(replica)
                self._until = time.monotonic() + _KEPT_SECONDS


@dataclass(eq=False, slots=True)
class _Replica:
    location: str
    lag_seconds: float
    """When it was asked."""
    is_checked: bool = False
    """Whether it told that it follows the store, since it was asked."""


def _lag(found: Whereabouts | StoreError) -> float | None:
    """Return how many seconds a process is behind; None: it answers no reads while another one has the store."""
    return found.lag_seconds if isinstance(found, Whereabouts) and found.state == "standby" else None
