"""Flushes of many tablets at once: on request, and while writers wait for memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from ...schemas.errors import StorageFullError, UnavailableError
from ...schemas.protocol.service import MaintenanceKind
from ..compaction.file_transaction import commit_together
from ..compaction.flush import UncommittedFlush, prepare_flush
from ..compaction.flush_deltas import prepare_deltas
from ..compaction.report import FlushReport
from ..fs.together import SyncTogether
from ..manifest.environment import Environment
from ..mvcc.clock import elapsed_seconds
from ..options import MIB, StoreOptions
from ..table.table import Table
from ..tablet.tablet import Tablet
from .op import URGENT_SCORE, MaintenanceOp, TabletOp, followed_by
from .upkeep import TabletUpkeep, at_work, held_deltas, held_rows, left_over_deltas, left_over_rows, memrowsets, perform

_TOGETHER = 256
"""The most tablets in one manifest commit of flushes; and the most bytes in memory of these."""
_TOGETHER_BYTES = 32 * MIB
_SYNCED_TOGETHER = 16
"""The files of fewer tablets are synced one after the other, always in the same order."""


@dataclass(frozen=True, slots=True)
class FlushTogether:
    """Flushes the largest of many small tablets of a table at once, while writers wait for memory.

    A commit of the manifest takes longer the more tablets and files there are: with one for each of a thousand tablets,
    commits would take most of the time.
    """

    tablets: Callable[[], Sequence[Tablet]]
    """The tablets that the table has now."""
    environment: Environment
    pressed: Callable[[], bool]
    """Whether writers wait for memory."""
    mark: Callable[[], int]
    """The ancient history mark of the table."""
    table: str
    """Its name."""

    def operations(self, flushed: Callable[[], None]) -> list[MaintenanceOp]:
        """Return the work on rows and that on deltas; ``flushed`` is called after a flush."""
        kinds = (
            (MaintenanceKind.FLUSH, "flush", held_rows),
            (MaintenanceKind.FLUSH_DELTAS, "flush deltas", held_deltas),
        )
        return [
            TabletOp(
                f"{what} of the largest tablets of {self.table}",
                partial(self._score, kind, held),
                partial(self._flush, kind, held, flushed),
                kind,
                self.table,
            )
            for kind, what, held in kinds
        ]

    def _score(self, kind: MaintenanceKind, held: Callable[[Tablet], int]) -> float:
        """Return the score of work that frees as much memory, if it is that of several tablets."""
        if not self.pressed():
            return 0.0
        largest = self._largest(kind, held)
        return URGENT_SCORE + sum(map(held, largest)) / MIB if len(largest) > 1 else 0.0

    def _flush(self, kind: MaintenanceKind, held: Callable[[Tablet], int], flushed: Callable[[], None]) -> None:
        largest, is_gone = self._largest(kind, held), lambda tablet: tablet not in self.tablets()
        with followed_by(flushed):
            deque(perform_on_all(kind, largest, self.environment, self.mark(), is_gone), maxlen=0)

    def _largest(self, kind: MaintenanceKind, held: Callable[[Tablet], int]) -> list[Tablet]:
        """Return as many as are flushed by one commit, the largest first, without those whose last flush failed."""
        sound = (tablet for tablet in self.tablets() if kind not in tablet.flush_failures)
        found = sorted(((held(tablet), tablet.tablet_id, tablet) for tablet in sound), reverse=True)
        return next(_batches(tablet for held_bytes, _, tablet in found if held_bytes), [])


def perform_on_all(
    kind: MaintenanceKind,
    tablets: Iterable[Tablet],
    environment: Environment,
    mark: int,
    is_gone: Callable[[Tablet], bool],
) -> Iterator[FlushReport]:
    """Do one kind of maintenance on tablets and yield the reports. ``mark`` is the ancient history mark.

    Flushes cover a batch of tablets at a time, with one manifest commit for the batch. Tablets for which ``is_gone`` is
    true by then are skipped.

    Raises:
        StorageFullError: the disk is full; yielded work is done.
        StoreError: the work on a tablet failed; that on all others is done.
    """
    environment.latch.check()
    wanted = (tablet for tablet in tablets if _has_any(kind, tablet))
    failure: Exception | None = None
    for batch in _batches(wanted) if kind in _STAGES else ([tablet] for tablet in wanted):
        done: list[FlushReport] = []
        others = batch
        if len(batch) > 1:
            try:
                done, others = _flush_together(kind, batch, environment, mark)
            except Exception as error:
                failure = unless_all_fail(error, environment)  # one by one they tell which of them it is
        yield from done
        for tablet in others:
            work = partial(_perform_unless_gone, kind, tablet, environment, mark, is_gone)
            try:
                report = environment.work.counted(kind, work)
            except Exception as error:
                failure = unless_all_fail(error, environment)
            else:
                yield from [report] if report else []
    if failure:
        raise failure


def unless_all_fail(error: Exception, environment: Environment) -> Exception:
    """Return the error of maintenance on some tablets; raise it if the others would fail too."""
    if isinstance(error, StorageFullError) or environment.latch.reason:
        raise error
    return error


def _flush_together(
    kind: MaintenanceKind, tablets: Sequence[Tablet], environment: Environment, mark: int
) -> tuple[list[FlushReport], list[Tablet]]:
    """Flush tablets by one manifest commit; return the reports, and the tablets that are left to be flushed one by one:
    those that other work has locked, or whose last flush failed. Locks are tried without waiting, since waiting with
    other locks held could deadlock."""
    left_over, stage = _STAGES[kind]
    left: list[Tablet] = []
    done: list[FlushReport | None] = []
    staged: list[UncommittedFlush] = []
    began = elapsed_seconds()
    with ExitStack() as outermost, ExitStack() as held:
        synced_together = environment
        if len(tablets) >= _SYNCED_TOGETHER:
            synced_together = replace(environment, fs=outermost.enter_context(SyncTogether(environment.fs)))
        for tablet in tablets:
            if kind not in tablet.flush_failures and _began(tablet, environment, held):
                done += left_over(tablet, environment, mark)
                staged += stage(tablet, synced_together, mark, held)
            else:
                left.append(tablet)
        if staged:
            commit_together(synced_together, [each.files for each in staged])
    reports = [report for report in done if report] + [each.report for each in staged]
    if reports:
        environment.work.add(kind, elapsed_seconds() - began, reports)
    return reports, left


def _stage_rows(tablet: Tablet, environment: Environment, _mark: int, held: ExitStack) -> list[UncommittedFlush]:
    staged = prepare_flush(tablet, environment, held)
    return [staged] if staged else []


_STAGES = {
    MaintenanceKind.FLUSH: (left_over_rows, _stage_rows),
    MaintenanceKind.FLUSH_DELTAS: (left_over_deltas, prepare_deltas),
}
"""Kinds of work that are committed for many tablets at a time: first leftovers one by one, then the common commit."""


def _began(tablet: Tablet, environment: Environment, held: ExitStack) -> bool:
    """Begin to work on a tablet until ``held`` closes; return False if it is locked or retired."""
    if not tablet.maintenance_lock.acquire(blocking=False):
        return False
    held.callback(tablet.maintenance_lock.release)
    if tablet.retired:
        return False
    held.enter_context(at_work(tablet, environment))
    return True


def _perform_unless_gone(
    kind: MaintenanceKind, tablet: Tablet, environment: Environment, mark: int, is_gone: Callable[[Tablet], bool]
) -> FlushReport | None:
    try:
        return perform(kind, tablet, environment, mark)
    except UnavailableError:
        if tablet.retired and is_gone(tablet):
            return None
        raise


def _has_any(kind: MaintenanceKind, tablet: Tablet) -> bool:
    """Whether a tablet has what a kind of work handles; the work itself decides whether it is due."""
    version = tablet.version
    if kind is MaintenanceKind.FLUSH:
        return bool(memrowsets(tablet) or version.attached)
    if kind is MaintenanceKind.FLUSH_DELTAS:
        return bool(version.attached) or any(rowset.deltas.first_lsn is not None for rowset in version.disk)
    return bool(version.on_disk)


def _batches(tablets: Iterable[Tablet]) -> Iterator[list[Tablet]]:
    """Yield batches of tablets to flush together, small so that no commit waits long."""
    batch: list[Tablet] = []
    size = 0
    for tablet in tablets:
        batch.append(tablet)
        size += tablet.memory_bytes
        if len(batch) == _TOGETHER or size >= _TOGETHER_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def table_operations(
    table: Table,
    environment: Environment,
    options: StoreOptions,
    is_pressed: Callable[[], bool],
    mark: Callable[[Table], int],
    after_flush: Callable[[], None],
) -> Iterator[MaintenanceOp]:
    """Yield the maintenance of a table: of each of its tablets that are not empty, and of all together. ``mark``
    returns the ancient history mark of a table."""
    of_table = environment, is_pressed, partial(mark, table), table.name
    tablets = [each for each in table.tablets if not each.is_empty]
    for tablet in tablets:
        work = TabletUpkeep(tablet, environment, options, *of_table[1:])
        yield work.index()
        if table.is_maintained:
            yield from work.operations(after_flush)
    if table.is_maintained and len(tablets) > 1:
        yield from FlushTogether(partial(getattr, table, "tablets"), *of_table).operations(after_flush)
