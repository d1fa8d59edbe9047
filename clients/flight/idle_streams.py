"""IdleStreams: keeps streams open between calls for a moment, so that a call is one message each way."""

from __future__ import annotations

import threading
import time
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
    """The open streams that no call uses. Thread safe."""

    def __init__(self) -> None:
        self._idle: list[Stream] = []
        self._changed = threading.Condition()
        self._closer: threading.Thread | None = None
        self._closed = False

    def borrow(self, kind: Hashable) -> Stream | None:
        """Return the stream of a kind that was used last; None if there is none."""
        with self._changed:
            for place in reversed(range(len(self._idle))):
                if self._idle[place].kind == kind:
                    return self._idle.pop(place)
        return None

    def give_back(self, stream: Stream) -> None:
        """Keep a stream for the next call, or close it if there are enough."""
        stream.idle_since = time.monotonic()
        with self._changed:
            if not self._closed and len(self._idle) < IDLE_COUNT_MAX:
                self._idle.append(stream)
                if self._closer is None:
                    self._closer = threading.Thread(target=self._close_idle, name="nyala-idle-streams", daemon=True)
                    self._closer.start()
                return
        stream.close()

    def close(self) -> None:
        """Close idle streams, and others when they are given back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for stream in idle:
            stream.close()

    def _close_idle(self) -> None:
        """Close streams that have been idle long enough, until none are left."""
        while True:
            with self._changed:
                if not self._idle:
                    self._closer = None
                    return
                self._changed.wait(IDLE_SECONDS / 2)
                before = time.monotonic() - IDLE_SECONDS
                old = [stream for stream in self._idle if stream.idle_since < before]
                self._idle = [stream for stream in self._idle if stream.idle_since >= before]
            for stream in old:
                stream.close()
