"""Recovery: brings the tablets to the end of the log, however the store stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from ...schemas.errors import CorruptionError, StorageFullError, StoreError
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..maintenance.upkeep import flush, flush_all_deltas
from ..manifest.environment import Environment
from ..manifest.manifest import Manifest, ManifestFile
from ..options import StoreOptions
from ..record.change import Change, unpack_attachments, unpack_changes, unpack_notes
from ..record.log_note import NoteKind
from ..table.auto_increment import AutoIncrement
from ..table.table import Table
from ..tablet.attach import logged_attachments, with_logged
from ..tablet.open import quarantined
from ..tablet.tablet import Tablet
from ..wal.store_log import StoreLog

log = logging.getLogger("nyala.recovery")


def check_log(wal: StoreLog, manifest: Manifest) -> None:
    """Check that the log reaches back to what the files lack. Raises CorruptionError if it does not."""
    if wal.first_lsn > manifest.log_needed_from:
        why = f"the log starts at record {wal.first_lsn}, but records from {manifest.log_needed_from} are needed"
        raise CorruptionError("wal", 0, why)


def assume_attached(wal: StoreLog, manifest: ManifestFile) -> None:
    """Add the rowsets that the log attaches, and that the manifest on disk may lack, to the manifest in memory.

    This runs before the replay, which needs their rows for later changes. The replay may also meet earlier changes of
    their keys: those belong to rows that were removed for good before the rowset was attached.
    """
    attached = logged_attachments(wal.peek())
    ids_used = max((entry.id for _, entry in attached), default=0)
    manifest.assume(lambda current: with_logged(current, attached), ids_used)


class LoggedTablets:
    """Finds the tablets for log records by tablet id: a tablet that was split since has descendants."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._tablets: dict[int, Tablet] = {}
        self._descendants: dict[int, list[Tablet]] = {}
        self._tables: dict[int, Table] = {}
        for table in tables:
            for tablet in table.tablets:
                if tablet.elsewhere is None:  # else its rows moved to another server, with their log records' content
                    self._tablets[tablet.tablet_id] = tablet
                    for ancestor in tablet.ancestors:
                        self._descendants.setdefault(ancestor, []).append(tablet)
                self._tables |= dict.fromkeys((tablet.tablet_id, *tablet.ancestors), table)

    def owners(self, tablet_id: int) -> list[Tablet]:
        """Return the tablet if it exists, else its descendants."""
        tablet = self._tablets.get(tablet_id)
        return [tablet] if tablet else self._descendants.get(tablet_id, [])

    def ids(self, tablet_id: int) -> AutoIncrement | None:
        """Return the id generator for a tablet's table; None if the table is gone."""
        table = self._tables.get(tablet_id)
        return table.auto_increment if table else None

    def changed(self, tablet_id: int, timestamp: int) -> None:
        """Record in a tablet's table, if it exists, that a commit changed rows."""
        if table := self._tables.get(tablet_id):
            table.changed(timestamp)

    def passes(self, tablet_id: int, timestamp: int, lsn: int) -> bool:
        """Take note of a change whose rows nobody needs, and return True: files hold them, or the table is gone."""
        tablet, table = self._tablets.get(tablet_id), self._tables.get(tablet_id)
        if table is None:
            return True
        if tablet is None or lsn > tablet.in_files_lsn or table.schema.auto_incrementing:
            return False
        table.changed(timestamp)
        with tablet.write_lock:
            tablet.stand_at(timestamp, lsn)
        return True

    def parts(self, change: Change) -> list[tuple[Tablet, Change]]:
        """Return a change divided among the present tablets; empty if they were dropped."""
        if tablet := self._tablets.get(change.tablet_id):
            return [(tablet, change)]
        descendants = self._descendants.get(change.tablet_id)
        if not descendants:
            return []
        version = self._tables[change.tablet_id].version
        numbers = version.router.numbers_of_cells(change.cells, change.rows.num_rows)
        parts = [
            (descendant, np.flatnonzero(numbers == version.tablets.index(descendant))) for descendant in descendants
        ]
        return [
            (descendant, Change(descendant.tablet_id, change.kind, change.rows.take(pa.array(rows))))
            for descendant, rows in parts
            if len(rows)
        ]


def replay(
    wal: StoreLog,
    tablets: LoggedTablets,
    writers: NumberedWrites,
    transaction_memory: TransactionMemory,
    environment: Environment,
    options: StoreOptions,
) -> tuple[int, int]:
    """Apply the part of the log that files lack; return the rows applied and the newest timestamp in the log. Answers
    to numbered writes go to ``writers``, transactions to ``transaction_memory``.

    Skips changes of dropped tablets and of tablets in quarantine, for which the log keeps them. A tablet with a damaged
    file goes into quarantine. Flushes bound the memory.

    Raises:
        CorruptionError: the log is not what was written.
    """
    rows, newest, has_room = 0, 0, True
    for record in wal.replay():
        newest = max(newest, record.timestamp)
        for note in unpack_notes(record.payload, record.lsn):
            told = transaction_memory if note.kind is NoteKind.TRANSACTIONS else writers
            told.restore(note, record.lsn, record.timestamp)
        for attachment in unpack_attachments(record.payload, record.lsn):
            if ids := tablets.ids(attachment.tablet_id):
                ids.restore_attached(attachment)
            tablets.changed(attachment.tablet_id, record.timestamp)
            for tablet in tablets.owners(attachment.tablet_id):
                with tablet.write_lock:
                    tablet.stand_at(record.timestamp, record.lsn)
        changed: dict[int, Tablet] = {}
        passes = partial(tablets.passes, timestamp=record.timestamp, lsn=record.lsn)
        for change in unpack_changes(record.payload, record.lsn, passes):
            if ids := tablets.ids(change.tablet_id):
                ids.restore(change)
            tablets.changed(change.tablet_id, record.timestamp)
            for tablet, part in tablets.parts(change):
                with _quarantining(tablet, environment), tablet.write_lock:
                    rows += tablet.replay(part, record.timestamp, record.lsn)
                changed[tablet.tablet_id] = tablet
        # Only after all changes of the record are applied: a flush claims to hold them.
        for tablet in changed.values():
            if has_room:
                with _quarantining(tablet, environment):
                    has_room = _bound_memory(tablet, environment, options)
    if rows:
        log.info("replayed %d row changes from the log", rows)
    return rows, newest


@contextmanager
def saying_what_to_do() -> Iterator[None]:
    """Add the next step to errors about a damaged log or manifest, which prevent opening."""
    try:
        yield
    except CorruptionError as error:
        step = "the store was not opened and is unchanged: `nyala repair` shows what can be saved"
        raise CorruptionError(error.path, error.offset, f"{error.why}; {step}") from error


@contextmanager
def _quarantining(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Put a tablet into quarantine if the body finds one of its files damaged; other tablets continue."""
    try:
        yield
    except StoreError as error:
        if not quarantined(tablet, error, environment):
            raise


def _bound_memory(tablet: Tablet, environment: Environment, options: StoreOptions) -> bool:
    """Flush stores that have grown large during the replay; all history is kept.

    Returns whether the disk has room: a store on a full disk can still be read.
    """
    try:
        if tablet.version.active.nbytes > options.flush_bytes:
            flush(tablet, environment)
        if sum(rowset.deltas.memory_bytes for rowset in tablet.version.disk) > options.flush_deltas_bytes:
            flush_all_deltas(tablet, environment, 0)
    except StorageFullError as error:
        log.warning("the replay continues in memory: %s", error.message)
        return False
    return True
