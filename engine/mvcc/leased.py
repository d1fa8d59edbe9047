"""Snapshots of a store that another process may take over without this one knowing yet.

Nobody needs to fear for writes: the log refuses those of a former holder. A *lease* guards what no log can, answers
about the newest state. While it holds, nobody else has committed anything: what is visible here is all there is. The
past needs no lease, since it does not change: whoever has the store commits only above the *safe* timestamp of its log,
and above every *ceiling*. So a snapshot up to the ceiling shows the same rows under every later holder.
"""

from __future__ import annotations

from typing import Protocol

from ...schemas.errors import UnavailableError
from .clock import Clock
from .mvcc import MvccManager


class Tenure(Protocol):
    """The timestamps up to which a process may speak for a store. Thread safe."""

    @property
    def safe(self) -> int:
        """All commits up to this timestamp are in the log, and nobody makes another one there."""
        ...

    @property
    def ceiling(self) -> int:
        """No later holder commits up to this timestamp, which is never below ``safe``."""
        ...

    def check(self) -> None:
        """Raise UnavailableError unless the lease holds."""
        ...

    def reach(self, timestamp: int) -> None:
        """Have the ceiling raised above ``timestamp``. Raises UnavailableError if the log does not answer."""
        ...


class LeasedMvcc(MvccManager):
    """Snapshots of a store that another process may take over. ``clock`` gives out nothing above the ceiling. Nobody
    waits longer than ``patience_seconds`` for commits that are in flight: the log may be out of reach."""

    def __init__(self, clock: Clock, tenure: Tenure, patience_seconds: float) -> None:
        super().__init__(clock)
        self._tenure = tenure
        self._patience_seconds = patience_seconds

    def snapshot(self) -> int:
        """Do as MvccManager says. Raises UnavailableError if another process may have newer commits."""
        self._tenure.check()
        return super().snapshot()

    def newest(self) -> int:
        return super().snapshot()

    def wait_for(self, timestamp: int, timeout: float | None = None) -> None:
        """Do as MvccManager says. Raises UnavailableError, too, if somebody else may commit up to ``timestamp``: the
        log is asked first to rule that out, for one who follows another server's clock."""
        if timestamp > self._tenure.safe:
            self._tenure.check()
            if timestamp > self._tenure.ceiling:
                self._tenure.reach(timestamp)
            if timestamp > self._tenure.ceiling:
                raise UnavailableError(f"timestamp {timestamp} is later than the log allows now: try again", 0.5)
        super().wait_for(timestamp, self._patience_seconds if timeout is None else timeout)

    def check_now(self) -> None:
        self._tenure.check()
