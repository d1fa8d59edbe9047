"""Commit an import: all of its rows, in all tablets, by one log record at one timestamp.

Files bring rows with new keys (`tablet/attach`); a row whose key exists is an ordinary upsert in the same record. Files
are checked and moved in, and keys looked up, without a lock. If a writer adds one of the keys meanwhile, which shows
under the write locks, this is repeated. After some attempts, writers are turned away for a moment: those that keep
writing the same keys would block the import forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from ....schemas.limits.limits import Limits
from ....schemas.rows.operation import Operation
from ....schemas.rows.write import Durability, WriteResult
from ....schemas.store.bulk import ImportFile, ImportMode
from ...commit.commit_authors import BULK_IMPORT, origin_of
from ...commit.commit_log import Commit, CommitLog
from ...commit.numbered_writes import Ticket
from ...compaction.key_merge import shared_key
from ...manifest.environment import Environment
from ...rowset.diskrowset import DiskRowSet
from ...table.quota import within
from ...table.routed_batch import TabletRows, by_tablet, shape_of
from ...table.table import Table
from ...table.table_version import TableVersion, write_locks
from ...table.tablet_change import tablet_changes
from ...tablet import outcome
from ...tablet.attach import attach
from ...tablet.tablet import Tablet
from ...tablet.tablet_change import TabletChange
from .check import check_file
from .existing import rows_at
from .staged import StagedImport, Staging, staged_import
from .target import key_of

_OPEN_ATTEMPTS = 3
"""Attempts with writers admitted."""
_ATTEMPTS = 6
_CLOSED_MICROSECONDS = 10_000_000
"""The longest time to turn writers away, per attempt."""


@dataclass(frozen=True, slots=True)
class Importer:
    """The parts of a store that commits of imports use."""

    environment: Environment
    log: CommitLog
    limits: Limits
    admitted: Callable[[int, Iterable[Tablet]], AbstractContextManager[None]]
    """Admits this many bytes to the memory stores of tablets."""
    now: Callable[[], int]
    """Microseconds, which never jump."""

    def commit(
        self,
        table: Table,
        version: TableVersion,
        staging: Staging,
        files: Sequence[ImportFile],
        mode: ImportMode,
        ticket: Ticket,
    ) -> tuple[Commit, WriteResult]:
        """Apply an import as one commit, or nothing of it, and return its answer, without the timestamp; ``version`` is
        the one that the files were built for.

        Raises:
            InvalidArgumentError: a file is wrong, or the rows whose keys are in the table do not fit into a commit.
            AlreadyPresentError: a key occurs twice, or is in the table and ``mode`` does not allow that.
            ConflictError: the table was altered since the import began.
            StorageFullError, UnavailableError: nothing was applied.
        """
        for file in files:
            check_file(file, version, staging.fs, staging.path(file.name), self.limits)
        now = self.log.now(version.schema)
        for number in range(_ATTEMPTS):
            _check_there(table, version)
            try:
                with (
                    self._without_writers(version, files) if number >= _OPEN_ATTEMPTS else nullcontext(),
                    staged_import(
                        self.environment, version, staging, files, mode, now, self.limits.batch_bytes
                    ) as staged,
                ):
                    _check_distinct(version, staged)
                    result = self._attempt(table, version, staged, mode, sum(file.rows for file in files), ticket)
            except UnavailableError:
                _check_there(table, version)  # a dropped table's directory is gone, which is not a disk error
                raise
            if result:
                return result
        raise UnavailableError(
            "other writers change keys of the import at the same time: nothing was applied; try again", 1.0
        )

    def _attempt(
        self, table: Table, version: TableVersion, staged: StagedImport, mode: ImportMode, rows: int, ticket: Ticket
    ) -> tuple[Commit, WriteResult] | None:
        """Apply the staged files; None if a key has come to the table meanwhile."""
        if not all(one.keys.are_still_new() for one in staged.rowsets):  # leaves little to compare under the locks
            return None
        parts = self._parts(version, staged)
        tablets = {one.tablet for one in staged.rowsets} | {part.tablet for part in parts}
        with self.admitted(sum(part.rows.nbytes for part in parts), tablets), write_locks(tablets):
            _check_there(table, version)
            if not all(one.keys.are_still_new() for one in staged.rowsets):
                return None
            now = self.log.now(version.schema)
            decided = [each for part in parts if (each := _decided(version, part, mode, now)) is not None]
            if len(decided) < len(parts):
                return None
            changes = [change for part_changes, _ in decided for change in part_changes]
            stale = sum(count for _, count in decided)
            answer = WriteResult(timestamp=0, rows=rows, applied=rows - stale, stale=stale)
            attachments = [one.attachment for one in staged.rowsets]
            with (
                within(version.quota, table.name, changes, staged.rowsets),
                self.log.commit(
                    [each.change for each in changes],
                    [ticket.note(answer)],
                    Durability.FSYNC,
                    attachments,
                    origin_of(BULK_IMPORT, table.table_id, ticket),
                ) as commit,
            ):
                attach(staged.rowsets, commit.timestamp, commit.lsn)
                for each in changes:
                    each.tablet.apply(each.change, each.locations, commit.timestamp, commit.lsn)
                table.changed(commit.timestamp)
                ticket.keep(answer, commit.lsn, commit.timestamp)
            return commit, answer

    @contextmanager
    def _without_writers(self, version: TableVersion, files: Sequence[ImportFile]) -> Iterator[None]:
        """Turn away the tablets' writers for a moment, to retry: they keep adding keys of the import."""
        wanted = {file.tablet for file in files}
        tablets = [tablet for tablet in version.tablets if tablet.tablet_id in wanted]
        until = self.now() + _CLOSED_MICROSECONDS

        def is_closed() -> bool:
            return self.now() < until

        before = [tablet.is_closed for tablet in tablets]
        for tablet in tablets:
            tablet.is_closed = is_closed
        try:
            yield
        finally:
            for tablet, earlier in zip(tablets, before, strict=True):
                if tablet.is_closed is is_closed:  # else a move has set it meanwhile
                    tablet.is_closed = earlier

    def _parts(self, version: TableVersion, staged: StagedImport) -> list[TabletRows]:
        """Return by tablet the rows whose keys are in the table."""
        if not staged.changes:
            return []
        rows = pa.concat_batches(staged.changes)
        numbers, _ = version.covers(rows)
        return by_tablet(version, rows, version.keys_of(rows), numbers)


def _check_there(table: Table, version: TableVersion) -> None:
    if table.dropped_until is not None:
        raise NotFoundError(f"table {table.name!r} was dropped during the import: nothing was applied")
    if table.version is not version:
        raise ConflictError(f"table {table.name!r} was altered during the import: start a new import")


def _decided(
    version: TableVersion, part: TabletRows, mode: ImportMode, now: int
) -> tuple[list[TabletChange], int] | None:
    """Return the changes of a tablet, and how many of its rows are stale; None if a row that was dead is alive again,
    and ``mode`` does not allow that."""
    if len(repeated := np.flatnonzero(part.first != np.arange(len(part.first)))):
        raise _twice(version, part.rows, int(repeated[0]))
    shape = shape_of(version, {int(name) for name in part.rows.schema.names})
    operation = Operation.UPSERT if mode is ImportMode.UPSERT else Operation.INSERT
    order = version.order_of(part.rows)
    decided = part.tablet.decide(operation, part.keys, part.hashes, part.first, shape, now, order=order)
    if (refused := np.flatnonzero(decided.status < outcome.IGNORED)).size:
        if mode is ImportMode.INSERT_ONLY:
            return None
        key = key_of(version, part.rows, int(refused[0]))
        raise InvalidArgumentError(
            f"{len(refused):,} rows of the import are already in the table, and the import cannot change them, "
            f"since the table has immutable columns; the first row has the key {key}"
        )
    stale = int(np.count_nonzero(decided.status == outcome.STALE))
    return tablet_changes(version, part.tablet, part.rows, decided), stale


def _check_distinct(version: TableVersion, staged: StagedImport) -> None:
    """Check that no key is in two files; the commit compares them with the table's keys."""
    by_tablet: dict[int, list[DiskRowSet]] = {}
    for one in staged.rowsets:
        by_tablet.setdefault(one.tablet.tablet_id, []).append(one.rowset)
    for rowsets in by_tablet.values():
        if shared := shared_key(rowsets):
            row = rows_at(shared.one, version.schema, np.array([shared.row]))
            raise _twice(version, row, 0)


def _twice(version: TableVersion, rows: pa.RecordBatch, row: int) -> AlreadyPresentError:
    return AlreadyPresentError(
        f"two files of the import have the key {key_of(version, rows, row)}: nothing was applied"
    )
