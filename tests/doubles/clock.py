"""A clock whose time of day belongs to the test."""

from __future__ import annotations

from nyala.engine.mvcc.clock import SystemClock


class ManualClock(SystemClock):
    """A time of day that moves only by ``advance``."""

    def __init__(self, microseconds: int = 1_000_000) -> None:
        super().__init__()
        self._microseconds = microseconds

    def physical_microseconds(self) -> int:
        return self._microseconds

    def advance(self, microseconds: int) -> None:
        """Move the time of day; a negative distance is a clock that was set back."""
        self._microseconds += microseconds
