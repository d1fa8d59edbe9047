"""The maintenance of a store's tables: what can be done, when it is worth doing, and what is freed then.

One flush or compaction works on a tablet at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..schemas.errors import UnavailableError
from ..schemas.service import MaintenanceKind
from .compaction.delta_compaction import major, minor
from .compaction.flush import FlushReport, flush_memrowset
from .compaction.flush_deltas import flush_deltas
from .compaction.history_gc import gain, gc
from .compaction.merge import compact
from .compaction.policy import Candidate, Pick, pick
from .delta import LIVE
from .options import MIB, StoreOptions
from .rowset.diskrowset import DiskRowSet
from .tablet.environment import Environment
from .tablet.tablet import Tablet


def flush(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush all rows of a tablet that are in memory; None when there are none."""
    with _work_on(tablet, environment):
        left_over = [flush_memrowset(tablet, environment) for _ in tablet.version.frozen]
        return _sum(*left_over, flush_memrowset(tablet, environment))


def flush_all_deltas(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Flush all deltas of a tablet's DiskRowSets; None when there are none. ``mark`` is the ancient history mark."""
    with _work_on(tablet, environment):
        is_left_over = any(rowset.deltas.frozen for rowset in tablet.version.disk)
        left_over = flush_deltas(tablet, environment, mark) if is_left_over else None
        return _sum(left_over, flush_deltas(tablet, environment, mark))


def minor_compact(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Merge the REDO files of every DiskRowSet; None when none has more than one."""
    with _work_on(tablet, environment):
        return _sum(*(minor(tablet, rowset, environment, mark) for rowset in tablet.version.disk))


def major_compact(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Bring the base columns of every DiskRowSet up to its REDO files; None when none has such deltas."""
    with _work_on(tablet, environment):
        return _sum(*(major(tablet, rowset, environment, None, mark) for rowset in tablet.version.disk))


def collect_history(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Drop the files that only snapshots before the mark can see; None when there are none."""
    with _work_on(tablet, environment):
        return gc(tablet, environment, mark)


def compact_all(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Merge all DiskRowSets of a tablet, without what lies before the mark; None when there are none."""
    with _work_on(tablet, environment):
        return compact(tablet, environment, ancient_history_mark=mark)


def perform(kind: MaintenanceKind, tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Do one kind of work on a tablet now; None when there is nothing to do. ``mark`` is the ancient history mark."""
    if kind is MaintenanceKind.FLUSH:
        return flush(tablet, environment)
    work = {
        MaintenanceKind.FLUSH_DELTAS: flush_all_deltas,
        MaintenanceKind.MINOR_COMPACT: minor_compact,
        MaintenanceKind.MAJOR_COMPACT: major_compact,
        MaintenanceKind.GC: collect_history,
        MaintenanceKind.COMPACT: compact_all,
    }
    return work[kind](tablet, environment, mark)


@contextmanager
def _work_on(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Work alone on a tablet. Raises UnavailableError when there is to be no more work on it, or in the store."""
    with tablet.maintenance_lock:
        environment.halt.check()
        if tablet.retired:
            raise UnavailableError(tablet.retired)
        yield


def _sum(*parts: FlushReport | None) -> FlushReport | None:
    reports = [part for part in parts if part]
    if not reports:
        return None
    return FlushReport(
        sum(report.rows for report in reports),
        sum(report.bytes_written for report in reports),
        sum(report.bytes_freed for report in reports),
    )


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
    mark: Callable[[], int]

    @property
    def name(self) -> str:
        return f"flush deltas of tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        held = sum(rowset.deltas.memory_bytes for rowset in self.tablet.version.disk)
        share = held / self.options.flush_deltas_bytes
        return share if share >= 1 or self.pressed() else 0.0

    def perform(self) -> None:
        flush_all_deltas(self.tablet, self.environment, self.mark())
        self.done()


@dataclass(frozen=True, slots=True)
class MinorDeltaCompactionOp:
    """Merges the REDO files of a tablet's DiskRowSets once one of them has many."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    mark: Callable[[], int]

    @property
    def name(self) -> str:
        return f"minor delta compaction of tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        most = max((len(rowset.deltas.stores.redo) for rowset in self.tablet.version.disk), default=0)
        share = most / self.options.redo_files_count
        return share / 2 if share >= 1 else 0.0

    def perform(self) -> None:
        minor_compact(self.tablet, self.environment, self.mark())


@dataclass(frozen=True, slots=True)
class MajorDeltaCompactionOp:
    """Brings base columns up to date in the DiskRowSets where REDO files have grown large beside them."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    mark: Callable[[], int]

    @property
    def name(self) -> str:
        return f"major delta compaction of tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        return min(max(map(self._gain, self.tablet.version.disk), default=0.0), 1.0)

    def perform(self) -> None:
        with _work_on(self.tablet, self.environment):
            for rowset in self.tablet.version.disk:
                if self._gain(rowset):
                    major(self.tablet, rowset, self.environment, None, self.mark())

    def _gain(self, rowset: DiskRowSet) -> float:
        """Return REDO bytes for each byte of the columns' bases; 0 when too few to be worth it."""
        redo = rowset.deltas.stores.redo
        changed = {column_id for file in redo for column_id in file.column_ids} - {LIVE}
        if not changed:
            return 0.0
        base = rowset.base_bytes
        share = sum(file.size_bytes for file in redo) / max(sum(base[column_id] for column_id in changed), 1)
        return share if share >= self.options.redo_share else 0.0


@dataclass(frozen=True, slots=True)
class HistoryGcOp:
    """Drops a tablet's files that only snapshots before its history can see, once they are worth it."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    mark: Callable[[], int]

    @property
    def name(self) -> str:
        return f"history of tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        share = gain(self.tablet, self.mark()) / self.options.history_gc_bytes
        return min(share, 1.0) if share >= 1 else 0.0

    def perform(self) -> None:
        collect_history(self.tablet, self.environment, self.mark())


@dataclass(frozen=True, slots=True)
class CompactOp:
    """Merges the DiskRowSets of a tablet that it gains most from, within a budget of bytes."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    mark: Callable[[], int]

    @property
    def name(self) -> str:
        return f"compact tablet {self.tablet.tablet_id}"

    def score(self) -> float:
        best = self._pick()
        return min(best.gain, _COMPACTION_SCORE) if best else 0.0

    def perform(self) -> None:
        with _work_on(self.tablet, self.environment):
            if best := self._pick():
                compact(self.tablet, self.environment, best.rowset_ids, ancient_history_mark=self.mark())

    def _pick(self) -> Pick | None:
        mark = self.mark()
        candidates = tuple(_candidate(rowset, mark) for rowset in self.tablet.version.disk)
        return pick(candidates, max(self.options.compaction_bytes // MIB, 1))


_COMPACTION_SCORE = 0.9
"""A flush that is due goes first."""


def _candidate(rowset: DiskRowSet, mark: int) -> Candidate:
    files = rowset.deltas.files
    size = rowset.size_bytes + sum(file.size_bytes for file in files)
    # A merge leaves dead rows out only when they died before the mark; those that may not have count for nothing.
    is_ancient = not rowset.deltas.active and all(file.metadata.last_timestamp <= mark for file in files)
    dead_share = rowset.live.dead_count / len(rowset) if is_ancient else 0.0
    return Candidate(rowset.rowset_id, rowset.min_key, rowset.max_key, size, dead_share)
