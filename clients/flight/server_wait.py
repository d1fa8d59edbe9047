"""ServerWait: whether, and when, to send something once more after a server could not take it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...schemas.errors import UnavailableError

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2, 3.2, 3.2)
"""Seconds between looks for a server that is gone: about what one needs to start again."""
_RESENDS = 2
"""How often the same batches go out again though the server is there."""
_PATIENCE_SECONDS = 60.0
"""How long a server that names the time to come again is believed, without one batch getting through."""


class ServerWait:
    """The patience with one server, for one request or stream of them. For one thread."""

    def __init__(
        self, is_back: Callable[[], bool], retries: bool, server: str = "the server", patient: bool = True
    ) -> None:
        """``is_back`` tells whether the server takes such requests, and raises UnavailableError while it cannot be
        reached; ``server`` names it in errors.

        Without ``retries`` nothing is waited for; without ``patient`` a server that names the time to come again, but
        not one that is gone.
        """
        self._is_back = is_back
        self._retries = retries
        self._server = server
        self._patient = patient
        self.reset()

    def reset(self) -> None:
        """Be as patient as at first: something got through."""
        self._resends = 0
        self._told_seconds = 0.0
        self._began: float | None = None

    def wait(self, error: UnavailableError) -> None:
        """Return when it makes sense to send again what met ``error``, else raise it.

        Raises:
            UnavailableError: the time is over; the text names the server and how long it was waited for.
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
                raise error  # it is there, and its own words say why it does not take this
        waited = time.monotonic() - self._began
        raise UnavailableError(
            f"gave up on {self._server} after {waited:.1f} s: {error.message}", error.retry_after_seconds
        ) from error
