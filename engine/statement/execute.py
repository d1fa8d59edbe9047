"""Executes statements. Each is one commit, of rows computed from the state just before it.

1. The rows to write are computed at a snapshot, while others read and write.
2. Rows that others changed meanwhile are computed again, at a later snapshot, until few are left.
3. Under the write locks of all of the table's tablets, the rest is computed, decided, logged and applied.

So a statement sees every commit before its own, and none is lost between its reading and its writing. Other writers
wait only for step 3, which takes as long as looking up the statement's keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import ConflictError
from ...schemas.protocol.request import check_columns_meant, hurried
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.changes import ChangeSpec
from ...schemas.rows.operation import Operation
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.statement import Statement, StatementKind, with_key
from ...schemas.rows.write import Durability, WriteResult, combine
from ...schemas.table.names import check_same
from ..commit.commit_authors import Origin, origin_of
from ..commit.commit_log import Commit, CommitLog
from ..commit.memory_gate import MemoryGate, patiently
from ..commit.numbered_writes import NumberedWrites, Ticket, number_of
from ..options import StoreOptions
from ..scan.plan.snapshots import Snapshots
from ..table.quota import within
from ..table.routed_batch import RoutedBatch, route
from ..table.table import Table, changes_of, has_errors, status_of
from ..table.table_version import TableVersion, write_locks
from ..table.write_result import answer
from ..tablet.outcome import Outcome
from .rows import StatementRows, key_ids
from .work import ScanRows, Work, work_of

_ATTEMPTS = 8
"""An alteration spoils an attempt."""
_ROUNDS = 4
"""The most repetitions of step 2."""
_FEW_ROWS = 1_000
"""The most changed rows to compute under the locks."""
_OPERATIONS = {
    StatementKind.UPDATE: "update_where",
    StatementKind.DELETE: "delete_where",
    StatementKind.RESTORE: "restore",
}
"""What ``commits`` calls them."""


@dataclass(slots=True)
class _Gathered:
    """The rows to write, computed at ``moment``."""

    rows: StatementRows
    moment: int


class Statements:
    """Executes the statements of a store. Thread safe."""

    def __init__(
        self,
        table: Callable[[str], Table],
        log: CommitLog,
        snapshots: Snapshots,
        gate: MemoryGate,
        writers: NumberedWrites,
        options: StoreOptions,
        scan: Callable[[Table, ScanSpec], ScanStream],
        notify: Callable[[], None],
    ) -> None:
        """``table`` finds a table by name, once for each statement; ``notify`` wakes maintenance."""
        self._table = table
        self._notify = notify
        self._log = log
        self._snapshots = snapshots
        self._gate = gate
        self._writers = writers
        self._options = options
        self._scan = scan

    def execute(self, statement: Statement) -> WriteResult:
        """See ``StoreService.execute``.

        Raises:
            InvalidArgumentError: it is invalid, or changes too much for one commit.
            SnapshotTooOldError: a restore to before the history that the table keeps.
            ConflictError: alterations of the table kept conflicting, or it has another name by now, or is not the one
                that is meant.
            StorageFullError, UnavailableError: nothing was applied.
        """
        table = self._table(statement.table)
        check_same(statement.table, table.table_id, statement.table_id)
        result = self._once(table, statement)
        self._notify()
        return result

    def _once(self, table: Table, statement: Statement) -> WriteResult:
        if (moment := statement.checked().as_of) is not None:
            self._snapshots.checked(moment, table, "as_of")
        durability = statement.durability or self._options.durability
        if statement.writer is None or statement.seq is None:
            return self._execute(table, statement, durability, None)
        number = number_of(table.table_id, statement.writer, statement.seq)
        found = self._writers.once(number, lambda ticket: self._execute(table, statement, durability, ticket))
        if isinstance(found, WriteResult):
            return found
        self._log.acknowledge(Commit(found.timestamp, found.lsn), durability)
        return found.result(durability)

    def _execute(
        self, table: Table, statement: Statement, durability: Durability, ticket: Ticket | None
    ) -> WriteResult:
        scan = self._scan_of(table, statement)
        for _ in range(_ATTEMPTS):
            version = table.version
            _check_named(table, statement)
            check_columns_meant(table.name, version.schema.columns)
            moment = self._snapshots.now(0)
            work = work_of(statement, version, scan, self._options.limits, moment)
            oldest = moment if statement.as_of is None else min(moment, parse_moment(statement.as_of))
            with self._snapshots.holding(table, oldest):  # the statement may run longer than the table's history
                gathered = self._gather(statement, work, version, scan, moment)
                if result := self._settle(table, statement, work, version, scan, gathered, durability, ticket):
                    return result
        raise ConflictError(f"table {table.name!r} keeps being altered; nothing was applied: try again")

    def _scan_of(self, table: Table, statement: Statement) -> ScanRows:
        """Return what scans the table itself. A look-up of its name could find another one."""

        def scan(spec: ScanSpec) -> ScanStream:
            _check_named(table, statement)
            return self._scan(table, spec)

        return scan

    def _gather(
        self, statement: Statement, work: Work, version: TableVersion, scan: ScanRows, moment: int
    ) -> _Gathered:
        gathered = _Gathered(StatementRows(version, self._options.limits.batch_bytes), moment)
        for operation, rows in work.at(gathered.moment):
            gathered.rows.add(operation, rows)
        for _ in range(_ROUNDS):
            if self._catch_up(statement, work, version, scan, gathered, self._snapshots.now(0)) < _FEW_ROWS:
                break
        return gathered

    def _catch_up(
        self,
        statement: Statement,
        work: Work,
        version: TableVersion,
        scan: ScanRows,
        gathered: _Gathered,
        moment: int,
    ) -> int:
        """Compute again the rows that commits up to ``moment`` changed; return their number."""
        since, gathered.moment = gathered.moment, moment
        if moment == since:
            return 0
        feed = ChangeSpec(since=since, until=moment)
        key = [column.name for column in version.schema.key]
        spec = ScanSpec(table=statement.table, columns=key, changes=feed, here=statement.here)
        changed = pa.Table.from_batches(list(scan(spec).batches), spec.batch_schema(version.schema.arrow))
        if not changed.num_rows:
            return 0
        (keys,) = changed.select(key).combine_chunks().to_batches()
        gathered.rows.take_out(key_ids(keys, version))
        for operation, rows in work.again(since, moment, keys):
            gathered.rows.add(operation, rows)
        return keys.num_rows

    def _settle(
        self,
        table: Table,
        statement: Statement,
        work: Work,
        version: TableVersion,
        scan: ScanRows,
        gathered: _Gathered,
        durability: Durability,
        ticket: Ticket | None,
    ) -> WriteResult | None:
        """Decide, log and apply under the locks; None if the table was altered."""
        patience = self._options.memory_patience_seconds if self._gate.is_relieved() else 0
        mine = [tablet for tablet in version.tablets if tablet.elsewhere is None]
        let_in = patiently(lambda: self._gate.let_in(gathered.rows.size_bytes, mine), patience)
        with let_in, hurried(), write_locks(mine):
            _check_named(table, statement)
            if table.version is not version:
                return None
            self._catch_up(statement, work, version, scan, gathered, self._log.settle())
            origin = origin_of(_OPERATIONS[statement.kind], table.table_id, ticket)
            is_ordered = statement.kind is not StatementKind.RESTORE  # which brings back what is older
            commit, said = self._applied(table, version, gathered, durability, ticket, origin, is_ordered)
        if commit is None:
            return said.model_copy(update={"timestamp": self._log.settle()})
        self._log.acknowledge(commit, durability)
        return said.model_copy(update={"timestamp": commit.timestamp})

    def _applied(
        self,
        table: Table,
        version: TableVersion,
        gathered: _Gathered,
        durability: Durability,
        ticket: Ticket | None,
        origin: Origin,
        is_ordered: bool,
    ) -> tuple[Commit | None, WriteResult]:
        """Decide, log and apply, under the locks; if a row is refused, nothing is applied."""
        limits, ids, now = self._options.limits, table.auto_increment, gathered.moment
        written_at = now if is_ordered else None  # what is restored brings the moment of its last write
        works = [
            _PartialWork.of(route(version, batch, operation, limits, ids, written_at), operation, now, is_ordered)
            for operation, batch in gathered.rows.whole()
        ]
        refused = any(has_errors(each.routed.checked, each.status) for each in works)
        said = _united([each.answer(durability, refused) for each in works], durability)
        changes = [] if refused else [change for each in works for change in changes_of(each.routed, each.decided)]
        if not changes and ticket is None:
            return None, said
        notes = [ticket.note(said)] if ticket else []
        with (
            within(version.quota, table.name, changes),
            self._log.commit(
                [each.change for each in changes], notes, durability, origin=origin if changes else None
            ) as commit,
        ):
            for each in changes:
                each.tablet.apply(each.change, each.locations, commit.timestamp, commit.lsn)
            if changes:
                table.changed(commit.timestamp, [part.hashes for each in works for part in each.routed.parts])
                table.auto_increment.learn(each.change for each in changes)
            if ticket:
                ticket.keep(said, commit.lsn, commit.timestamp)
        return commit, said


@dataclass(frozen=True, slots=True, eq=False)
class _PartialWork:
    """The rows of one operation and one set of columns, and their outcome."""

    routed: RoutedBatch
    decided: list[Outcome]
    status: np.ndarray

    @classmethod
    def of(cls, routed: RoutedBatch, operation: Operation, now: int, is_ordered: bool) -> _PartialWork:
        version = routed.version
        decided = [
            part.tablet.decide(
                operation,
                part.keys,
                part.hashes,
                part.first,
                routed.shape,
                now,
                order=version.order_of(part.rows) if is_ordered else None,
            )
            for part in routed.parts
        ]
        return cls(routed, decided, status_of(routed, decided))

    def answer(self, durability: Durability, refused: bool) -> WriteResult:
        """Return the answer. Users do not know a row's position, so each error names its key."""
        routed, schema = self.routed, self.routed.version.schema
        said = answer(routed.batch, schema, routed.checked, self.status, 0, durability, refused)
        errors = [
            error.model_copy(update={"message": with_key(error.message, self._key(error.row))}) for error in said.errors
        ]
        return said.model_copy(update={"errors": errors})

    def _key(self, row: int) -> str:
        cells = (f"{key.name}={self.routed.batch.column(key.name)[row]}" for key in self.routed.version.schema.key)
        return f"({', '.join(cells)})"


def _check_named(table: Table, statement: Statement) -> None:
    """Check that a table still has the name by which the statement found it. It may have lost it during an alteration
    or a recall. Then the statement must not go on: another table may have the name, and its grants and its numbered
    writes are others. The result holds under the write lock of one tablet.

    Raises:
        NotFoundError: the table was dropped.
        ConflictError: it was renamed.
    """
    table.check_in_use()
    if table.name != statement.table:
        raise ConflictError(
            f"table {statement.table!r} was renamed to {table.name!r} meanwhile; nothing was applied: try again"
        )


def _united(answers: list[WriteResult], durability: Durability) -> WriteResult:
    return combine(answers) if answers else WriteResult(timestamp=0, rows=0, applied=0, durability=durability)
