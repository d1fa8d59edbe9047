"""KeyIndexBudget: limits the memory of all key indexes of a store, and decides when they are built."""

from __future__ import annotations

from .. import threads


class KeyIndexBudget:
    """A part of the environment of tablets: the bytes for all key indexes of a store, which tablets take and give back.
    Thread safe.

    First come, first served: a tablet that gets none has no index of its DiskRowSets.
    """

    def __init__(self, limit_bytes: int, on_demand: bool = True) -> None:
        self.limit_bytes = limit_bytes
        self.on_demand = on_demand
        """Whether the first look-up builds the index in one step; else maintenance does, beside writers."""
        self._lock = threads.Lock()
        self._used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The bytes still available."""
        return self.limit_bytes - self._used_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes that tablets have taken."""
        return self._used_bytes

    def take(self, size_bytes: int) -> bool:
        """Take more bytes if available, and return whether they were; a negative number gives bytes back."""
        with self._lock:
            if size_bytes > 0 and self._used_bytes + size_bytes > self.limit_bytes:
                return False
            self._used_bytes += size_bytes
            return True


def unlimited() -> KeyIndexBudget:
    """Return a budget, for the environment of tablets, that holds any key index."""
    return KeyIndexBudget(1 << 62)
