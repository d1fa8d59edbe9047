"""Ctrl-C in the middle of what belongs together, such as the commit of a manifest and what it changes in memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .. import threads


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let a Ctrl-C that comes during the body take effect right after it, whether the body fails or not; a second one
    takes effect at once.

    Only the main thread is interrupted, wherever it is: elsewhere this does nothing. The body should be short.
    """
    handler = signal.getsignal(signal.SIGINT) if threads.current_thread() is threads.main_thread() else None
    if not callable(handler):  # another thread, or Ctrl-C raises nothing
        yield
        return
    came: list[FrameType | None] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(frame)
        if len(came) > 1:
            came.clear()
            handler(number, frame)

    try:
        signal.signal(signal.SIGINT, keep)
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])
