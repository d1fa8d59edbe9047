"""Snapshots of a store that another process writes, and whose log this one follows.

Nothing commits here. What was applied up to the *safe* timestamp of a slot is all that any holder has committed up to
it, or ever will: so each snapshot up to there shows what it shows everywhere, and none after it is one yet.
"""

from __future__ import annotations

from ...schemas.errors import UnavailableError
from .. import threads
from .clock import Clock
from .mvcc import MvccManager


class ReplicatedMvcc(MvccManager):
    """Snapshots of a store that another process writes, and whose log this one follows. Thread safe."""

    def __init__(self, clock: Clock, patience_seconds: float) -> None:
        """Nobody waits longer than ``patience_seconds`` for a snapshot that the log has not reached."""
        super().__init__(clock)
        self._patience_seconds = patience_seconds
        self._safe = self._readable_up_to = 0
        self.looked = float("-inf")
        """All of the log is applied that there was then, in seconds since the machine started."""
        self._advanced = threads.Condition()

    def advance(self, safe: int, readable: int = 0, looked: float = float("-inf")) -> None:
        """Let snapshots up to ``safe`` be read: all commits up to it are applied. Whoever names one may read up to
        ``readable``: all commits up to it are applied that were acknowledged before the log was looked at, which was
        at ``looked``."""
        with self._advanced:
            self._safe = max(self._safe, safe)
            self._readable_up_to = max(self._readable_up_to, readable, safe)
            self.looked = max(self.looked, looked)
            self._advanced.notify_all()

    def snapshot(self) -> int:
        """Return the newest snapshot that can be read here. It is not "now"."""
        return self._safe

    @property
    def readable(self) -> int:
        """The newest timestamp that can be read at."""
        return self._readable_up_to

    def wait_for(self, timestamp: int, timeout: float | None = None) -> None:
        """Return when ``timestamp`` can be read here. Raises UnavailableError if that takes too long."""
        seconds = self._patience_seconds if timeout is None else timeout
        with self._advanced:
            if not self._advanced.wait_for(lambda: self._readable_up_to >= timestamp, seconds):
                raise UnavailableError(
                    f"timestamp {timestamp} is later than what this replica has read of the log: try again later, or "
                    "ask the process that has the store"
                )
