"""ServerWait: decides whether and when to retry after a server could not take a request."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...schemas.errors import UnavailableError

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2, 3.2, 3.2)
"""Seconds between checks of a server that is down: in total about as long as a restart takes."""
_RESENDS = 2
"""How often the same batches are resent to a running server."""
_PATIENCE_SECONDS = 60.0
"""How long to follow a server's retry times while no batch gets through."""


class ServerWait:
    """Decides how long to wait for one server, for one request or stream. For one thread."""

    def __init__(
        self, is_back: Callable[[], bool], retries: bool, server: str = "the server", patient: bool = True
    ) -> None:
        """``is_back`` returns whether the server takes such requests, and raises UnavailableError while it cannot be
        reached; ``server`` names it in errors.

        Without ``retries``, never wait; without ``patient``, follow a server's retry times but do not wait for one that
        is down.
        """
        self._is_back = is_back
        self._retries = retries
        self._server = server
        self._patient = patient
        self.reset()

    def reset(self) -> None:
        """Start over with full patience, after something got through."""
        self._resends = 0
        self._told_seconds = 0.0
        self._began: float | None = None

    def wait(self, error: UnavailableError) -> None:
        """Return when a retry after ``error`` makes sense, else raise it.

        Raises:
            UnavailableError: waited long enough; the message names the server and the time.
        """
        if not self._retries:
            raise error
        if self._began is None:
            self._began = time.monotonic()
        if error.retry_after_seconds and self._told_seconds < _PATIENCE_SECONDS:
            self._told_seconds += error.retry_after_seconds
            time.sleep(error.retry_after_seconds)
            return
        if not self._patient:
            raise error
        self._resends += 1
        if self._resends <= _RESENDS:
            for pause in _PAUSES:
                time.sleep(pause)
                try:
                    is_back = self._is_back()
                except UnavailableError:
                    continue
                if is_back:
                    return
                raise error  # it runs, and its error says why it does not take this
        waited = time.monotonic() - self._began
        raise UnavailableError(
            f"gave up on {self._server} after {waited:.1f} s: {error.message}", error.retry_after_seconds
        ) from error
