"""Silence: for how long nothing has been heard of where the log is kept, and who gives up for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..mvcc.clock import elapsed_seconds
from .sink import Sink


class Silence:
    """For how long nothing was heard of the place of one log, and who gives up for that. Times are as
    ``elapsed_seconds`` counts. Thread safe."""

    def __init__(self, sink: Sink[Any], patience_seconds: float | None) -> None:
        """``patience_seconds``: nobody gives up before; None: nobody does."""
        self._sink = sink
        self._patience_seconds = patience_seconds
        self._hurried_at: float | None = None
        self.answered_at = 0.0
        """When a group was synced last."""

    def hurry(self) -> None:
        """Note that from now on also those give up who are patient."""
        self._hurried_at = self._hurried_at or elapsed_seconds()

    def lasts(self, since: float) -> bool:
        """Whether nothing was heard for so long that whoever waits since then gives up."""
        heard_at = max(since, self.answered_at, self._sink.heard_at)
        return self._patience_seconds is not None and elapsed_seconds() - heard_at > self._patience_seconds

    def lasts_in_haste(self, since: float) -> bool:
        """Whether that is so for who is patient, too."""
        return self._hurried_at is not None and self.lasts(max(since, self._hurried_at))

    def check(self, since: float, otherwise: Callable[[], Exception]) -> None:
        """Raise what ``otherwise`` returns if whoever waits since then gives up."""
        if self.lasts(since):
            raise otherwise()
