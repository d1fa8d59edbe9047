"""Rests: background work that failed, and when it may be tried again, so that it holds up no other work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...schemas.errors import (
    ConflictError,
    StorageFullError,
    StoreError,
    UnavailableError,
    UnreadableFileError,
    sentence_of,
)
from ...schemas.store.maintenance import FailingWork
from .op import MaintenanceOp, about

log = logging.getLogger("nyala.maintenance")

_PASSING = (StorageFullError, UnavailableError, ConflictError, MemoryError)
"""What may soon be over, although nobody does anything about the work itself."""
_PASSING_SECONDS = 5.0, 40.0
"""The first rest, and the longest."""
_LASTING_SECONDS = 10.0, 3600.0


@dataclass(frozen=True, slots=True)
class _Rest:
    table: str
    kind: str | None
    seconds: float
    end: float
    """By the clock that ``Rests`` is given."""
    since: float
    """When it failed first, in seconds since 1970."""
    failures: int
    error: str


class Rests:
    """The rests of maintenance that failed. Each failure doubles the rest of the work, up to an hour; up to 40 seconds
    where the cause may soon be over, as on a full disk. Thread safe: each entry is replaced as a whole."""

    def __init__(self, elapsed: Callable[[], float], today: Callable[[], float]) -> None:
        """``elapsed`` counts seconds whatever happens to the clock; ``today`` returns seconds since 1970."""
        self._elapsed = elapsed
        self._today = today
        self._rests: dict[str, _Rest] = {}
        self.failures = 0
        """How often any work failed."""

    def is_over(self, name: str) -> bool:
        """Whether work may be tried."""
        rest = self._rests.get(name)
        return rest is None or rest.end <= self._elapsed()

    @contextmanager
    def after_failure(self, operation: MaintenanceOp) -> Iterator[None]:
        """Let work rest if the body fails; its error is logged and raised."""
        try:
            yield
        except Exception as error:
            rest = self._begin(operation, error)
            what = f"{operation.name} of {rest.table}" if rest.table else operation.name
            if isinstance(error, StoreError):
                log.warning("%s failed; next attempt in %g s: %s", what, rest.seconds, rest.error)
            else:
                log.exception("%s failed; next attempt in %g s", what, rest.seconds)
            raise

    def _begin(self, operation: MaintenanceOp, error: Exception) -> _Rest:
        kind, table = about(operation)
        before = self._rests.get(operation.name)
        may_pass = isinstance(error, _PASSING) and not isinstance(error, UnreadableFileError)
        first, longest = _PASSING_SECONDS if may_pass else _LASTING_SECONDS
        seconds = min(max(2 * before.seconds, first), longest) if before else first
        rest = _Rest(
            table=table,
            kind=kind,
            seconds=seconds,
            end=self._elapsed() + seconds,
            since=before.since if before else self._today(),
            failures=before.failures + 1 if before else 1,
            error=sentence_of(error),
        )
        self._rests[operation.name] = rest
        self.failures += 1
        return rest

    def forget(self, name: str) -> None:
        """Note that work succeeded, or is not due any more."""
        self._rests.pop(name, None)

    def keep(self, names: set[str]) -> None:
        """Forget all work but that of these names: its tablet is gone, or its table is maintained no more."""
        for name in self._rests.keys() - names:
            self.forget(name)

    def end(self, table: str) -> None:
        """Let the work on a table be tried at once: the table is another one now."""
        for name, rest in self._rests.copy().items():
            if rest.table == table:
                self.forget(name)

    def failing(self) -> list[FailingWork]:
        """Return the work that failed when it was last tried, the longest failing first."""
        now, today = self._elapsed(), self._today()
        works = [
            FailingWork(
                name=name,
                op=rest.kind,
                table=rest.table,
                error=rest.error,
                failures=rest.failures,
                since=rest.since,
                next_try=max(today + rest.end - now, today),
            )
            for name, rest in self._rests.copy().items()
        ]
        return sorted(works, key=lambda work: (work.since, work.name))
