"""IdleStreams: keeps streams open between calls for a moment, so that a call is one message each way."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

IDLE_SECONDS = 0.5
"""A stream idle for this long is closed: it occupies a thread of the server."""
IDLE_COUNT_MAX = 8


class _OpenStream(Protocol):
    idle_since: float

    @property
    def kind(self) -> Hashable:
        """Calls of the same kind can use it."""
        ...

    def close(self) -> None: ...


Stream = TypeVar("Stream", bound=_OpenStream)


class IdleStreams(Generic[Stream]):
    """The open Flight streams of a client that no call uses. Thread safe: a deque is, and so a call takes no lock."""

    def __init__(self) -> None:
        self._idle: deque[Stream] = deque()
        """The one that was used last comes last."""
        self._starting = threading.Lock()
        self._closer: threading.Thread | None = None
        self._closed = threading.Event()

    def borrow(self, kind: Hashable) -> Stream | None:
        """Return the stream of a kind that was used last; None if there is none."""
        others: list[Stream] = []
        found: Stream | None = None
        try:
            while (stream := self._idle.pop()).kind != kind:
                others.append(stream)
            found = stream
        except IndexError:
            pass
        if others:
            self._idle.extend(reversed(others))
            if self._closed.is_set():
                self._close_before(math.inf)
        return found

    def give_back(self, stream: Stream) -> None:
        """Keep a stream for the next call, or close it if there are enough."""
        if len(self._idle) >= IDLE_COUNT_MAX:
            stream.close()
            return
        stream.idle_since = time.monotonic()
        self._idle.append(stream)
        if self._closed.is_set():
            self._close_before(math.inf)
        elif self._closer is None:
            self._start_closer()

    def close(self) -> None:
        """Close idle streams, and others when they are given back."""
        self._closed.set()
        self._close_before(math.inf)

    def _close_before(self, moment: float) -> None:
        """Close the streams that have been idle since before a moment."""
        try:
            while (stream := self._idle.popleft()).idle_since < moment:
                stream.close()
            self._idle.appendleft(stream)
        except IndexError:
            pass

    def _start_closer(self) -> None:
        """Start the thread that closes idle streams; if it cannot be started, close them now."""
        with self._starting:
            if self._closer is not None:
                return
            closer = self._closer = threading.Thread(target=self._close_idle, name="nyala-idle-streams", daemon=True)
            try:
                closer.start()
            except RuntimeError:  # the process has too many; the call that gave the stream back has its answer
                self._closer = None
                self._close_before(math.inf)

    def _close_idle(self) -> None:
        """Close streams that have been idle long enough, until none are left."""
        while self._idle and not self._closed.wait(IDLE_SECONDS / 2):
            self._close_before(time.monotonic() - IDLE_SECONDS)
        self._closer = None
        if self._idle and not self._closed.is_set():  # one was given back before that line
            self._start_closer()
