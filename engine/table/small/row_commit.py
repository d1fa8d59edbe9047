"""Commits rows by their plans: decides, logs and applies those of one tablet, each as a commit of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....schemas.errors import InternalError, StoreError
from ....schemas.protocol.request import NotInMemoryError
from ....schemas.rows.write import Durability, WriteResult
from ...commit.commit_authors import Origin
from ...commit.commit_log import Commit, CommitLog
from ...commit.numbered_writes import Ticket
from ...filter.expiry import Expiry
from ...record.change import ChangeKind, pack_record
from ...tablet.row_write import RowPlace, RowValues, apply_row, find_row, newest_cells
from ...tablet.tablet import Tablet
from ...vectors.raw_cell import RawCell
from ...wal.turn import UNLOGGED
from ..table import Table
from .row_merge import merged
from .row_plan import PlannedRow, RowPlan


@dataclass(slots=True, eq=False)
class RowWrite:
    """A row to be written by the plan lane, and what became of it: a commit, an error, or that the batch lane has to
    judge it."""

    table: Table
    plan: RowPlan
    planned: PlannedRow
    ticket: Ticket | None
    origin: Origin
    lsn: int = UNLOGGED
    """The log position of its commit; 0: it has none."""
    timestamp: int = 0
    """That of its commit; 0: it has none."""
    error: StoreError | None = None
    is_general: bool = False
    """Whether only the batch lane can tell what becomes of it, or refuses it."""

    @property
    def is_settled(self) -> bool:
        return self.lsn != UNLOGGED

    def leave(self) -> None:
        """Settle it without a commit."""
        self.lsn = 0

    def fail(self, error: InternalError) -> None:
        """Settle it with an error, of which each thread gets an exception of its own."""
        self.error = InternalError(error.message)
        self.error.__cause__ = error
        self.lsn = self.timestamp = 0


@dataclass(slots=True, eq=False)
class _Decided:
    """A row whose effect is known."""

    row: RowWrite
    kind: ChangeKind
    place: RowPlace
    cells: list[RawCell]
    values: RowValues
    record: bytes
    said: WriteResult | None
    """The answer to a numbered write."""

    def apply(self, commit: Commit) -> None:
        row = self.row
        tablet, key = row.planned.tablet, row.planned.key
        apply_row(tablet, self.kind, self.place, key, self.cells, self.values, commit.timestamp, commit.lsn)
        row.table.row_changed(commit.timestamp, key)
        if row.ticket and self.said:
            row.ticket.keep(self.said, commit.lsn, commit.timestamp)
        row.lsn, row.timestamp = commit.lsn, commit.timestamp


def commit_rows(rows: Sequence[RowWrite], log: CommitLog, durability: Durability, may_wait: bool) -> None:
    """Write rows of one tablet by their plans, under its write lock; no two may have one key. Settles each row.

    Those that are not plain are left to the batch lane. Unless they ``may_wait``, those whose keys would have to be
    read from the disk are left to their threads, and all if the log has no place for them now.

    Raises:
        InternalError: they were logged, and perhaps applied: nobody may try again.
        StorageFullError, UnavailableError: nothing was applied.
    """
    decided: list[_Decided] = []
    keep = log.authors.add
    for row in rows:
        try:
            one = _decided(row, log, durability, may_wait)
        except NotInMemoryError:
            row.leave()
            continue
        if one is not None:
            decided.append(one)
        else:
            row.is_general = True
            row.leave()

    def apply(commits: Sequence[Commit]) -> None:
        for one, commit in zip(decided, commits, strict=True):
            one.apply(commit)
            keep((commit.timestamp, one.row.origin))

    if decided and not log.commit_rows([one.record for one in decided], durability, apply, may_wait):
        for one in decided:
            one.row.leave()


def _decided(row: RowWrite, log: CommitLog, durability: Durability, may_wait: bool) -> _Decided | None:
    """Decide what becomes of a row; None if only the batch lane can tell, or refuses. Raises as ``find_row``."""
    plan, ticket, (tablet, key, cells, _) = row.plan, row.ticket, row.planned
    if plan.filled is not None:
        cells = plan.whole(cells, log.now(plan.version.schema))
    if row.table.version is not plan.version or row.table.dropped_until is not None or not is_plain(tablet):
        return None
    place = find_row(tablet, key, cells[: len(plan.key_columns.ids)], plan.key_columns, may_wait)
    if place and place.is_alive and plan.expiry:
        place = _unless_gone(place, plan, plan.expiry, log.now(plan.version.schema), may_wait)
    written = place and plan.written(place)
    if place is None or written is None or not _fits(tablet, place, plan):
        return None
    if plan.order is not None and place.rowset and not _is_in_time(place, plan, cells[plan.order], may_wait):
        return None
    if plan.merges and place.is_alive:
        cells = _merged(place, plan, cells, may_wait)
        if cells is None:
            return None
    change, _, sources, values = written
    stored = [cells[i] if i >= 0 else default for i, default in sources]
    record = change.pack(tablet.tablet_id, stored)
    said = None if ticket is None else _APPLIED[durability]
    if ticket and said:
        record = b"".join([*pack_record([], [ticket.note(said)]), record])
    return _Decided(row, change.kind, place, stored, values, record, said)


def _unless_gone(place: RowPlace, plan: RowPlan, expiry: Expiry, now: int, may_wait: bool) -> RowPlace | None:
    """Return the place of a row, as dead if it has expired at the moment ``now``; None if that cannot be read here.
    Raises as ``find_row``."""
    newest = newest_cells(place, plan.expiry_columns, may_wait)
    if newest is None:
        return None
    is_gone = expiry.is_gone(newest[plan.expiry_columns.ids.index(expiry.column.id)], now)
    return place._replace(is_alive=False) if is_gone else place


def _merged(place: RowPlace, plan: RowPlan, cells: Sequence[RawCell], may_wait: bool) -> list[RawCell] | None:
    """Return the cells of a row, merged with those of the live row that there is; None if only the batch lane can tell.
    Raises as ``find_row``."""
    newest = newest_cells(place, plan.merge_columns, may_wait)
    if newest is None:
        return None
    after = [*cells]
    try:
        for i, there, combine in plan.merges:
            after[i] = merged(newest[there], cells[i], combine)
    except OverflowError:
        return None
    return after


def _is_in_time(place: RowPlace, plan: RowPlan, cell: RawCell, may_wait: bool) -> bool:
    """Whether a row is no older than the one that there is, by their cells of the ordering column. Raises as
    ``find_row``."""
    newest = newest_cells(place, plan.order_columns, may_wait)
    if newest is None:
        return False
    before = newest[len(plan.key_columns.ids)]
    return before is None or (cell is not None and cell >= before)  # pyright: ignore[reportOperatorIssue]


def is_plain(tablet: Tablet) -> bool:
    """Whether the plan lane may write to a tablet: nobody moves it or waits for its new keys."""
    return not tablet.is_watched and (tablet.is_closed is None or not tablet.is_closed())


def _fits(tablet: Tablet, place: RowPlace, plan: RowPlan) -> bool:
    """Whether a new row has the columns of the MemRowSet."""
    return place.rowset is not None or tablet.version.active.physicals == plan.physicals


def applied(timestamp: int, durability: Durability, rows: int = 1) -> WriteResult:
    """Return the answer to rows that the plan lane has written, all of them."""
    return WriteResult(timestamp=timestamp, rows=rows, applied=rows, durability=durability)


_APPLIED = {durability: applied(0, durability) for durability in Durability}
"""By durability: what the log keeps of the answers."""
