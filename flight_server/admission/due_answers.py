"""DueAnswers: the requests that sessions have begun and not answered yet. A server that stops waits for them.

A session is open for as long as its client likes, so it is nothing to wait for. But a write that it has begun may be
applied although its answer is not sent yet: the client would have an error for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_LOOK_SECONDS = 0.005


@dataclass(eq=False, slots=True)
class AnswerCount:
    """How many requests a session has begun, and how many of them it has answered, which happens in their order. No two
    threads change one of the numbers at once."""

    begun: int = 0
    answered: int = 0
    carried_out: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Returns how many requests were left to other threads, beside those that were begun, and how many of them are
    over."""


class DueAnswers:
    """The answers that the sessions of a server owe their clients. Thread safe."""

    def __init__(self) -> None:
        self._sessions: set[AnswerCount] = set()
        self._lock = threading.Lock()

    def add(self, session: AnswerCount) -> None:
        """Wait for the answers of a session, too."""
        with self._lock:
            self._sessions.add(session)

    def remove(self, session: AnswerCount) -> None:
        """Do not wait for a session that is over."""
        with self._lock:
            self._sessions.discard(session)

    def wait(self, deadline: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until each session has answered what it had begun before; a client that goes on sending is not waited
        for. Return False at the deadline, by the monotonic clock, or if it ``is_over``."""
        with self._lock:
            due = [(session, session.begun, session.carried_out()[0]) for session in self._sessions]
        for session, begun, left in due:
            while (session.answered < begun or session.carried_out()[1] < left) and session in self._sessions:
                if is_over() or time.monotonic() >= deadline:
                    return False
                time.sleep(_LOOK_SECONDS)
        return True
