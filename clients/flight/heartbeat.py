"""Heartbeats: small questions on a connection that may wait for an answer, so that a lost machine is noticed.

A machine that is gone without a word closes no connection. TCP gives up where what was sent is not acknowledged, but a
call that waits for its answer sends nothing, and would wait for ever. All calls of a client share a connection, so one
question that is not acknowledged ends them all.
"""

from __future__ import annotations

import threading
import weakref
from random import uniform
from typing import Protocol

PERIOD_SECONDS = 2.0
LOST_AFTER = [("grpc.keepalive_time_ms", 600_000), ("grpc.keepalive_timeout_ms", 5_000)]
"""Options of a connection. With them gRPC sets TCP_USER_TIMEOUT to 5 s: what is sent must be acknowledged by then. Its
own pings stay rare, since servers of gRPC reject more than one in five minutes."""


class Beating(Protocol):
    """A client's connection that sends heartbeats to its server."""

    def beat(self) -> None:
        """Send one, and wait a moment for the answer. Raises nothing."""
        ...


def start(owner: Beating, closed: threading.Event) -> None:
    """Let a client's connection ``owner`` send heartbeats until ``closed`` is set, or nobody uses ``owner`` any
    more."""
    threading.Thread(target=_run, args=(weakref.ref(owner), closed), name="nyala-heartbeat", daemon=True).start()


def _run(owner: weakref.ref[Beating], closed: threading.Event) -> None:
    while not closed.wait(PERIOD_SECONDS * uniform(0.75, 1.0)):  # many clients do not ask at the same time
        alive = owner()
        if alive is None:
            return
        alive.beat()
        del alive  # nobody may use it any more while this waits
