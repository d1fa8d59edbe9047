"""MemoryGate: writers wait when the memory stores are full, and are told to come again when waiting does not help."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..schemas.errors import UnavailableError
from .tablet.tablet import Tablet

TABLET_BYTES_MAX = 1 << 30
"""A column of a memory store holds less than 2 GiB; this keeps a tablet's stores well below."""
_CHECK_BYTES = 4 << 20
"""Memory is counted exactly once for every so many bytes written."""


class MemoryGate:
    """Admits batches while the memory stores of all tablets are below a limit. Thread safe."""

    def __init__(
        self, limit_bytes: int, wait_seconds: float, tablets: Callable[[], list[Tablet]], flush: Callable[[], bool]
    ) -> None:
        """``flush`` asks for memory to be freed and returns whether anybody will."""
        self._limit_bytes = limit_bytes
        self._wait_seconds = wait_seconds
        self._tablets = tablets
        self._flush = flush
        self._changed = threading.Condition()
        self._unchecked = 0
        self._waiting = 0

    def is_pressed(self) -> bool:
        """Whether a writer waits for memory."""
        return self._waiting > 0

    def admit(self, size_bytes: int) -> None:
        """Let a batch in.

        Raises:
            UnavailableError: there is no room and none came in time.
        """
        with self._changed:
            self._unchecked += size_bytes
            if self._unchecked < min(_CHECK_BYTES, self._limit_bytes // 4) or self._has_room():
                return
            self._waiting += 1
            try:
                if self._flush() and self._changed.wait_for(self._has_room, self._wait_seconds):
                    return
            finally:
                self._waiting -= 1
        raise UnavailableError(
            f"the memory stores hold more than {self._limit_bytes:,} bytes and are not flushed fast enough; "
            "retry in a second, or call maintain('flush')"
        )

    def freed(self) -> None:
        """Say that a flush has ended."""
        with self._changed:
            self._changed.notify_all()

    def _has_room(self) -> bool:
        sizes = [tablet.memory_bytes for tablet in self._tablets()]
        if sum(sizes) > self._limit_bytes or max(sizes, default=0) > TABLET_BYTES_MAX:
            return False
        self._unchecked = 0
        return True
