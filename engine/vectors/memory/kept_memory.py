"""Memory that is kept after its use, for the next."""

from abc import ABC, abstractmethod

from ... import threads
from ...mvcc.clock import elapsed_seconds

_IDLE_SECONDS = 60.0
"""To touch returned memory again costs several times a warm scan; people ask their next question within a minute."""


class KeptMemory(ABC):
    """Memory that is kept for the next use: what `HugePages`, `Lender` and `ReservedMemory` have in common. Thread
    safe."""

    def __init__(self) -> None:
        self._is_used = False
        """Whether memory was taken since the last `release_unused`."""
        self._used_at = 0.0
        self._lock = threads.RLock()  # the last view of an array may go at any time, also while it is held

    def release_unused(self, now: float | None = None) -> None:
        """Return idle memory to the operating system, if none was taken for a minute. Call it now and then.

        ``now``: the time, by the clock that is the default: `elapsed_seconds`.
        """
        now = elapsed_seconds() if now is None else now
        with self._lock:
            if self._is_used:
                self._is_used, self._used_at = False, now
            is_idle = now - self._used_at >= _IDLE_SECONDS
        if is_idle:
            self.release()

    @abstractmethod
    def release(self) -> None:
        """Return idle memory to the operating system."""
