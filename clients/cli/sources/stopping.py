"""Commands that run until they are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """For a command that runs until it is stopped: let the first SIGINT or SIGTERM call ``stop``, which ends the work
    after its current commit, and the second one end it at once."""

    def stopping(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {each: signal.signal(each, stopping) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
