"""The maintenance of a store's tables: its kinds of work, when each is due, and how to do it.

One flush or compaction works on a tablet at a time; ``together`` flushes many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...schemas.errors import ConflictError, StorageFullError, UnavailableError, sentence_of
from ...schemas.protocol.service import MaintenanceKind
from ...schemas.table.table import TableSchema
from ..compaction.dead_rows import long_dead
from ..compaction.delta_compaction import major, mergeable, minor
from ..compaction.expired_rows import long_expired
from ..compaction.flush import flush_memrowset
from ..compaction.flush_deltas import flush_deltas
from ..compaction.history_gc import gain, gc
from ..compaction.merge import compact
from ..compaction.policy import Candidate, Pick, pick
from ..compaction.report import FlushReport
from ..filter.expiry import Expiry
from ..manifest.environment import Environment
from ..options import MIB, StoreOptions
from ..rowset.diskrowset import DiskRowSet
from ..tablet.attach import name_attached
from ..tablet.tablet import Tablet
from ..vectors.memory.memory import give_back
from .op import URGENT_SCORE, MaintenanceOp, TabletOp


def flush(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Maintain a tablet: flush all of its rows that are in memory; None if there are none."""
    with _noting_failures(tablet, MaintenanceKind.FLUSH), work_on(tablet, environment):
        left_over = left_over_rows(tablet, environment, 0)
        return _sum(*left_over, flush_memrowset(tablet, environment))


def flush_all_deltas(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Maintain a tablet: flush all deltas of its DiskRowSets; None if there are none. ``mark`` is the ancient history
    mark."""
    with _noting_failures(tablet, MaintenanceKind.FLUSH_DELTAS), work_on(tablet, environment):
        left_over = left_over_deltas(tablet, environment, mark)
        return _sum(*left_over, flush_deltas(tablet, environment, mark))


@contextmanager
def _noting_failures(tablet: Tablet, kind: MaintenanceKind) -> Iterator[None]:
    """Note on a tablet whether a flush frees its memory. A full disk is no fault of the tablet."""
    try:
        yield
    except StorageFullError:
        raise
    except Exception as error:
        if not tablet.retired:
            tablet.flush_failures = {**tablet.flush_failures, kind: sentence_of(error)}
        raise
    tablet.flush_failures = {other: why for other, why in tablet.flush_failures.items() if other != kind}


def minor_compact(tablet: Tablet, environment: Environment, mark: int, fan_in: int | None = None) -> FlushReport | None:
    """Maintain a tablet: merge the REDO files, and the UNDO files of about one size, of each DiskRowSet with ``fan_in``
    of them; without ``fan_in``, all of each. None if there is nothing to merge."""
    with _rewriting(tablet, environment):
        return _sum(*[minor(tablet, rowset, environment, mark, fan_in) for rowset in _each(tablet)])


def major_compact(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Maintain a tablet: merge the REDO files of every DiskRowSet into its base columns; None if there are none."""
    with _rewriting(tablet, environment):
        return _sum(*[major(tablet, rowset, environment, None, mark) for rowset in _each(tablet)])


def collect_history(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Maintain a tablet: drop the files that only snapshots before the mark can see; None if there are none."""
    with _rewriting(tablet, environment):
        return gc(tablet, environment, mark)


def compact_all(tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Maintain a tablet: merge all of its DiskRowSets, without history before the mark; None if there are none."""
    with _rewriting(tablet, environment):
        return compact(tablet, environment, ancient_history_mark=mark)


def index_keys(tablet: Tablet, environment: Environment) -> int:
    """Maintain a tablet: put the keys of DiskRowSets into the key index as far as its budget allows; return how many
    were added."""
    with work_on(tablet, environment):
        return tablet.key_lookup.build(tablet.version, tablet.write_lock)


@contextmanager
def flushed(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Flush everything of a tablet and keep all history; while the body runs, no maintenance changes its files."""
    with work_on(tablet, environment):
        left_over_rows(tablet, environment, 0)
        flush_memrowset(tablet, environment)
        left_over_deltas(tablet, environment, 0)
        flush_deltas(tablet, environment)
        yield


def name_rowsets(tablet: Tablet, environment: Environment) -> None:
    """Maintain a tablet: name the rowsets that were attached to it in the manifest."""
    with work_on(tablet, environment):
        pass


def perform(kind: MaintenanceKind, tablet: Tablet, environment: Environment, mark: int) -> FlushReport | None:
    """Do one kind of maintenance on a tablet now; None if there is nothing to do. ``mark`` is the ancient history
    mark."""
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


def left_over_rows(tablet: Tablet, environment: Environment, _mark: int) -> list[FlushReport | None]:
    """Maintain a tablet: flush what an earlier flush or an alteration has set aside; ``_stage_rows`` flushes the newest
    of it."""
    return [flush_memrowset(tablet, environment) for _ in range(memrowsets(tablet) - 1)]


def left_over_deltas(tablet: Tablet, environment: Environment, mark: int) -> list[FlushReport | None]:
    is_left_over = any(rowset.deltas.frozen for rowset in tablet.version.disk)
    return [flush_deltas(tablet, environment, mark)] if is_left_over else []


def memrowsets(tablet: Tablet) -> int:
    return len(tablet.version.frozen) + bool(len(tablet.version.active))


@contextmanager
def work_on(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Do maintenance alone on a tablet in the body; its rowsets are all named in the manifest.

    Raises:
        UnavailableError: the tablet is retired, or the store is read-only.
    """
    with tablet.maintenance_lock:
        environment.latch.check()
        if tablet.retired:
            raise UnavailableError(tablet.retired)
        with at_work(tablet, environment):
            yield


@contextmanager
def _rewriting(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Work alone on a tablet, to rewrite files.

    Raises:
        ConflictError: an outside compaction is merging its files.
        UnavailableError: the tablet is retired, or the store is read-only.
    """
    with work_on(tablet, environment):
        if tablet.handed_out:
            raise ConflictError(
                f"tablet {tablet.tablet_id} is being compacted outside the server by compaction "
                f"{tablet.handed_out!r}: until that ends, the tablet can only be flushed; compaction_abort ends "
                "it"
            )
        yield


@contextmanager
def at_work(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Do maintenance in the body on a tablet whose maintenance lock the caller holds."""
    environment.latch.check()
    name_attached(tablet, environment)
    try:
        yield
    finally:
        _give_back(tablet)


def _give_back(tablet: Tablet) -> None:
    """Return unused memory to the operating system after the work."""
    if sum(rowset.size_bytes for rowset in tablet.version.disk) >= _LARGE_BYTES:
        give_back()


def _each(tablet: Tablet) -> Iterator[DiskRowSet]:
    """Yield the present DiskRowSets, releasing each, so that replaced ones free their files and memory at once."""
    rowsets = list(reversed(tablet.version.disk))
    while rowsets:
        yield rowsets.pop()


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
class TabletUpkeep:
    """Scores the kinds of maintenance of one tablet."""

    tablet: Tablet
    environment: Environment
    options: StoreOptions
    pressed: Callable[[], bool]
    """Whether writers wait for memory."""
    mark: Callable[[], int]
    """The ancient history mark of its table."""
    table: str = ""
    """The table's name."""

    def operations(self, flushed: Callable[[], None]) -> list[MaintenanceOp]:
        """Return all kinds of work on files; ``flushed`` is called after a flush."""
        where, on_files = f"tablet {self.tablet.tablet_id}", (self.tablet, self.environment)

        def flush_rows() -> FlushReport | None:
            report = flush(*on_files)
            flushed()
            return report

        def flush_changes() -> FlushReport | None:
            report = flush_all_deltas(*on_files, self.mark())
            flushed()
            return report

        kinds = MaintenanceKind
        always = [
            TabletOp(f"name attached rowsets of {where}", self.name_score, lambda: name_rowsets(*on_files)),
            TabletOp(f"flush {where}", self.flush_score, flush_rows, kinds.FLUSH),
            TabletOp(f"flush deltas of {where}", self.flush_deltas_score, flush_changes, kinds.FLUSH_DELTAS),
        ]
        if self.tablet.handed_out:
            return list(map(self._giving_way, always))
        count = self.options.redo_files_count
        minor, major = (lambda: minor_compact(*on_files, self.mark(), count)), self.major_compact
        rewriting = [
            TabletOp(f"minor delta compaction of {where}", self.minor_score, minor, kinds.MINOR_COMPACT),
            TabletOp(f"major delta compaction of {where}", self.major_score, major, kinds.MAJOR_COMPACT),
            TabletOp(f"history of {where}", self.history_score, self.collect_history, kinds.GC),
            TabletOp(f"compact {where}", self.compact_score, self.compact, kinds.COMPACT),
        ]
        return list(map(self._giving_way, always + rewriting))

    def _giving_way(self, operation: TabletOp) -> MaintenanceOp:
        """Return work that is counted, and does nothing if the tablet was retired or handed out after it was chosen."""
        work, kind = self.environment.work, operation.kind

        def perform() -> FlushReport | None:
            try:
                return operation.perform() if kind is None else work.counted(kind, operation.perform)
            except (ConflictError, UnavailableError):
                if not (self.tablet.retired or self.tablet.handed_out):
                    raise
            return None

        return replace(operation, perform=perform, table=self.table)

    def index(self) -> MaintenanceOp:
        """Return the work on the key index, which changes no files."""
        work = TabletOp(
            f"index keys of tablet {self.tablet.tablet_id}",
            self.index_score,
            lambda: index_keys(self.tablet, self.environment),
        )
        return self._giving_way(work)

    def index_score(self) -> float:
        """Return more than 0 if the key index lacks DiskRowSets that would fit in; less than a flush that is due."""
        lookup = self.tablet.key_lookup
        return _INDEX_SCORE if not lookup.is_on_demand and lookup.worth_indexing(self.tablet.version) else 0.0

    def name_score(self) -> float:
        """Return more than 0 if rowsets were attached: naming costs nothing, and lets compactions see them."""
        return 1.0 if self.tablet.version.attached else 0.0

    def flush_score(self) -> float:
        """Return more than 0 if the MemRowSet is large, writers wait for memory, or an earlier flush failed."""
        version = self.tablet.version
        size_bytes = version.active.nbytes if len(version.active) else 0  # an empty MemRowSet has pages, too
        share = size_bytes / self.options.flush_bytes
        at_least = _RETRY_SCORE if version.frozen or MaintenanceKind.FLUSH in self.tablet.flush_failures else 0.0
        return max(self._memory_score(held_rows(self.tablet), share), at_least)

    def flush_deltas_score(self) -> float:
        """Return more than 0 if the DeltaMemStores are large, writers wait for memory, or an earlier flush failed."""
        held = held_deltas(self.tablet)
        at_least = _RETRY_SCORE if MaintenanceKind.FLUSH_DELTAS in self.tablet.flush_failures else 0.0
        return max(self._memory_score(held, held / self.options.flush_deltas_bytes), at_least)

    def _memory_score(self, held_bytes: int, share: float) -> float:
        """Return the score of work that frees ``held_bytes``; ``share`` is their share of the due size. When writers
        wait, it precedes all work that frees no memory, the largest first."""
        if held_bytes and self.pressed():
            return URGENT_SCORE + held_bytes / MIB
        return share if share >= 1 else 0.0

    def minor_score(self) -> float:
        """Return more than 0 if a DiskRowSet has many REDO files, or many UNDO files of about one size."""
        stores, count = [rowset.deltas.stores for rowset in self.tablet.version.disk], self.options.redo_files_count
        share = max((max(len(each.redo), len(mergeable(each.undo, count))) for each in stores), default=0) / count
        return share / 2 if share >= 1 else 0.0

    def major_score(self) -> float:
        """Return more than 0 if REDO files have grown large beside the base columns of a DiskRowSet."""
        return min(max(map(self._redo_share, self.tablet.version.disk), default=0.0), 1.0)

    def major_compact(self) -> FlushReport | None:
        """Merge REDO files into base columns where that is due."""
        with _rewriting(self.tablet, self.environment):
            due = (rowset for rowset in _each(self.tablet) if self._redo_share(rowset))
            return _sum(*[major(self.tablet, rowset, self.environment, None, self.mark()) for rowset in due])

    def history_score(self) -> float:
        """Return more than 0 if enough bytes belong to files that only snapshots before the history can see."""
        ancient = gain(self.tablet, self.mark())
        if not ancient:
            return 0.0
        total = sum(rowset.bytes_on_disk for rowset in self.tablet.version.disk)
        share = ancient / min(self.options.history_gc_bytes, total * _HISTORY_SHARE)
        return min(share, 1.0) if share >= 1 else 0.0

    def compact_score(self) -> float:
        """Return the gain of merging the best DiskRowSets; less than a flush that is due."""
        best = self._pick()
        return min(best.gain, _COMPACTION_SCORE) if best else 0.0

    def collect_history(self) -> FlushReport | None:
        """Drop the files that only snapshots before the history can see."""
        return collect_history(self.tablet, self.environment, self.mark())

    def compact(self) -> FlushReport | None:
        """Merge the DiskRowSets with the highest gain, within a budget of bytes."""
        with _rewriting(self.tablet, self.environment):
            if (best := self._pick()) is None:
                return None
            self._flush_many_deltas()
            return compact(self.tablet, self.environment, best.rowset_ids, ancient_history_mark=self.mark())

    def _flush_many_deltas(self) -> None:
        """Flush large DeltaMemStores before a merge: it reads files by pages, but memory stores as a whole."""
        if held_deltas(self.tablet) >= self.options.flush_deltas_bytes // 4:
            flush_deltas(self.tablet, self.environment, self.mark())

    def _redo_share(self, rowset: DiskRowSet) -> float:
        """Return REDO bytes per byte of their columns' bases; 0 if below the limit."""
        redo = rowset.deltas.stores.redo
        changed = {column_id for file in redo for column_id in file.column_ids}.intersection(self.tablet.schema.by_id)
        if not changed:
            return 0.0
        base = rowset.base_bytes
        share = sum(file.size_bytes for file in redo) / max(sum(base.get(column_id, 0) for column_id in changed), 1)
        return share if share >= self.options.redo_share else 0.0

    def _pick(self) -> Pick | None:
        mark = self.mark()
        schema = self.tablet.schema
        candidates = tuple(candidate(rowset, mark, schema) for rowset in self.tablet.version.disk)
        return pick(candidates, max(self.options.compaction_bytes // MIB, 1))


def held_rows(tablet: Tablet) -> int:
    """Return the bytes by which maintenance scores a flush of a tablet's rows: those that they take in memory."""
    return sum(memrowset.nbytes for memrowset in tablet.version.in_memory if len(memrowset))


def held_deltas(tablet: Tablet) -> int:
    """Return the bytes by which maintenance scores a flush of a tablet's deltas: those that they take in memory."""
    return sum(rowset.deltas.memory_bytes for rowset in tablet.version.disk)


_COMPACTION_SCORE = 0.9
_INDEX_SCORE = 0.95
_RETRY_SCORE = 2.0
"""Of a flush that failed: it is due, however little there is to flush."""
_SUPERSEDED_SHARE = 0.15
"""Smaller shares of old bases are not worth a merge: each major delta compaction leaves some."""
_HISTORY_SHARE = 0.1
"""Ancient history with this share of a tablet's bytes is dropped, however few they are."""
_LARGE_BYTES = 32 * MIB
"""Work on a smaller tablet leaves little memory behind."""


def candidate(rowset: DiskRowSet, mark: int, schema: TableSchema) -> Candidate:
    """Return a rowset as maintenance scores it for a merge."""
    size = rowset.bytes_on_disk
    gone = long_dead(rowset, mark) + long_expired(rowset, Expiry.of(schema), mark)
    dead = min(gone / max(len(rowset), 1), 1.0)
    unread = _unread_share(rowset, schema, size)
    return Candidate(rowset.rowset_id, rowset.min_key, rowset.max_key, size, unread + dead * (1 - unread))


def _unread_share(rowset: DiskRowSet, schema: TableSchema, size: int) -> float:
    """Return the share of a rowset's bytes that nobody reads: dropped columns and rewritten bases."""
    superseded = rowset.superseded_bytes(schema.by_id) / size
    dropped = rowset.bytes_beside(schema.by_id) / size if schema.has_dropped else 0.0
    return dropped + (superseded if superseded >= _SUPERSEDED_SHARE else 0.0)
