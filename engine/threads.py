"""Threads: every lock, wait, thread and pause of the engine.

Nothing here is of our own: the names are those of the standard library. The engine takes them as ``threads.Lock()``,
and from nowhere else. So a test that hands out the turns of threads by a seed (tests/simulation) has one place to
replace; outside of such tests a name costs what it costs in its own module.
"""

from concurrent.futures import ThreadPoolExecutor, wait
from threading import (
    Barrier,
    BoundedSemaphore,
    Condition,
    Event,
    Lock,
    RLock,
    Thread,
    current_thread,
    get_ident,
    local,
    main_thread,
)
from time import monotonic, sleep

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Thread",
    "ThreadPoolExecutor",
    "current_thread",
    "get_ident",
    "local",
    "main_thread",
    "monotonic",
    "new_lock",
    "sleep",
    "wait",
]


def new_lock() -> Lock:
    """Return a lock of the engine, for a field that makes its own: the name is looked up at the call."""
    return Lock()
