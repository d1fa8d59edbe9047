"""RowWrites: writes of one row without an Arrow array: beside the batch lane, and with the same meaning.

A row goes from Python values to a record in the log and into the memory stores by its plan (`row_plan`). What is not
plain is left to the batch lane before anything has happened: values of other types, rows that are refused or ignored,
keys that only a search finds, tablets that are moving, memory that is nearly full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....schemas.errors import StoreError
from ....schemas.protocol.request import check_columns_meant
from ....schemas.rows.write import Durability, WriteCommand, WriteResult
from ...commit.commit_authors import origin_of
from ...commit.commit_log import Commit, CommitLog
from ...commit.memory_gate import MemoryGate
from ...commit.numbered_writes import Ticket
from ...options import StoreOptions
from ...tablet.tablet import Tablet
from ...vectors.vector import Vector
from ..table import Table
from .row_commit import RowWrite, applied, commit_rows
from .row_plan import RowPlan, plan_of
from .row_queue import RowQueue
from .rows_commit import commit_together
from .rows_plan import RowsPlan, rows_plan_of

_ROWS_BETWEEN_LOOKS = 64
"""The memory of a tablet is measured after so many new rows."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingRows:
    """Rows that the plan lane has written, not acknowledged yet. They become visible whether or not ``result`` is
    called."""

    commit: Commit | RowWrite
    log: CommitLog
    durability: Durability
    row_count: int = 1

    def result(self) -> WriteResult:
        """Return the answer once the rows are durable and visible. Raises as ``PendingWrite.result``."""
        self.log.acknowledge(self.commit, self.durability)
        return applied(self.commit.timestamp, self.durability, self.row_count)


class RowWrites:
    """Writes single rows to the tables of one store by their plans, each as one commit. Thread safe."""

    def __init__(
        self,
        log: CommitLog,
        gate: MemoryGate,
        may_load: Callable[[int], bool],
        notify: Callable[[], None],
        options: StoreOptions,
    ) -> None:
        """``may_load`` says whether rows of so many bytes may be loaded directly; ``notify`` wakes maintenance."""
        self._log = log
        self._gate = gate
        self._may_load = may_load
        self._notify = notify
        self._durability = options.durability
        self._limits = options.limits
        self._flush_bytes = options.flush_bytes
        self._queue = RowQueue(log, self._look_at)

    def write(
        self, table: Table, command: WriteCommand, row: Mapping[str, Any], ticket: Ticket | None = None
    ) -> WriteResult | None:
        """Write one row, as Python values by column; None, with nothing done, if the batch lane has to.

        Raises:
            StorageFullError: nothing was applied.
            UnavailableError: nothing was applied, or the log failed; then it is known after a restart.
        """
        plan = plan_of(table.version, command.op, tuple(row))
        write = None if plan is None else self._planned(table, command, plan, row, ticket)
        if write is None:
            return None
        durability = command.durability or self._durability
        if durability is Durability.FSYNC and (ticket or self._log.is_crowded):
            self._queue.write(write)
        if not (write.timestamp or write.is_general):
            self._commit(write, durability)
            if write.timestamp:
                self._log.acknowledge(write, durability)
        return applied(write.timestamp, durability) if write.timestamp else None

    def planned(
        self, table: Table, command: WriteCommand, row: Mapping[str, Any], ticket: Ticket | None
    ) -> RowWrite | None:
        """Return a row for ``write_each``, as Python values by column; None if it has to be written in another way."""
        if (command.durability or self._durability) is not Durability.FSYNC:
            return None
        plan = plan_of(table.version, command.op, tuple(row))
        return None if plan is None else self._planned(table, command, plan, row, ticket)

    def write_each(self, rows: Sequence[RowWrite]) -> list[WriteResult | StoreError | None]:
        """Write planned rows, each as a commit of its own, with one sync; return the answer to each, or its error.
        None: nothing was done, and it has to be written in another way."""
        self._queue.write_each(rows)
        return [row.error or (applied(row.timestamp, Durability.FSYNC) if row.timestamp else None) for row in rows]

    def begin(
        self, table: Table, command: WriteCommand, row: Mapping[str, Any], ticket: Ticket | None = None
    ) -> PendingRows | None:
        """Apply one row, as Python values by column; None, with nothing done, if the batch lane has to.

        Raises:
            StorageFullError, UnavailableError: nothing was applied.
        """
        plan = plan_of(table.version, command.op, tuple(row))
        return None if plan is None else self._begin(table, command, plan, row, ticket)

    def begin_batch(
        self, table: Table, command: WriteCommand, batch: pa.RecordBatch, ticket: Ticket | None
    ) -> PendingRows | None:
        """Apply a batch of a few rows; else like ``begin``."""
        names = tuple(batch.schema.names)
        if batch.num_rows > 1:
            several = rows_plan_of(table.version, command.op, names)
            return several and self._begin_rows(table, command, several, several.of_batch(batch), ticket)
        plan = plan_of(table.version, command.op, names)
        row = plan and plan.row_of(batch)
        return self._begin(table, command, plan, row, ticket) if plan and row else None

    def begin_rows(self, table: Table, command: WriteCommand, rows: Sequence[Mapping[str, Any]]) -> PendingRows | None:
        """Apply two or more rows, as Python values by column, as one commit; else like ``begin``."""
        plan = rows_plan_of(table.version, command.op, tuple(rows[0]))
        return plan and self._begin_rows(table, command, plan, plan.of_rows(rows), None)

    def _begin_rows(
        self, table: Table, command: WriteCommand, plan: RowsPlan, columns: list[Vector] | None, ticket: Ticket | None
    ) -> PendingRows | None:
        check_columns_meant(table.name, plan.plan.version.schema.columns)
        if columns is None or _asks_more(command):
            return None
        planned = plan.planned(columns, self._limits)
        if planned is None or not self._has_room(plan.plan, planned.size_bytes, planned.row_count):
            return None
        durability = command.durability or self._durability
        before = [len(part.tablet.version.active) for part in planned.parts]
        commit = commit_together(table, plan.plan, planned, self._log, durability, ticket)
        if commit is None:
            return None
        for part, rows in zip(planned.parts, before, strict=True):
            self._look_at(part.tablet, rows)
        return PendingRows(commit, self._log, durability, planned.row_count)

    def _begin(
        self, table: Table, command: WriteCommand, plan: RowPlan, row: Mapping[str, Any], ticket: Ticket | None
    ) -> PendingRows | None:
        write = self._planned(table, command, plan, row, ticket)
        durability = command.durability or self._durability
        if write is not None:
            self._commit(write, durability)
        return PendingRows(write, self._log, durability) if write and write.timestamp else None

    def _commit(self, write: RowWrite, durability: Durability) -> None:
        """Settle a row in this thread, which may wait."""
        tablet = write.planned.tablet
        before = len(tablet.version.active)
        with tablet.write_lock:
            commit_rows([write], self._log, durability, may_wait=True)
        if write.timestamp:
            self._look_at(tablet, before)

    def _planned(
        self, table: Table, command: WriteCommand, plan: RowPlan, row: Mapping[str, Any], ticket: Ticket | None
    ) -> RowWrite | None:
        """Return a row that may be written by its plan, with room in memory; None if the batch lane has to judge."""
        check_columns_meant(table.name, plan.version.schema.columns)
        planned = None if _asks_more(command) else plan.planned(row, self._limits)
        if planned is None or not self._has_room(plan, planned.size_bytes, 1):
            return None
        return RowWrite(table, plan, planned, ticket, origin_of(plan.operation, table.table_id, ticket))

    def _has_room(self, plan: RowPlan, size_bytes: int, rows: int) -> bool:
        """Whether rows of so many bytes go to memory, and nothing need be measured or counted for them."""
        if self._may_load(size_bytes) or not self._gate.admits_at_once(size_bytes):
            return False
        return plan.version.quota is None or plan.version.quota.admits_at_once(size_bytes, rows)

    def _look_at(self, tablet: Tablet, before: int) -> None:
        """Wake maintenance if a tablet may be full; its MemRowSet had so many rows ``before`` the last were written."""
        version = tablet.version
        is_due = len(version.active) // _ROWS_BETWEEN_LOOKS != before // _ROWS_BETWEEN_LOOKS
        if version.attached or (is_due and version.active.nbytes >= self._flush_bytes):
            self._notify()


def _asks_more(command: WriteCommand) -> bool:
    """Whether a command asks for what only the batch lane does."""
    return command.if_timestamp is not None or command.count_replaced or command.rules is not None
