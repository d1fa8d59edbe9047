"""The threads of DataFusion: one pool for the whole process, in which a join that nobody waits for computes on.

Nothing ends such a join but the end of the process. With as many threads as processors, which is what the pool has by
default, two of them leave no thread to any later statement, which would wait for ever.
"""

from __future__ import annotations

import os
import threading
from time import monotonic

from datafusion import SessionContext

from ...schemas.errors import UnavailableError

_GIVEN_UP_MAX = 3
_WORKERS = 8 * len(os.sched_getaffinity(0))
"""Enough for the joins below one another of so many statements, and for those of the next one."""
_VARIABLE = "TOKIO_WORKER_THREADS"
_GRACE_SECONDS = 1.0

_lock = threading.Lock()
_given_up: set[threading.Thread] = set()


def begin_workers() -> None:
    """Start the pool of DataFusion's threads, unless it runs or the environment tells its size."""
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = str(_WORKERS)
    try:
        SessionContext().sql("SELECT 1")
    finally:
        del os.environ[_VARIABLE]


def give_up(thread: threading.Thread) -> None:
    """Note that nobody waits for what a thread asks of the pool of DataFusion's threads."""
    with _lock:
        _given_up.add(thread)


def check_workers() -> None:
    """Raise UnavailableError if SQL queries that were given up may hold the whole pool of DataFusion's threads."""
    end = monotonic() + _GRACE_SECONDS
    with _lock:
        while len(_given_up) >= _GIVEN_UP_MAX:
            for thread in list(_given_up):
                thread.join(max(end - monotonic(), 0.0))
                if not thread.is_alive():
                    _given_up.discard(thread)
            if len(_given_up) >= _GIVEN_UP_MAX and monotonic() >= end:
                raise UnavailableError(
                    f"{len(_given_up)} statements that were canceled or took too long still run in this process, and "
                    "cannot be stopped: restart the process, or use a server with --sql"
                )
