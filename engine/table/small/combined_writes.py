"""Combined writes: several small writes are checked, decided and applied as one batch, each as a commit of its own.

What a write costs is nearly the same for one row and for a hundred. Each keeps its own record in the log, timestamp,
place in the order, answer and number, as if it had come alone. That is possible since no two of them have a key in
common: then no row is decided by a row of another. If they do, or if anything is wrong with the batch, nothing is
applied, and each is left to its own thread, which finds out whose fault it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.errors import InternalError
from ....schemas.limits.limits import Limits
from ....schemas.rows.write import CommitMode, WriteCommand, WriteResult
from ....schemas.table.operation import Operation
from ...commit.commit_log import Commit, CommitLog
from ...record.change import ROW_FORM_MAX, ChangeKind, pack_parts, pack_record
from ...tablet.outcome import Outcome
from ...tablet.tablet_change import TabletChange
from ..checked_batch import CheckedBatch, RowRefusals
from ..pending_write import PendingWrite
from ..quota import within
from ..routed_batch import RoutedBatch, TabletRows, route
from ..table import Table, status_of
from ..table_version import write_locks
from ..tablet_change import tablet_changes
from ..write_queue import QueuedWrite

_BYTES_MAX = 64 << 10
"""Of one write; larger ones gain nothing."""


def may_combine(command: WriteCommand, rows: int, size: int) -> bool:
    """Whether a write of ``size`` bytes is small, and its rows are decided one by one."""
    return (
        0 < rows <= ROW_FORM_MAX
        and not command.atomic
        and command.if_timestamp is None
        and command.commit is CommitMode.BATCH
        and not command.count_replaced
        and size <= _BYTES_MAX
    )


def apply_together(group: list[QueuedWrite], table: Table, log: CommitLog, limits: Limits) -> None:
    """Apply writes to a table as commits of their own, in the order of the list; settle each of them.

    Raises only what interrupts it.
    """
    try:
        if not _is_applied(group, table, log, limits):
            _leave_alone(group)
    except InternalError as error:  # logged and perhaps applied: nobody may try again
        for write in group:
            write.error = InternalError(error.message)
            write.error.__cause__ = error
    except Exception:  # nothing was logged: each finds out by itself whether the error is its own
        _leave_alone(group)
    except BaseException:
        _leave_alone([write for write in group if not write.is_settled])
        raise


def _leave_alone(group: list[QueuedWrite]) -> None:
    for write in group:
        write.is_alone = True


def _is_applied(group: list[QueuedWrite], table: Table, log: CommitLog, limits: Limits) -> bool:
    together = pa.concat_batches([write.batch for write in group])
    starts = np.cumsum([0, *(write.batch.num_rows for write in group)])
    while True:
        routed = route(table.version, together, group[0].command.op, limits, table.auto_increment)
        combined = _Combined(group, routed, starts)
        if combined.shares_a_key():
            return False
        with write_locks([part.tablet for part in routed.parts]):
            table.check_in_use()
            if table.is_current(routed):
                combined.apply(table, log)
                return True


@dataclass(frozen=True, slots=True, eq=False)
class _OwnedChange:
    """A change with rows of several writes."""

    change: TabletChange
    owners: np.ndarray
    """The write of each row, by its place in the group; ascending."""


class _Combined:
    """A group of writes as one batch that was checked and divided by tablet."""

    def __init__(self, group: list[QueuedWrite], routed: RoutedBatch, starts: np.ndarray) -> None:
        """``starts``: the first row of each write in the batch, and the number of all rows."""
        self._group = group
        self._routed = routed
        self._starts = starts
        positions = routed.checked.positions
        self._bounds = starts if positions is None else np.searchsorted(positions, starts)
        """The same among the accepted rows."""

    def shares_a_key(self) -> bool:
        """Whether two writes have a key in common."""
        for part in self._routed.parts:
            owners = self._owners(part, np.arange(len(part.first)))
            if (owners[part.first] != owners).any():
                return True
        return False

    def apply(self, table: Table, log: CommitLog) -> None:
        """Decide, log and apply all writes, under the write locks of their tablets."""
        group, routed = self._group, self._routed
        op, shape = group[0].command.op, routed.shape
        decided = [part.tablet.decide(op, part.keys, part.hashes, part.first, shape) for part in routed.parts]
        status = status_of(routed, decided)
        changes = [
            _OwnedChange(change, self._owners(part, _rows_of(change, one)))
            for part, one in zip(routed.parts, decided, strict=True)
            for change in tablet_changes(routed.version, part.tablet, part.rows, one)
        ]
        pending = [self._pending(number, status, log) for number in range(len(group))]
        said = [one.said() if write.ticket else None for write, one in zip(group, pending, strict=True)]
        records = self._records(changes, said)
        logged = sorted(records)
        if not logged:
            for write, one in zip(group, pending, strict=True):
                write.pending = one
            return
        with (
            within(routed.version.quota, table.name, [each.change for each in changes]),
            log.commit_all(
                [records[number] for number in logged],
                group[0].durability,
                [group[number].origin for number in logged],
            ) as commits,
        ):
            by_number = dict(zip(logged, commits, strict=True))
            self._apply(table, changes, by_number)
            for number, (write, one) in enumerate(zip(group, pending, strict=True)):
                write.pending = one.committed(by_number.get(number))
                if write.ticket and (answered := said[number]):
                    write.ticket.keep(answered, by_number[number].lsn, by_number[number].timestamp)

    def _apply(self, table: Table, changes: Sequence[_OwnedChange], commits: dict[int, Commit]) -> None:
        timestamps = np.zeros(len(self._group), np.int64)
        for number, commit in commits.items():
            timestamps[number] = commit.timestamp
        for each in changes:
            first, last = commits[int(each.owners[0])], commits[int(each.owners[-1])]
            change = each.change
            change.tablet.apply(change.change, change.locations, timestamps[each.owners], first.lsn, last.lsn)
            table.changed(last.timestamp)
        if self._group[0].command.op.base is Operation.UPSERT:
            table.auto_increment.learn(each.change.change for each in changes)

    def _owners(self, part: TabletRows, rows: np.ndarray) -> np.ndarray:
        """Return the write of each of the ``rows`` of a tablet's part."""
        accepted = rows if part.positions is None else part.positions[rows]
        return np.searchsorted(self._bounds, accepted, "right") - 1

    def _records(
        self, changes: Sequence[_OwnedChange], said: Sequence[WriteResult | None]
    ) -> dict[int, list[pa.Buffer | bytes]]:
        """Return the log record of each write that has one, as it would be if it were alone."""
        records: dict[int, list[pa.Buffer | bytes]] = {}
        for number, (write, answered) in enumerate(zip(self._group, said, strict=True)):
            if write.ticket and answered:
                records[number] = pack_record([], [write.ticket.note(answered)])
        for each in changes:
            cuts = [0, *(np.flatnonzero(np.diff(each.owners)) + 1).tolist(), len(each.owners)]
            for first, piece in zip(cuts, pack_parts(each.change.change, cuts), strict=False):
                records.setdefault(int(each.owners[first]), []).append(piece)
        return records

    def _pending(self, number: int, status: np.ndarray, log: CommitLog) -> PendingWrite:
        """Return the pending write of one of the group, without its commit."""
        write, routed = self._group[number], self._routed
        first, last = int(self._bounds[number]), int(self._bounds[number + 1])
        return PendingWrite(
            routed.version.schema,
            write.batch,
            self._checked(number, first, last),
            status[first:last],
            False,
            None,
            log,
            write.durability,
            tuple(part.tablet for part in routed.parts),
        )

    def _checked(self, number: int, first: int, last: int) -> CheckedBatch:
        """Return the accepted rows [first, last), those of one write, and what was refused of it."""
        checked, start, end = self._routed.checked, int(self._starts[number]), int(self._starts[number + 1])
        by_row = None if checked.refusals.by_row is None else checked.refusals.by_row[start:end]
        positions = None if checked.positions is None else checked.positions[first:last] - start
        cuts = None if checked.refusals.cuts is None else checked.refusals.cuts[start:end]
        refusals = RowRefusals(end - start, checked.refusals.reasons, by_row, cuts)
        return CheckedBatch(checked.rows.slice(first, last - first), positions, refusals)


def _rows_of(change: TabletChange, decided: Outcome) -> np.ndarray:
    """Return which rows of a tablet's part a change has."""
    kind = change.change.kind
    if kind is ChangeKind.STORE:
        return decided.stores
    return decided.updates if kind is ChangeKind.UPDATE else decided.deletes
