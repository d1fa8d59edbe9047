"""LogListing: lists the log of a store for those who read it, by one request for all whom its answer serves."""

from __future__ import annotations

from collections.abc import Callable

from ...schemas.errors import UnavailableError
from .. import threads


class LogListing:
    """Lists the log of a store for the replicas that read it, by one request for all whom its answer serves. Thread
    safe."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """``seconds`` is the time."""
        self._seconds = seconds
        self._found = float("-inf"), 0
        self._failure: UnavailableError | None = None
        self._failures = 0
        self._one_at_a_time = threads.Lock()

    def since(self, moment: float, list_end: Callable[[], int]) -> tuple[float, int]:
        """Return when a listing was sent, which is at ``moment`` or later, and the newest slot that it shows.
        ``list_end`` returns the number of that slot, or raises UnavailableError.

        A request that fails has failed for all who asked before it ended: else they would wait for a bucket that is
        away one after the other. Whoever asks later sends another one.

        Raises:
            UnavailableError: the bucket does not answer, or shows less of the log than is known.
        """
        failures = self._failures
        with self._one_at_a_time:
            if self._found[0] >= moment:
                return self._found
            if self._failure is not None and self._failures != failures:
                raise UnavailableError(self._failure.message) from self._failure
            sent = self._seconds()
            try:
                self._found = sent, list_end()
            except UnavailableError as error:
                self._failure = error
                self._failures += 1
                raise
            return self._found
