"""KeyIndexBudget: how much memory the key indexes of all tablets of a store may take, and when they are built."""

from __future__ import annotations

import threading


class KeyIndexBudget:
    """Bytes that tablets take and give back. Thread safe.

    First come, first served: a tablet that gets none does without an index on its DiskRowSets.
    """

    def __init__(self, limit_bytes: int, on_demand: bool = True) -> None:
        self.limit_bytes = limit_bytes
        self.on_demand = on_demand
        """Whether the first look-up builds the index, in one go; else a maintenance operation does, beside writers."""
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes that nobody has taken."""
        return self.limit_bytes - self._used_bytes

    def take(self, size_bytes: int) -> bool:
        """Take so many bytes more, if there are, and return whether there were; negative ones are given back."""
        with self._lock:
            if size_bytes > 0 and self._used_bytes + size_bytes > self.limit_bytes:
                return False
            self._used_bytes += size_bytes
            return True


def unlimited() -> KeyIndexBudget:
    """Return a budget that holds any index."""
    return KeyIndexBudget(1 << 62)
