"""Writes: applies batches to the tables of one store, each as one commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from ....schemas.errors import StoreError
from ....schemas.rows.write import CommitMode, WriteCommand, WriteResult
from ....schemas.table.names import check_same
from ...commit.commit_log import CommitLog
from ...commit.memory_gate import MemoryGate, patiently
from ...commit.numbered_writes import Answered, NumberedWrites, Ticket, number_of
from ...options import StoreOptions
from ..checked_batch import check_size, in_one_batch
from ..direct_load import DirectLoad
from ..pending_write import PendingWrite, RepeatedWrite
from ..table import Table
from .row_commit import RowWrite
from .row_writes import PendingRows, RowWrites
from .rows_plan import ROWS_MAX

Pending = PendingWrite | PendingRows | RepeatedWrite
Begun = TypeVar("Begun")

_WRITES_AHEAD = 16
"""Batches of one ``write_all`` that are applied while the first of them becomes durable. In a bucket that takes as long
as to apply five batches of 10,000 rows, and as many may be on their way."""
_BYTES_AHEAD = 32 << 20
"""The most bytes of them; one batch may exceed it."""


class Writes:
    """The writes to the tables of one store, by the batch lane or the plan lane. For what the methods do, see
    ``schemas.service.StoreService``. Thread safe."""

    def __init__(
        self,
        table: Callable[[str], Table],
        log: CommitLog,
        writers: NumberedWrites,
        gate: MemoryGate,
        direct_load: DirectLoad,
        check_moment: Callable[[int | str, Table, str], object],
        notify: Callable[[], None],
        options: StoreOptions,
    ) -> None:
        """``table`` finds a table by name; ``check_moment`` raises when a table's history does not reach back to a
        timestamp; ``notify`` wakes maintenance."""
        self._table = table
        self._log = log
        self._writers = writers
        self._gate = gate
        self.direct_load = direct_load
        self._check_moment = check_moment
        self._notify = notify
        self._options = options
        self._rows = RowWrites(log, gate, lambda size: self.direct_load.may_take(size), notify, options)

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService."""
        return self._begin_patiently(command, batch, seq).result()

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """See RowWriter."""
        table = self._named(command)
        done = self._once(table, command, 1, seq, lambda ticket: self._rows.write(table, command, row, ticket))
        return done.result() if isinstance(done, RepeatedWrite) else done

    def write_rows(self, command: WriteCommand, rows: Sequence[Mapping[str, Any]]) -> WriteResult | None:
        """See RowWriter."""
        if not 1 < len(rows) <= ROWS_MAX:
            return None
        pending = self._rows.begin_rows(self._named(command), command, rows)
        return None if pending is None else pending.result()

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> Pending | None:
        """See RowWriter."""
        table = self._named(command)
        return self._once(table, command, 1, seq, lambda ticket: self._rows.begin(table, command, row, ticket))

    def planned_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None) -> RowWrite | None:
        """See RowPlanner."""
        if (writer := command.writer) is None or seq is None:
            return None
        table = self._named(command)
        return self._rows.planned(table, command, row, Ticket(self._writers, number_of(table.table_id, writer, seq)))

    def write_each(self, rows: Sequence[RowWrite]) -> list[WriteResult | StoreError | None]:
        """See RowGatherer."""
        with self._writers.beginning([row.ticket.number for row in rows if row.ticket]) as are_new:
            answers = iter(self._rows.write_each([row for row, is_new in zip(rows, are_new, strict=True) if is_new]))
            return [next(answers) if is_new else None for is_new in are_new]

    def begin(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> Pending:
        """See StoreService."""
        table = self._named(command)
        return self._once(
            table, command, batch.num_rows, seq, lambda ticket: self._begun(table, command, batch, ticket)
        )

    def _named(self, command: WriteCommand) -> Table:
        """Return the table of a command. Raises NotFoundError, and ConflictError if another one is meant."""
        table = self._table(command.table)
        check_same(table.name, table.table_id, command.table_id)
        return table

    def _once(
        self,
        table: Table,
        command: WriteCommand,
        rows: int,
        seq: int | None,
        begin: Callable[[Ticket | None], Begun],
    ) -> Begun | RepeatedWrite:
        """Return what ``begin`` begins, or the earlier write if there is one with this number."""
        if command.writer is None or seq is None:
            return begin(None)
        found = self._writers.once(number_of(table.table_id, command.writer, seq), begin)
        if not isinstance(found, Answered):
            return found
        found.check(rows)
        return RepeatedWrite(found, self._log, command.durability or self._options.durability)

    def _begin_patiently(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> Pending:
        """Begin a write for a caller in this process, which has no client to retry when memory is full."""
        patience = self._options.memory_patience_seconds if self._gate.is_relieved() else 0
        return patiently(lambda: self.begin(command, batch, seq), patience)

    def _begun(
        self, table: Table, command: WriteCommand, batch: pa.RecordBatch, ticket: Ticket | None
    ) -> PendingWrite | PendingRows:
        if 0 < batch.num_rows <= ROWS_MAX and (rows := self._rows.begin_batch(table, command, batch, ticket)):
            return rows
        size = batch.nbytes
        check_size(size, batch.num_rows, self._options.limits)
        if command.if_timestamp is not None:
            self._check_moment(command.if_timestamp, table, "if_timestamp")
        durability = command.durability or self._options.durability
        limits, options = self._options.limits, self._options
        with self._gate.admitted(size, table.tablets):
            pending = table.begin_write(command, batch, self._log, limits, durability, ticket, self.direct_load)
        if any(
            tablet.version.active.nbytes >= options.flush_bytes or tablet.version.attached for tablet in pending.tablets
        ):
            self._notify()
        return pending

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        if command.commit is CommitMode.STREAM:
            batches = in_one_batch(batches, self._options.limits)
        pending: deque[Pending] = deque()
        sizes: deque[int] = deque()
        try:
            for batch in batches:
                pending.append(self._begin_patiently(command, batch))
                sizes.append(batch.nbytes)
                while len(pending) > _WRITES_AHEAD or (len(pending) > 1 and sum(sizes) > _BYTES_AHEAD):
                    sizes.popleft()
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except Exception:
            # A batch was rejected. Earlier batches are already applied: finish them before raising.
            while pending:
                with suppress(StoreError):
                    pending.popleft().result()
            raise
