"""The read-only latch of a store, set when memory no longer fits its files or its log. Only a restart clears it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...schemas.errors import UnavailableError


class ReadOnlyLatch:
    """Whether the store may still be changed, by writes or by maintenance. Reads go on in any case."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why nothing may be changed until the store is restarted; None while all is well."""

    def stop(self, reason: str) -> None:
        """Let nothing be changed any more. The first reason stays."""
        self.reason = self.reason or f"the store is read-only: {reason}; restart it to recover"

    def check(self) -> None:
        """Raise UnavailableError when nothing may be changed."""
        if self.reason:
            raise UnavailableError(self.reason)

    @contextmanager
    def on_failure(self, what: str) -> Iterator[None]:
        """Stop the store when the body fails, whatever the error."""
        try:
            yield
        except BaseException as error:
            self.stop(f"{what} ({error!r})")
            raise
