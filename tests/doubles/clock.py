"""A clock whose time belongs to the test."""

from __future__ import annotations

from nyala.engine.mvcc.clock import SystemClock


class ManualClock(SystemClock):
    """Time that passes only by ``advance``."""

    def __init__(self, microseconds: int = 1_000_000) -> None:
        super().__init__()
        self._microseconds = microseconds
        self._passed = 0

    def physical_microseconds(self) -> int:
        return self._microseconds

    def steady_microseconds(self) -> int:
        return self._passed

    def advance(self, microseconds: int) -> None:
        """Let time pass; a negative distance is a time of day that was set back."""
        self._passed += max(microseconds, 0)
        self.jump(microseconds)

    def jump(self, microseconds: int) -> None:
        """Set the time of day, to a later one by so much, while no time passes."""
        self._microseconds += microseconds
