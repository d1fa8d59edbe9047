"""Silence: for how long nothing has been heard of where the log is kept, and what ends by that."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ..mvcc.clock import elapsed_seconds
from .sink import LogLostError, Sink


class OnSilence(Enum):
    """What becomes of a wait for the log when nothing was heard of that for long."""

    ENDS = "ends"
    """It ends, and its outcome is not known yet."""
    FAILS = "fails"
    """The log fails, if it is one that does: the thread may not go on without the outcome, and others wait for its
    locks."""
    LASTS = "lasts"
    """It goes on until somebody closes the log."""


class Silence:
    """For how long nothing was heard of the place of one log, and what ends by that. Times are as ``elapsed_seconds``
    counts. Thread safe."""

    def __init__(self, sink: Sink[Any], patience_seconds: float | None, failing_seconds: float | None) -> None:
        """``patience_seconds``: no wait ends before; None: none does. ``failing_seconds``: the log does not fail for a
        wait before; None: it never does."""
        self._sink = sink
        self._patience_seconds, self._failing_seconds = patience_seconds, failing_seconds
        self._hurried_at: float | None = None
        self.answered_at = 0.0
        """When a group was synced last."""

    def hurry(self) -> None:
        """Note that from now on the log fails for every wait, after ``patience_seconds``."""
        self._hurried_at = self._hurried_at or elapsed_seconds()

    def check(self, since: float, otherwise: Callable[[], Exception]) -> None:
        """Raise what ``otherwise`` returns if a wait that lasts since then, and ``ENDS``, is over."""
        if self._lasts(since, self._patience_seconds):
            raise otherwise()

    def failure(self, since: float, on_silence: OnSilence) -> LogLostError | None:
        """Return the error by which the log fails for a wait that lasts since then; None: it does not."""
        if self._hurried_at is not None and self._lasts(max(since, self._hurried_at), self._patience_seconds):
            return LogLostError("the log was closed while it did not answer; it is unknown which changes it has")
        if on_silence is OnSilence.FAILS and self._lasts(since, self._failing_seconds):
            return LogLostError(
                f"the log did not answer for {self._failing_seconds:g} s while requests waited: this process leaves "
                "the store; whether the change was applied is unknown until a process has the store again"
            )
        return None

    def _lasts(self, since: float, seconds: float | None) -> bool:
        """Whether nothing was heard for so many seconds, which begin then at the earliest."""
        heard_at = max(since, self.answered_at, self._sink.heard_at)
        return seconds is not None and elapsed_seconds() - heard_at > seconds
