"""Table: routes a batch to its tablets and commits it; finds rows by key; combines the scans of its tablets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import NotFoundError, UnavailableError
from ...schemas.limits.limits import Limits
from ...schemas.protocol.request import check_columns_meant
from ...schemas.protocol.service import RowStamp
from ...schemas.rows.operation import Operation
from ...schemas.rows.write import Durability, WriteCommand
from ...schemas.store.description import TableDescription
from ...schemas.table.table import TableOptions, TableSchema
from .. import threads
from ..commit.commit_authors import origin_of
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import Ticket
from ..commit.row_stamps import RowStamps
from ..mvcc.mvcc import MvccManager
from ..tablet import outcome
from ..tablet.attach import StagedRowSet, attach
from ..tablet.outcome import Outcome, all_stored
from ..tablet.point_read import UndecidedError
from ..tablet.tablet import Tablet
from ..tablet.tablet_change import TabletChange
from ..vectors.keys.placed_key import PlacedKey
from .auto_increment import AutoIncrement
from .checked_batch import CheckedBatch
from .direct_load import DirectLoad
from .pending_write import PendingWrite
from .point_plan import PointPlan
from .quota import within
from .routed_batch import RoutedBatch, route
from .table_version import TableVersion, write_locks
from .tablet_change import tablet_changes
from .write_result import answer


class Table:
    """An open table: routes batches to its tablets, and commits them. Thread safe."""

    def __init__(
        self,
        table_id: int,
        name: str,
        version: TableVersion,
        last_auto_id: int = 0,
        dropped_until: int | None = None,
        last_change: int = 0,
    ) -> None:
        self.table_id = table_id
        self.name = name
        self.version = version
        """Replaced as a whole, under the write locks of all its tablets."""
        self.auto_increment = AutoIncrement(version.schema, last_auto_id)
        self.dropped_until = dropped_until
        """The end of its recall time, in microseconds since 1970; 0: dropped for good; None: in use. Set like
        ``version``."""
        self.alteration_lock = threads.Lock()
        """Held during an alteration, which may take long; taken before the catalog's lock."""
        self._last_change = last_change
        self._stamps: RowStamps | None = None
        """None: nobody has asked until when rows stay the newest ones."""
        self._changing = threads.Lock()

    @property
    def schema(self) -> TableSchema:
        """The current schema. To read several attributes consistently, take one ``version``."""
        return self.version.schema

    @property
    def options(self) -> TableOptions:
        return self.version.options

    @property
    def is_maintained(self) -> bool:
        """Whether background maintenance works on it. Always for a dropped table, where no user can ask for it."""
        return self.options.maintenance == "on" or self.dropped_until is not None

    @property
    def tablets(self) -> tuple[Tablet, ...]:
        """The current tablets, in ascending id."""
        return self.version.tablets

    @property
    def last_change(self) -> int:
        """The timestamp of the newest commit that changed rows; it may not be visible yet. 0 if there is none."""
        return self._last_change

    def settled_change(self, mvcc: MvccManager) -> int:
        """Return ``last_change``, after it and all commits before it are visible. Only then may a manifest or another
        server name it: whoever reads at this moment may not see fewer rows than later. The caller may hold write
        locks.

        Raises:
            UnavailableError: the log failed.
        """
        timestamp = self._last_change
        mvcc.wait_for(timestamp)
        return timestamp

    def changed(self, timestamp: int, hashes: Collection[np.ndarray] | None = None) -> None:
        """Record a commit that changed rows, under the write locks of their tablets or at recovery, before it becomes
        visible. ``hashes`` are those of their keys, and perhaps of others; None: any row may have changed."""
        with self._changing:
            self._last_change = max(self._last_change, timestamp)
            if self._stamps is None:
                return
            if hashes is None:
                self._stamps.table_changes(self.table_id, timestamp)
            for each in hashes or ():
                self._stamps.rows_change(self.table_id, each, timestamp)

    def row_changed(self, timestamp: int, key: PlacedKey) -> None:
        """Record a commit that changed the row with a key, as ``changed`` does."""
        with self._changing:
            self._last_change = max(self._last_change, timestamp)
            if self._stamps is not None:
                self._stamps.row_changes(self.table_id, key.address, key.length, timestamp)

    def redefined(self) -> None:
        """Note that it has another version or name, or was dropped or recalled: after that, and after others find it by
        its new name only."""
        if self._stamps is not None:
            self._stamps.table_changes(self.table_id)

    def _stamped_by(self, stamps: RowStamps) -> RowStamps:
        """Keep the stamps of its rows from now on."""
        if self._stamps is None:
            stamps.start()
            with self._changing:
                stamps.table_changes(self.table_id, self._last_change)  # may be in flight yet
                self._stamps = stamps
        return self._stamps

    def begin_write(
        self,
        command: WriteCommand,
        batch: pa.RecordBatch,
        log: CommitLog,
        limits: Limits,
        durability: Durability,
        ticket: Ticket | None = None,
        direct_load: DirectLoad | None = None,
    ) -> PendingWrite:
        """Apply a batch as one commit; return the pending write, which has the answer once the commit is durable.

        With a ``ticket`` the answer is logged and kept too, even when no row changes. ``direct_load`` may write new
        rows to disk at once.

        Raises:
            InvalidArgumentError: the batch as a whole is wrong.
            SnapshotTooOldError: history no longer reaches back to the command's ``if_timestamp``.
            StorageFullError, UnavailableError: nothing was applied.
            NotFoundError: the table was dropped meanwhile.
        """
        while True:
            now = log.now(self.schema, is_needed=command.rules is not None)
            ids = self.auto_increment
            routed = route(self.version, batch, command.op, limits, ids, now, rules=command.rules)
            check_columns_meant(self.name, routed.version.schema.columns)
            staging = direct_load.staged(routed, command) if direct_load else nullcontext([])
            try:
                with staging as staged, write_locks([part.tablet for part in routed.parts]):
                    self.check_in_use()
                    if self.is_current(routed):
                        return _applied(self, routed, staged, command, log, durability, ticket)
            except UnavailableError:  # nothing was applied; a dropped tablet's directory is missing
                self.check_in_use()
                if self.version is routed.version:
                    raise

    def is_current(self, routed: RoutedBatch) -> bool:
        """Whether a batch still fits the table: its version is the present one, and ids that the store gave to its rows
        are free. The answer holds under the write locks of its tablets."""
        return self.version is routed.version and self.auto_increment.are_free(routed.first_id)

    def check_in_use(self) -> None:
        """Raise NotFoundError if the table was dropped; the result holds under the write lock of one tablet."""
        if self.dropped_until is not None:
            raise NotFoundError(f"table {self.name!r} was dropped")

    def get_row(
        self, known: TableDescription, key: Sequence[Any], snapshot: Callable[[], int], limits: Limits
    ) -> dict[str, Any] | None:
        """Return one live row, at a new ``snapshot``, in the plan lane; see ``KeyReader``.

        Raises:
            UndecidedError: take the batch lane.
        """
        version = self.version
        row = version.plans[PointPlan].get(known, key, snapshot(), limits)
        if self.version is not version:
            raise UndecidedError
        return row

    def stamped_row(
        self,
        known: TableDescription,
        key: Sequence[Any],
        snapshot: Callable[[], int],
        limits: Limits,
        stamps: RowStamps,
    ) -> tuple[dict[str, Any] | None, RowStamp | None]:
        """Do as ``get_row``, and return the stamp of a row that can be told from a newer one. Raises as ``get_row``."""
        version, stamps = self.version, self._stamped_by(stamps)
        plan, moment = version.plans[PointPlan], snapshot()
        row = plan.get(known, key, moment, limits)
        if self.version is not version:
            raise UndecidedError
        if row is None or plan.is_expiring:
            return row, None
        return row, RowStamp(moment, *plan.stamps(key, stamps, self.table_id))


def _applied(
    table: Table,
    routed: RoutedBatch,
    staged: Sequence[StagedRowSet],
    command: WriteCommand,
    log: CommitLog,
    durability: Durability,
    ticket: Ticket | None,
) -> PendingWrite:
    """Decide, log and apply a batch, under the write locks of its tablets; ``staged`` parts are on disk already."""
    version, batch, checked = routed.version, routed.batch, routed.checked
    moment = None if command.if_timestamp is None else parse_moment(command.if_timestamp, "if_timestamp")
    now = log.now(version.schema) if moment is None else moment
    attached = [one for one in staged if one.keys.are_still_new()]
    ready = {one.tablet.tablet_id for one in attached}
    decided = [
        all_stored(len(each.keys))
        if each.tablet.tablet_id in ready
        else each.tablet.decide(
            command.op, each.keys, each.hashes, each.first, routed.shape, now, moment, order=version.order_of(each.rows)
        )
        for each in routed.parts
    ]
    if routed.computing:
        decided = [
            routed.computing.resolved(each.rows, each.first, some, each.tablet.newest_of)
            for each, some in zip(routed.parts, decided, strict=True)
        ]
    status = status_of(routed, decided)
    reasons = reasons_of(routed, decided)
    stored = _stored(command, routed, decided, ready)
    rejected = command.atomic and has_errors(checked, status)
    commit = None
    if ticket or ((ready or any(each.changes_rows for each in decided)) and not rejected):
        changes = [] if rejected else changes_of(routed, decided)
        attached = [] if rejected else attached
        said = (
            answer(batch, version.schema, checked, status, 0, durability, rejected, stored, reasons) if ticket else None
        )
        notes = [ticket.note(said)] if ticket and said else []
        attachments = [one.attachment for one in attached]
        origin = origin_of(command.op.value, table.table_id, ticket) if changes or attached else None
        with (
            within(version.quota, table.name, changes, attached),
            log.commit([each.change for each in changes], notes, durability, attachments, origin) as commit,
        ):
            attach(attached, commit.timestamp, commit.lsn)
            for each in changes:
                each.tablet.apply(each.change, each.locations, commit.timestamp, commit.lsn)
            if changes or attached:
                table.changed(commit.timestamp, None if attached else [each.hashes for each in routed.parts])
            if command.op.base is Operation.UPSERT:
                table.auto_increment.learn([each.change for each in changes], attachments)
            if ticket and said:
                ticket.keep(said, commit.lsn, commit.timestamp)
    tablets = tuple(each.tablet for each in routed.parts)
    return PendingWrite(
        version.schema, batch, checked, status, rejected, commit, log, durability, tablets, stored, reasons
    )


def reasons_of(routed: RoutedBatch, decided: Sequence[Outcome]) -> dict[int, str]:
    """Return why accepted rows of a batch are refused, where it is because of what the store computes for them."""
    reasons: dict[int, str] = {}
    for part, outcome_ in zip(routed.parts, decided, strict=True):
        for row, message in outcome_.reasons.items():
            reasons[row if part.positions is None else int(part.positions[row])] = message
    return reasons


def _stored(
    command: WriteCommand, routed: RoutedBatch, decided: Sequence[Outcome], ready: Collection[int]
) -> int | None:
    """Return how many keys of a batch are new, if its command asks for it; tablets in ``ready`` have only such."""
    if not command.count_replaced or command.op.base is not Operation.UPSERT:
        return None
    parts = zip(routed.parts, decided, strict=True)
    return sum(len(each.keys) if each.tablet.tablet_id in ready else len(found.stores) for each, found in parts)


def status_of(routed: RoutedBatch, decided: list[Outcome]) -> np.ndarray:
    """Return the status of every accepted row of the batch, as its tablets decided."""
    if len(decided) == 1 and routed.parts[0].positions is None:
        return decided[0].status
    status = np.empty(routed.checked.rows.num_rows, np.int8)
    for each, outcome_ in zip(routed.parts, decided, strict=True):
        status[each.positions] = outcome_.status
    return status


def changes_of(routed: RoutedBatch, decided: list[Outcome]) -> list[TabletChange]:
    """Return the changes that a batch makes, to log and apply, of all tablets."""
    return [
        change
        for each, outcome_ in zip(routed.parts, decided, strict=True)
        for change in tablet_changes(routed.version, each.tablet, each.rows, outcome_)
    ]


def has_errors(checked: CheckedBatch, status: np.ndarray) -> bool:
    """Whether any row of a batch is refused."""
    return checked.refusals.by_row is not None or bool((status < outcome.IGNORED).any())
