"""The maintenance of a store's tables: when a memory store is worth flushing, and what is freed then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..schemas.errors import UnavailableError
from .compaction.flush import FlushReport, flush_memrowset
from .compaction.flush_deltas import flush_deltas
from .options import StoreOptions
from .tablet.environment import Environment
from .tablet.tablet import Tablet


def flush(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush all rows of a tablet that are in memory; None when there are none."""
    with _work_on(tablet):
        left_over = flush_memrowset(tablet, environment) if tablet.version.frozen else None
        return _sum(left_over, flush_memrowset(tablet, environment))


def flush_all_deltas(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush all deltas of a tablet's DiskRowSets; None when there are none."""
    with _work_on(tablet):
        is_left_over = any(rowset.deltas.frozen for rowset in tablet.version.disk)
        left_over = flush_deltas(tablet, environment) if is_left_over else None
        return _sum(left_over, flush_deltas(tablet, environment))


@contextmanager
def _work_on(tablet: Tablet) -> Iterator[None]:
    """Work alone on a tablet. Raises UnavailableError when there is to be no more work on it."""
    with tablet.maintenance_lock:
        if tablet.retired:
            raise UnavailableError(tablet.retired)
        yield


def _sum(*parts: FlushReport | None) -> FlushReport | None:
    reports = [part for part in parts if part]
    if not reports:
        return None
    return FlushReport(sum(report.rows for report in reports), sum(report.bytes_written for report in reports))


@dataclass(frozen=True, slots=True)
class FlushOp:
    """Flushes a tablet's MemRowSet once it is large, when writers wait for memory, or when an earlier flush failed."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    pressed: Callable[[], bool]
    done: Callable[[], None]

    @property
    def name(self) -> str:
        return f"flush tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        version = self.tablet.version
        share = version.active.nbytes / self.options.flush_bytes
        if version.frozen:
            return 2.0
        return share if share >= 1 or (self.pressed() and len(version.active)) else 0.0

    def perform(self) -> None:
        flush(self.tablet, self.environment)
        self.done()


@dataclass(frozen=True, slots=True)
class FlushDeltasOp:
    """Flushes a tablet's DeltaMemStores once they are large, or when writers wait for memory."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    pressed: Callable[[], bool]
    done: Callable[[], None]

    @property
    def name(self) -> str:
        return f"flush deltas of tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        held = sum(rowset.deltas.memory_bytes for rowset in self.tablet.version.disk)
        share = held / self.options.flush_deltas_bytes
        return share if share >= 1 or self.pressed() else 0.0

    def perform(self) -> None:
        flush_all_deltas(self.tablet, self.environment)
        self.done()
