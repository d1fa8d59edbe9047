"""Applies records of the log to tablets: when a store is opened, and in a replica for as long as it follows the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from ...schemas.errors import StoreError
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..manifest.damage import DamageRegistry
from ..record.change import Change, unpack_attachments, unpack_changes, unpack_notes
from ..record.log_note import NoteKind
from ..table.auto_increment import AutoIncrement
from ..table.table import Table
from ..tablet.open import quarantined
from ..tablet.tablet import Tablet
from ..wal.format import LogRecord


class LoggedTablets:
    """Finds the tablets for log records by tablet id: a tablet that was split since has descendants."""

    def __init__(self, tables: Iterable[Table], only: Collection[int] | None = None) -> None:
        """``only``: the ids of the tablets that records are applied to; None: all."""
        self._tablets: dict[int, Tablet] = {}
        self._descendants: dict[int, list[Tablet]] = {}
        self._tables: dict[int, Table] = {}
        for table in tables:
            for tablet in table.tablets:
                if only is not None and tablet.tablet_id not in only:
                    continue
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


class LogReplay:
    """Applies what files lack of records, in the order of the log. For one thread.

    Answers to numbered writes go to ``writers``, transactions to ``transaction_memory``. Skips changes of dropped
    tablets and of tablets in quarantine, for which the log keeps them. A tablet with a damaged file goes into
    quarantine.
    """

    def __init__(
        self,
        tablets: LoggedTablets,
        writers: NumberedWrites,
        transaction_memory: TransactionMemory,
        damage: DamageRegistry,
    ) -> None:
        self._tablets = tablets
        self._writers = writers
        self._transaction_memory = transaction_memory
        self._damage = damage
        self.rows = 0
        """The rows applied so far."""
        self.newest = 0
        """The newest timestamp of any record."""

    def apply(self, record: LogRecord) -> Collection[Tablet]:
        """Apply one record; return the tablets whose rows it may have changed. Raises CorruptionError."""
        self.newest = max(self.newest, record.timestamp)
        tablets = self._tablets
        for note in unpack_notes(record.payload, record.lsn):
            told = self._transaction_memory if note.kind is NoteKind.TRANSACTIONS else self._writers
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
                with quarantining(tablet, self._damage), tablet.write_lock:
                    self.rows += tablet.replay(part, record.timestamp, record.lsn)
                changed[tablet.tablet_id] = tablet
        return changed.values()


@contextmanager
def quarantining(tablet: Tablet, damage: DamageRegistry) -> Iterator[None]:
    """Put a tablet into quarantine if the body finds one of its files damaged; other tablets continue."""
    try:
        yield
    except StoreError as error:
        if not quarantined(tablet, error, damage):
            raise
