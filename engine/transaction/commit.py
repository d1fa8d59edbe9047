"""Commit a transaction: its staged parts, of all tables and tablets, in one log record at one timestamp, or nothing.

1. The staged rows are read, checked and divided by tablet (`plan`), without a lock. Large amounts of new rows are
   written to disk as rowsets (`loader`); other rows stay in memory.
2. Under the write locks of all tablets, the outcome of each row is decided. If any is refused, the commit stops.
3. One log record holds the changes, the attached rowsets and the transaction's name; it is applied.
4. When the record is durable, the staged files are removed. A crash before that leaves files of a transaction that is
   remembered as committed; they are removed when it is sent again, or when they expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from ...schemas.protocol.request import check_meant
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedBatch, StagedShape, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import Durability, WriteCommand
from ...schemas.table.names import check_same
from ..commit.commit_authors import ANY_TABLE, TRANSACTION, origin_of
from ..commit.commit_log import Commit, CommitLog
from ..commit.memory_gate import MemoryGate, patiently
from ..commit.transaction_memory import CommittedTransaction, CommittedVersion, TransactionMemory, note_of
from ..options import StoreOptions
from ..record.change import ChangeKind
from ..table.direct_load import DirectLoad
from ..table.quota import within
from ..table.table import Table
from ..table.table_version import write_locks
from ..table.tablet_change import tablet_changes
from ..table.write_result import cut_cells
from ..tablet import outcome
from ..tablet.attach import attach
from ..tablet.tablet_change import TabletChange, check_new_rows
from .collapse import Collapse
from .plan import Plan, TabletWork, TableWork
from .stage import stage
from .staging.area import StagedPart, StagingArea
from .tablet_part import TabletPart
from .tablet_versions import TabletVersions, keep_version, note_of_version
from .truncation import deletes

_ATTEMPTS = 8
"""An alteration, or another writer with the same new keys, spoils an attempt."""


@dataclass(slots=True)
class _Outcome:
    """The outcome of all rows, decided under the locks."""

    changes: list[TabletChange]
    applied: int = 0
    ignored: int = 0
    stale: int = 0
    truncated: int = 0
    cells_truncated: int = 0
    replaced: int = 0
    """Applied upserts that met a row with their key, where a tablet gets nothing else."""


class Transactions:
    """Stages, commits and aborts the transactions of a store. Thread safe."""

    def __init__(
        self,
        area: StagingArea,
        transaction_memory: TransactionMemory,
        tablet_versions: TabletVersions,
        log: CommitLog,
        gate: MemoryGate,
        direct_load: DirectLoad,
        options: StoreOptions,
        table: Callable[[str], Table],
        tables: Callable[[], list[Table]],
        pool: Executor,
        check_moment: Callable[[int | str, Table, str], object],
        notify: Callable[[], None],
    ) -> None:
        """``table`` finds a table by name; ``check_moment`` raises when a table's history does not reach back to a
        moment; ``notify`` wakes maintenance."""
        self._check_moment = check_moment
        self._table = table
        self._notify = notify
        self._area = area
        self._transaction_memory = transaction_memory
        self._tablet_versions = tablet_versions
        self._log = log
        self._gate = gate
        self._direct_load = direct_load
        self._options = options
        self._tables = tables
        self._pool = pool
        self._most = min(options.transaction_bytes, options.memory_bytes // 2)

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """Stage a part; see ``StoreService.stage``. Raises as ``stage.stage``, and ConflictError if its table is
        another than the command means."""
        self._area.expire()
        return stage(self._area, self._named(command), command, batches, self._options.limits)

    def commit(self, commit: TransactionCommit) -> TransactionResult:
        """Commit a transaction; see ``StoreService.commit_transaction``.

        Raises:
            InvalidArgumentError: the request is invalid, a part does not fit its table, or it is too large.
            NotFoundError: a part or table is missing.
            ConflictError: concurrent writers or alterations kept conflicting, or a name in ``truncate`` is not that of
                the table in ``table_ids``.
            SnapshotTooOldError: history does not reach back to ``if_timestamp``.
            StorageFullError, UnavailableError: nothing was applied.
        """
        result = self._once(commit)
        self._notify()
        return result

    def _once(self, asked: TransactionCommit) -> TransactionResult:
        if (asked.app_id is None) != (asked.app_version is None):
            raise InvalidArgumentError("app_id and app_version must be given together")
        if asked.if_timestamp is not None and asked.truncate:
            raise InvalidArgumentError("if_timestamp and truncate exclude each other: a truncation deletes every row")
        with self._transaction_memory.alone(asked.transaction, asked.app_id):
            if (known := self._known(asked)) is None:
                return self._commit(asked)
            self._log.settled(known.timestamp)  # it is remembered once it is logged, perhaps before it is durable
            self._area.forget(asked.transaction)
            return known

    def abort(self, transaction: str) -> None:
        """Discard the staged parts. Raises ConflictError while a part is being staged or committed."""
        self._area.drop(transaction)

    def _named(self, command: WriteCommand) -> Table:
        """Return the table of a command. Raises NotFoundError, and ConflictError if another one is meant."""
        table = self._table(command.table)
        if command.stage is not None:
            check_same(table.name, table.table_id, command.stage.table_id)
        return table

    def staged_parts(self, transaction: str) -> list[StagedShape]:
        """See ``StoreService.staged_parts``. Raises CorruptionError, UnreadableFileError: a part cannot be read."""
        names = {table.table_id: table.name for table in self._tables() if table.dropped_until is None}
        return [
            StagedShape(
                part=part.info.part, table=names.get(part.info.table_id, ""), operation=operation, columns=columns
            )
            for part in self._area.parts(transaction)
            for operation, *columns in sorted(part.shapes())
        ]

    def _known(self, asked: TransactionCommit) -> TransactionResult | None:
        """Return the answer if the transaction was committed before, or its application has a newer version."""
        if known := self._transaction_memory.transaction(asked.transaction):
            return known.result
        version = self._transaction_memory.version(asked.app_id) if asked.app_id is not None else None
        if version and asked.app_version is not None and version.app_version >= asked.app_version:
            return TransactionResult(timestamp=version.timestamp, rows=0, applied=0, skipped=True)
        return None

    def _commit(self, asked: TransactionCommit) -> TransactionResult:
        if len(set(asked.parts)) < len(asked.parts):
            raise InvalidArgumentError("the list parts names a part twice: its rows would be applied twice")
        with self._area.taken(asked.transaction, asked.parts) as parts:
            result = self._apply(asked, parts)
        if not result.error_count:
            self._area.forget(asked.transaction)
        return result

    def _apply(self, asked: TransactionCommit, parts: Sequence[StagedPart]) -> TransactionResult:
        for _ in range(_ATTEMPTS):
            works = self._works(asked, parts)
            threads = self._options.load_threads
            limits, now = self._options.limits, self._now(works)
            plan = Plan(works, limits, now, self._direct_load, self._most, self._pool, threads)
            try:
                if result := self._settle(asked, plan):
                    return result
                if plan.refusals.count:
                    return self._refused(asked, plan)
            finally:
                plan.close()
        raise ConflictError("concurrent writers or alterations kept conflicting; nothing was applied: commit again")

    def _works(self, asked: TransactionCommit, parts: Sequence[StagedPart]) -> list[TableWork]:
        """Return the tables of the transaction, with their parts in order."""
        tables = [table for table in self._tables() if table.dropped_until is None]
        by_id, by_name = {table.table_id: table for table in tables}, {table.name: table for table in tables}
        works: dict[int, TableWork] = {}
        for name in asked.truncate:
            if name not in by_name:
                raise NotFoundError(f"there is no table {name!r} to truncate")
            table = by_name[name]
            check_same(name, table.table_id, (asked.table_ids or {}).get(name))
            check_meant(name, table.table_id)
            works[table.table_id] = TableWork(table, table.version, True)
        for part in parts:
            table = by_id.get(part.info.table_id)
            if table is None:
                raise NotFoundError(f"the table of part {part.info.part!r} was dropped")
            works.setdefault(table.table_id, TableWork(table, table.version, False)).parts.append(part)
        for table_id, work in works.items():
            work.complete = self._tablet_versions.having(asked, table_id, work.version.tablets)
        if asked.if_timestamp is not None:
            for work in works.values():
                self._check_moment(asked.if_timestamp, work.table, "if_timestamp")
        return list(works.values())

    def _now(self, works: Sequence[TableWork]) -> int:
        return self._log.now(*(work.version.schema for work in works))

    def _settle(self, asked: TransactionCommit, plan: Plan) -> TransactionResult | None:
        """Decide, log and apply under the locks; None if rows are refused, or the plan is outdated."""
        patience = self._options.memory_patience_seconds if self._gate.is_relieved() else 0
        with patiently(lambda: self._gate.let_in(plan.held_bytes, plan.tablets), patience), write_locks(plan.tablets):
            if not all(work.is_current for work in plan.works):
                return None
            if any(work.table.dropped_until is not None for work in plan.works):
                raise NotFoundError("a table of the transaction was dropped")
            if not all(each.loader.are_still_new() for each in _all(plan) if each.loader):
                return None
            moment = None if asked.if_timestamp is None else parse_moment(asked.if_timestamp, "if_timestamp")
            decided = _decide(plan, self._now(plan.works) if moment is None else moment, moment)
            if plan.refusals.count:
                return None
            commit, done = self._logged(asked, plan, decided)
        self._log.acknowledge(commit, Durability.FSYNC)
        result = done.model_copy(update={"timestamp": commit.timestamp}).result
        return result.model_copy(update={"skipped": True}) if plan.is_done else result

    def _logged(self, asked: TransactionCommit, plan: Plan, decided: _Outcome) -> tuple[Commit, CommittedTransaction]:
        """Log and apply the outcome, under the locks."""
        done = CommittedTransaction(
            transaction=asked.transaction,
            rows=plan.rows,
            applied=decided.applied,
            ignored=decided.ignored,
            stale=decided.stale,
            truncated=decided.truncated,
            cells_truncated=decided.cells_truncated,
            replaced=decided.replaced,
        )
        version = None
        if asked.app_id is not None and asked.app_version is not None:
            version = CommittedVersion(app_id=asked.app_id, app_version=asked.app_version)
        tickets = [
            ticket
            for work in plan.works
            for ticket in self._tablet_versions.tickets(
                asked, work.table.table_id, (each.tablet for each in work.tablets.values())
            )
        ]
        notes = [note_of(done, version), *map(note_of_version, tickets)]
        attachments = [one.attachment for one in plan.staged]
        changes = [each.change for each in decided.changes]
        origin = origin_of(TRANSACTION, plan.works[0].table.table_id if len(plan.works) == 1 else ANY_TABLE)
        with (
            _within_quotas(plan, decided),
            self._transaction_memory.logging() as keep,
            self._log.commit(changes, notes, Durability.FSYNC, attachments, origin) as commit,
        ):
            attach(plan.staged, commit.timestamp, commit.lsn)
            for each in decided.changes:
                each.tablet.apply(each.change, each.locations, commit.timestamp, commit.lsn)
            for work in plan.works:
                if any(each.tablet.last_lsn == commit.lsn for each in work.tablets.values()):
                    work.table.changed(commit.timestamp)
                    work.table.auto_increment.follow(work.last_brought)
            for ticket in tickets:
                keep_version(ticket, commit)
            stamp = {"timestamp": commit.timestamp}
            keep(done.model_copy(update=stamp), version and version.model_copy(update=stamp), commit.lsn)
        return commit, done

    def _refused(self, asked: TransactionCommit, plan: Plan) -> TransactionResult:
        places = {part: place for place, part in enumerate(asked.parts)}
        return TransactionResult(
            timestamp=self._log.settle(),
            rows=plan.rows,
            applied=0,
            error_count=plan.refusals.count,
            errors=sorted(plan.refusals.errors, key=lambda error: (places[error.part], error.row)),
        )


@contextmanager
def _within_quotas(plan: Plan, decided: _Outcome) -> Iterator[None]:
    """Admit all changes to their tables, in ascending id to prevent deadlock.

    Raises:
        StorageFullError: a quota is exceeded.
        InvalidArgumentError: they are too many new rows for one commit.
    """
    check_new_rows(decided.changes)
    with ExitStack() as held:
        for work in sorted(plan.works, key=lambda work: work.table.table_id):
            if quota := work.version.quota:
                changes = [each for each in decided.changes if each.tablet.tablet_id in work.tablets]
                staged = [one for each in work.tablets.values() for one in each.staged]
                held.enter_context(within(quota, work.table.name, changes, staged))
        yield


def _all(plan: Plan) -> list[TabletWork]:
    return [each for work in plan.works for each in work.tablets.values()]


def _decide(plan: Plan, now: int, unchanged_since: int | None) -> _Outcome:
    """Decide all rows at the moment ``now``; those that changed after the timestamp ``unchanged_since`` are refused."""
    loaders = [each.loader for each in _all(plan) if each.loader]
    decided = _Outcome(
        [],
        applied=sum(loader.rows for loader in loaders),
        cells_truncated=sum(loader.truncated for loader in loaders),
    )
    for work in plan.works:
        for each in work.tablets.values():
            _decide_tablet(plan, work, each, decided, now, unchanged_since)
    return decided


def _decide_tablet(
    plan: Plan, work: TableWork, each: TabletWork, decided: _Outcome, now: int, unchanged_since: int | None
) -> None:
    applied, changes = decided.applied, len(decided.changes)

    def count(piece: TabletPart, one: outcome.Outcome) -> None:
        status = one.status
        decided.applied += int(np.count_nonzero(status == outcome.APPLIED))
        decided.ignored += int(np.count_nonzero(status == outcome.IGNORED))
        decided.stale += int(np.count_nonzero(status == outcome.STALE))
        decided.cells_truncated += cut_cells(piece.cuts, status)
        plan.refusals.add_failed(piece, work.version, work.table, status, one.reasons)

    ordered = [*each.single, *each.repeated] if work.truncated else each.repeated
    for piece in () if work.truncated else each.single:
        one = each.tablet.decide(
            piece.operation,
            piece.keys,
            piece.hashes,
            piece.first,
            piece.shape,
            now,
            unchanged_since,
            False,
            work.version.order_of(piece.rows),
        )
        if piece.computing:
            one = piece.computing.resolved(piece.rows, piece.first, one, each.tablet.newest_of)
        decided.changes += tablet_changes(work.version, each.tablet, piece.rows, one)
        count(piece, one)
    revived = np.empty(0, np.int64)
    if ordered:
        net = Collapse(work.version, each.tablet, ordered, work.truncated, now, unchanged_since)
        for piece, one in zip(ordered, net.outcomes(), strict=True):
            count(piece, one)
        decided.changes += net.changes()
        revived = net.revived()
    if all(piece.operation.base is Operation.UPSERT for piece in (*each.single, *each.repeated)):
        new = (each.change for each in decided.changes[changes:] if each.change.kind is ChangeKind.STORE)
        decided.replaced += decided.applied - applied - sum(change.rows.num_rows for change in new)
    if work.truncated:
        gone = list(deletes(each.tablet, revived, now))
        decided.changes += gone
        decided.truncated += sum(change.change.rows.num_rows for change in gone) + len(revived)
