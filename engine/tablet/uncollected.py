"""Makes many objects that stay, without passes of Python's collector of garbage in between.

The collector begins a pass whenever some more objects live, and each of its larger passes visits all that there are: to
open a thousand tablets it takes as long as all the rest. There is no garbage among them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_mutex = threading.Lock()
_users = 0
_is_to_go_on = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the body without passes of the collector, in all threads. For work that makes little garbage, and ends."""
    global _users, _is_to_go_on
    with _mutex:
        if not _users:
            _is_to_go_on = gc.isenabled()
            gc.disable()
        _users += 1
    try:
        yield
    finally:
        with _mutex:
            _users -= 1
            if not _users and _is_to_go_on:
                gc.enable()
