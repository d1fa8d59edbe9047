"""For whom this thread works: who asked, and whether the answer is still wanted.

Whoever serves a request says so by ``serving``; long work calls ``check`` between its steps, and so ends soon after its
client has gone or its time is over. A thread that serves nobody, in an embedded store, is never stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the store sees it."""

    peer: str
    """Where it came from: what a peer may keep at once is counted by it."""
    check: Callable[[], None]
    """Raises ``UnavailableError`` when nobody waits for the answer any more."""


class _Thread(threading.local):
    request: Request | None = None


_thread = _Thread()


@contextmanager
def serving(request: Request) -> Iterator[None]:
    """Say that this thread works for ``request`` while the body runs."""
    before, _thread.request = _thread.request, request
    try:
        yield
    finally:
        _thread.request = before


def check() -> None:
    """Go on, or raise ``UnavailableError`` when the request that this thread serves is not wanted any more."""
    if _thread.request is not None:
        _thread.request.check()


def peer() -> str:
    """Return who asked; the empty string where the store works for its own process."""
    return _thread.request.peer if _thread.request is not None else ""
