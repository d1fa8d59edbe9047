"""A time by which servers must have answered whatever a block of code asks them: for callers who cannot wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHORTEST_SECONDS = 0.001
_END: ContextVar[float | None] = ContextVar("nyala_deadline", default=None)


@contextmanager
def answered_within(seconds: float) -> Iterator[None]:
    """Give a client's calls to all stores this time in total during the body; they do not wait for servers that are
    down. They raise UnavailableError when it is over. A shorter time around this one stays in force."""
    end, known = time.monotonic() + seconds, _END.get()
    token = _END.set(end if known is None else min(end, known))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left() -> float | None:
    """Return the time that is left to a client's calls, which is never 0; None if there is no end."""
    end = _END.get()
    return None if end is None else max(end - time.monotonic(), _SHORTEST_SECONDS)
