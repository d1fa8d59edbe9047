"""Openings: streams from clients that have begun and sent no message yet. Each holds a thread of Arrow's, which waits.

Arrow calls the handler of such a stream with its first message, so nothing that watches running calls sees it before,
and nothing can end it. So each user has few of them at once.
"""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow.flight as fl

from ...schemas.errors import UnavailableError

_OF_USER_MAX = 64
_RETRY_SECONDS = 1.0


class Openings:
    """The streams that callers of one server have opened and sent no message in yet: counts them for each user. Thread
    safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, user: str) -> Opening:
        """Count another stream of a user; an empty name stands for all that only a certificate identifies.

        Raises:
            UnavailableError: the user has too many.
        """
        with self._lock:
            if self._counts[user] >= _OF_USER_MAX:
                whose = f"the user {user!r}" if user else "all users of client certificates"
                raise UnavailableError(
                    f"{_OF_USER_MAX} streams of {whose} have sent no message yet; send messages, or "
                    "end some streams, before opening more",
                    _RETRY_SECONDS,
                )
            self._counts[user] += 1
        return Opening(self, user)

    def end(self, user: str) -> None:
        """Count a stream of a user no more."""
        with self._lock:
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]


class Opening(fl.ServerMiddleware):
    """One stream that a caller has opened, counted until its handler is called or it is over."""

    def __init__(self, openings: Openings, user: str) -> None:
        super().__init__()
        self._openings: Openings | None = openings
        self._user = user

    def end(self) -> None:
        """Note that the handler was called."""
        openings, self._openings = self._openings, None
        if openings:
            openings.end(self._user)

    def call_completed(self, exception: BaseException | None) -> None:
        """Called by pyarrow at the end of the stream, whether its handler was called or not."""
        self.end()
