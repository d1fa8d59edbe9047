"""WorkCounts: what flushes and compactions have done since a store was opened, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ...schemas.protocol.service import MaintenanceKind
from ...schemas.store.metrics import LONG_SECONDS, Histogram
from ..mvcc.clock import elapsed_seconds


class WorkReport(Protocol):
    """For the environment of tablets: what one flush, compaction or other work on a store's files did."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def bytes_freed(self) -> int: ...


Report = TypeVar("Report", bound=WorkReport)


class WorkCounts:
    """A part of the environment of tablets: what flushes and compactions have done since a store was opened, by kind.
    For the threads that maintain a store. Work that found nothing to do is not counted."""

    def __init__(self) -> None:
        kinds = [kind.value for kind in MaintenanceKind]
        self.seconds = {kind: Histogram(LONG_SECONDS) for kind in kinds}
        self.rows = dict.fromkeys(kinds, 0)
        self.bytes_written = dict.fromkeys(kinds, 0)
        self.bytes_freed = dict.fromkeys(kinds, 0)

    def counted(self, kind: MaintenanceKind, work: Callable[[], Report | None]) -> Report | None:
        """Do a piece of work, count it, and return its report; None if there was nothing to do."""
        began = elapsed_seconds()
        if report := work():
            self.add(kind, elapsed_seconds() - began, [report])
        return report

    def add(self, kind: MaintenanceKind, seconds: float, reports: Iterable[WorkReport]) -> None:
        """Count work that was done together, in so much time."""
        name = kind.value
        self.seconds[name].add(seconds)
        for report in reports:
            self.rows[name] += report.rows
            self.bytes_written[name] += report.bytes_written
            self.bytes_freed[name] += report.bytes_freed
