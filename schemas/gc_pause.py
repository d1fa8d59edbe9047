"""Pauses the garbage collector while many long-lived objects are created, by imports or by opening tablets.

The collector begins a pass whenever some more objects live, and each of its larger passes visits all that there are. To
open a thousand tablets that takes as long as all the rest; to import the modules, a tenth of a start. There is no
garbage among them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_mutex = threading.Lock()
_users = 0
_goes_on = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run the body without passes of the collector, in all threads. For work that makes little garbage, and ends: the
    body may not serve requests."""
    global _users, _goes_on
    with _mutex:
        if not _users:
            _goes_on = gc.isenabled()
            gc.disable()
        _users += 1
    try:
        yield
    finally:
        with _mutex:
            _users -= 1
            if not _users and _goes_on:
                gc.enable()
