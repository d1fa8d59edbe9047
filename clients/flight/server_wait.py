"""ServerWait: decides whether and when to retry after a server could not take a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import uniform
from typing import Protocol

from ...schemas.errors import StoreError, UnavailableError

FOLLOW_SECONDS = 15.0
"""How long to look for the process that has a store, where several can: longer than another needs to take it over."""
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2, 3.2, 3.2)
"""Seconds between checks of a server that is down: in total about as long as a restart takes."""
_FOLLOW_PAUSE_MAX = 0.5
"""The longest pause where another process may have the store any moment."""
_RESENDS = 2
"""How often the same batches are resent to a running server."""
_PATIENCE_SECONDS = 60.0
"""How long to follow a server's retry times while no batch gets through."""


class RefusedError(UnavailableError):
    """A client finds no server for its store: nobody says that it has it, and a given process does not say it for a
    reason that waiting may not mend: ``refusal``. That is the error where nobody else is found."""

    def __init__(self, message: str, locations: Sequence[str] | None, refusal: StoreError) -> None:
        super().__init__(message, locations=locations)
        self.refusal = refusal


class Follower(Protocol):
    """A client's connection that follows the store to the one of several processes that has it."""

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known that could have the store."""
        ...

    def follow(self) -> None:
        """Go to the process that has the store. Raises UnavailableError: nobody says so."""
        ...


class ServerWait:
    """Decides how long a Flight client waits for one server that is down, for one request or stream. For one thread."""

    def __init__(
        self,
        is_back: Callable[[], bool],
        retries: bool,
        server: str = "the server",
        patient: bool = True,
        follower: Follower | None = None,
    ) -> None:
        """``is_back`` returns whether the server takes such requests, and raises UnavailableError while it cannot be
        reached; ``server`` names it in errors.

        Without ``retries``, never wait; without ``patient``, follow a server's retry times but do not wait for one that
        is down. With a ``follower`` of several locations, look for the process that has the store among them.
        """
        self._is_back = is_back
        self._retries = retries
        self._server = server
        self._patient = patient
        self._follower = follower
        self.reset()

    def reset(self) -> None:
        """Start over with full patience, after something got through."""
        self._resends = 0
        self._is_unknown = False
        """Whether an answer was lost, so that a server may have carried the request out."""
        self._told_seconds = 0.0
        self._began = time.monotonic()
        self._waited_seconds = 0.0
        self._found_at = self._look_until = float("-inf")
        self._pause = 0.0

    def wait(self, error: UnavailableError) -> None:
        """Return when a retry after ``error`` makes sense, else raise it.

        Raises:
            UnavailableError: waited long enough; the message names the server and the time.
        """
        self._began = time.monotonic() - self._waited_seconds
        self._is_unknown |= error.answer_is_lost
        self._wait(error)
        self._waited_seconds = time.monotonic() - self._began

    def _wait(self, error: UnavailableError) -> None:
        is_refusal = error.locations is not None  # by a process that does not have the store: nothing was applied
        follower = self._follower
        if follower is not None and follower.is_alone and not is_refusal:
            follower = None
        if follower is not None and not (self._retries and self._patient):
            self._look_once(follower, error, is_refusal)
            return
        if not self._retries:
            raise error
        if error.retry_after_seconds and not is_refusal and self._told_seconds < _PATIENCE_SECONDS:
            self._told_seconds += error.retry_after_seconds
            time.sleep(error.retry_after_seconds)
            return
        if follower is not None:
            self._look(follower, error, is_refusal)
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
        raise self._gave_up(error) from error

    def _look_once(self, follower: Follower, error: UnavailableError, is_refusal: bool) -> None:
        """Go to the process that has the store, if one has it now; return if a retry makes sense."""
        self._resends += 1
        if self._resends > 1:
            raise error
        try:
            follower.follow()
        except RefusedError as refused:
            raise refused.refusal from None
        except UnavailableError as away:
            raise self._ended(f"{error.message}; {away.message}", away) from None
        if not (is_refusal or self._retries):  # it may have been applied: only the next request goes there
            raise error

    def _look(self, follower: Follower, error: UnavailableError, is_refusal: bool) -> None:
        """Look for the process that has the store, until it is found. Who has just refused, since it has it no longer,
        may say for a moment that it has it."""
        now = time.monotonic()
        if now > self._found_at + FOLLOW_SECONDS:  # what was found then lasted: this is another outage, or the first
            self._began, self._look_until, self._pause = now, now + FOLLOW_SECONDS, 0.0
        while (left := self._look_until - time.monotonic()) > 0:
            time.sleep(min(self._pause * uniform(0.5, 1.0), left))  # clients that lost a process at once ask in turn
            self._pause = min(2 * self._pause or _PAUSES[0], _FOLLOW_PAUSE_MAX)
            try:
                follower.follow()
                is_back = self._is_back()
            except UnavailableError as away:
                error = away
                continue
            if is_back:
                self._found_at = time.monotonic()
                return
            if not is_refusal:
                raise error
        raise self._gave_up(error) from error

    def _gave_up(self, error: UnavailableError) -> StoreError:
        if isinstance(error, RefusedError):
            return error.refusal
        waited = time.monotonic() - self._began
        return self._ended(f"gave up on {self._server} after {waited:.1f} s: {error.message}", error)

    def _ended(self, message: str, last: UnavailableError) -> UnavailableError:
        """Return the error of a request after its last one: who has not the store now, or is busy, does not say that
        nothing was applied before."""
        if not self._is_unknown:
            return UnavailableError(message, last.retry_after_seconds, last.locations)
        ended = UnavailableError(message)
        ended.answer_is_lost = True
        return ended
