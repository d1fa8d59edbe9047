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
from ..commit.commit_log import Commit, CommitLog
from ..commit.memory_gate import MemoryGate
from ..commit.numbered_writes import Ticket
from ..options import StoreOptions
from ..record.change import pack_record
from ..tablet.row_write import RowPlace, apply_row, find_row
from ..tablet.tablet import Tablet
from .row_plan import PlannedRow, RowPlan, plan_of
from .table import Table

_ROWS_BETWEEN_LOOKS = 64
"""The memory of a tablet is measured after so many new rows."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingRow:
    """A row that is written and not acknowledged. It becomes visible whether or not ``result`` is called."""

    commit: Commit
    log: CommitLog
    durability: Durability

    def result(self) -> WriteResult:
        """Return the answer once the row is durable and visible. Raises as ``PendingWrite.result``."""
        self.log.acknowledge(self.commit, self.durability)
        return _applied(self.commit.timestamp, self.durability)


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
        planned = None if command.if_timestamp is not None else plan.planned(row, self._limits)
        if planned is None or self._may_load(planned.size_bytes):
            return None
        durability = command.durability or self._durability
        tablet = planned.tablet
        if not self._gate.admits_at_once(planned.size_bytes):
            return None
        with tablet.write_lock:
            commit = self._committed(table, plan, planned, durability, ticket)
        if commit is not None and self._may_be_full(tablet):
            self._notify()
        return None if commit is None else PendingRow(commit, self._log, durability)

    def _committed(
        self, table: Table, plan: RowPlan, planned: PlannedRow, durability: Durability, ticket: Ticket | None
    ) -> Commit | None:
        """Decide, log and apply a row, under the write lock."""
        tablet, key, cells, _ = planned
        if table.version is not plan.version or table.dropped_until is not None or not _is_plain(tablet):
            return None
        place = find_row(tablet, key, cells[: len(plan.key_columns.ids)], plan.key_columns)
        written = place and plan.written(place)
        if place is None or written is None or not _fits(tablet, place, plan):
            return None
        change, sources, values = written
        stored = [cells[i] if i >= 0 else default for i, default in sources]
        said = _applied(0, durability) if ticket else None
        record = pack_record([], [ticket.note(said)]) if ticket and said else []

        def apply(commit: Commit) -> None:
            apply_row(tablet, change.kind, place, key, stored, values, commit.timestamp, commit.lsn)
            table.changed(commit.timestamp)
            if ticket and said:
                ticket.keep(said, commit.lsn, commit.timestamp)

        record.append(change.pack(tablet.tablet_id, stored))
        return self._log.commit_one(b"".join(record), durability, apply)

    def _may_be_full(self, tablet: Tablet) -> bool:
        version = tablet.version
        is_due = len(version.active) % _ROWS_BETWEEN_LOOKS == 0
        return bool(version.attached) or (is_due and version.active.nbytes >= self._flush_bytes)


def _is_plain(tablet: Tablet) -> bool:
    """Whether nobody moves the tablet or waits for its new keys."""
    return not tablet.is_watched and (tablet.is_closed is None or not tablet.is_closed())


def _fits(tablet: Tablet, place: RowPlace, plan: RowPlan) -> bool:
    """Whether a new row has the columns of the MemRowSet."""
    return place.rowset is not None or tablet.version.active.physicals == plan.physicals


def _applied(timestamp: int, durability: Durability) -> WriteResult:
    return WriteResult(timestamp=timestamp, rows=1, applied=1, durability=durability)
