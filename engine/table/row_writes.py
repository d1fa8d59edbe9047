"""RowWrites: writes of one row without an Arrow array: beside the general way, and with the same meaning.

A row goes from Python values to a record in the log and into the memory stores by its plan (`row_plan`). What is not
plain is left to the general way before anything has happened: values of other types, rows that are refused or ignored,
keys that only a search finds, tablets that are moving, memory that is nearly full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...schemas.write import Durability, WriteCommand, WriteResult
from ..commit.commit_log import CommitLog
from ..commit.memory_gate import MemoryGate
from ..commit.numbered_writes import Ticket
from ..options import StoreOptions
from ..tablet.tablet import Tablet
from .row_commit import RowWrite, applied, commit_rows
from .row_plan import RowPlan, plan_of
from .row_queue import RowQueue
from .table import Table

_ROWS_BETWEEN_LOOKS = 64
"""The memory of a tablet is measured after so many new rows."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingRow:
    """A row that is written and not acknowledged. It becomes visible whether or not ``result`` is called."""

    row: RowWrite
    log: CommitLog
    durability: Durability

    def result(self) -> WriteResult:
        """Return the answer once the row is durable and visible. Raises as ``PendingWrite.result``."""
        self.log.acknowledge(self.row, self.durability)
        return applied(self.row.timestamp, self.durability)


class RowWrites:
    """Writes single rows to the tables of one store, each as one commit. Thread safe."""

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
        """Write one row, as Python values by column; None, with nothing done, if the general way has to.

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

    def begin(
        self, table: Table, command: WriteCommand, row: Mapping[str, Any], ticket: Ticket | None = None
    ) -> PendingRow | None:
        """Apply one row, as Python values by column; None, with nothing done, if the general way has to.

        Raises:
            StorageFullError, UnavailableError: nothing was applied.
        """
        plan = plan_of(table.version, command.op, tuple(row))
        return None if plan is None else self._begin(table, command, plan, row, ticket)

    def begin_batch(
        self, table: Table, command: WriteCommand, batch: pa.RecordBatch, ticket: Ticket | None
    ) -> PendingRow | None:
        """Apply a batch of one row; else like ``begin``."""
        plan = plan_of(table.version, command.op, tuple(batch.schema.names))
        row = plan and plan.row_of(batch)
        return self._begin(table, command, plan, row, ticket) if plan and row else None

    def _begin(
        self, table: Table, command: WriteCommand, plan: RowPlan, row: Mapping[str, Any], ticket: Ticket | None
    ) -> PendingRow | None:
        write = self._planned(table, command, plan, row, ticket)
        durability = command.durability or self._durability
        if write is not None:
            self._commit(write, durability)
        return PendingRow(write, self._log, durability) if write and write.timestamp else None

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
        """Return a row that may be written by its plan, with room in memory; None if the general way has to judge."""
        planned = None if command.if_timestamp is not None else plan.planned(row, self._limits)
        if planned is None or self._may_load(planned.size_bytes) or not self._gate.admits_at_once(planned.size_bytes):
            return None
        if (quota := plan.version.quota) and not quota.admits_at_once(planned.size_bytes):
            return None
        return RowWrite(table, plan, planned, ticket)

    def _look_at(self, tablet: Tablet, before: int) -> None:
        """Wake maintenance if a tablet may be full; its MemRowSet had so many rows ``before`` the last were written."""
        version = tablet.version
        is_due = len(version.active) // _ROWS_BETWEEN_LOOKS != before // _ROWS_BETWEEN_LOOKS
        if version.attached or (is_due and version.active.nbytes >= self._flush_bytes):
            self._notify()
