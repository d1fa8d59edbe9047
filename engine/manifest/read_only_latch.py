"""The read-only latch of a store, set when memory no longer fits its files or its log. Only a restart clears it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...schemas.errors import UnavailableError


class ReadOnlyLatch:
    """The latch of a store's manifest and log: whether writes and maintenance may change the store. Reads are always
    possible."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why nothing may change until a restart; None if changes are possible."""

    def stop(self, reason: str) -> None:
        """Forbid changes. The first reason is kept."""
        self.reason = self.reason or f"the store is read-only: {reason}; restart it to recover"

    def check(self) -> None:
        """Raise UnavailableError if changes are forbidden."""
        if self.reason:
            raise UnavailableError(self.reason)

    @contextmanager
    def on_failure(self, what: str) -> Iterator[None]:
        """Forbid changes if the body fails, whatever the error."""
        try:
            yield
        except BaseException as error:
            self.stop(f"{what} ({error!r})")
            raise
