"""Applies records of the log to tablets: when a store is opened, and in a replica for as long as it follows the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from ...schemas.errors import StoreError
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..manifest.damage import DamageRegistry
from ..record.change import Attachment
from ..record.log_note import NoteKind
from ..record.logged_rows import LoggedRows, rows_of
from ..record.parts import Parts, find_parts
from ..table.auto_increment import AutoIncrement
from ..table.table import Table
from ..tablet.open import quarantined
from ..tablet.replay import LogTimes, replay
from ..tablet.tablet import Tablet
from ..wal.records import LogRecords


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

    def tablet(self, tablet_id: int) -> Tablet | None:
        """Return the tablet if it exists, and was not split."""
        return self._tablets.get(tablet_id)

    def is_gone(self, tablet_id: int) -> bool:
        """Whether nobody needs the rows of a tablet: its table was dropped."""
        return tablet_id not in self._tables

    def in_files_lsn(self, tablet_id: int) -> int:
        """Return the log position up to which nobody needs to look at changes of a tablet: files hold them."""
        tablet, table = self._tablets.get(tablet_id), self._tables[tablet_id]
        return 0 if tablet is None or table.schema.auto_incrementing else tablet.in_files_lsn

    def parts(self, rows: LoggedRows) -> list[tuple[Tablet, LoggedRows]]:
        """Return rows divided among the present tablets; empty if they were dropped."""
        if tablet := self._tablets.get(rows.tablet_id):
            return [(tablet, rows)]
        descendants = self._descendants.get(rows.tablet_id)
        if not descendants:
            return []
        version = self._tables[rows.tablet_id].version
        numbers = version.router.numbers_of_cells(rows.cells, len(rows))
        parts = [
            (descendant, np.flatnonzero(numbers == version.tablets.index(descendant))) for descendant in descendants
        ]
        return [(descendant, rows.taken(places)) for descendant, places in parts if len(places)]


class LogReplay:
    """Replays the log: applies what files lack of records, in order. For one thread.

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
        self.records = self.payload_bytes = 0
        """Of the records so far."""

    def apply(self, records: LogRecords) -> Collection[Tablet]:
        """Apply records; return the tablets whose rows they may have changed. Raises CorruptionError.

        A rowset that one of them attaches must be there before, or come after all of them.
        """
        if not len(records):
            return ()
        self.newest = max(self.newest, int(records.timestamps[-1]))
        self.records += len(records)
        self.payload_bytes += records.payload_bytes
        parts = find_parts(records.first_lsn, records.addresses, records.lengths, records.memory)
        restore_notes(parts, records.timestamps, self._writers, self._transaction_memory)
        reached = _Reached(records)
        for place, attachment in parts.attachments():
            self._attach(attachment, place, reached)
        changes = self._lacking(parts.changes, reached)
        by_tablet: dict[Tablet, list[LoggedRows]] = {}
        for rows in rows_of(changes):
            if ids := self._tablets.ids(rows.tablet_id):
                ids.restore(rows.kind, rows.cells)
            for tablet, part in self._tablets.parts(rows):
                by_tablet.setdefault(tablet, []).append(part)
                reached.note(tablet, int(changes.records[part.parts[-1]]))
        times = LogTimes(changes.first_lsn + changes.records, records.timestamps[changes.records])
        for tablet, forms in by_tablet.items():
            with quarantining(tablet, self._damage), tablet.write_lock:
                self.rows += replay(tablet, forms, times)
        reached.stand()
        return by_tablet.keys()

    def _attach(self, attachment: Attachment, place: int, reached: _Reached) -> None:
        tablets = self._tablets
        if ids := tablets.ids(attachment.tablet_id):
            ids.restore_attached(attachment)
        tablets.changed(attachment.tablet_id, reached.timestamp(place))
        for tablet in tablets.owners(attachment.tablet_id):
            reached.note(tablet, place)

    def _lacking(self, changes: Parts, reached: _Reached) -> Parts:
        """Take note of changes, and return those that files may lack: others are not decoded."""
        lsns, owners = changes.first_lsn + changes.records, changes.owners
        is_lacking = np.zeros(len(changes), np.bool_)
        for owner in sorted({*owners.tolist()}):  # np.unique would import numpy.ma at each start
            if self._tablets.is_gone(owner):
                continue
            own = np.flatnonzero(owners == owner)
            last = int(changes.records[own[-1]])
            self._tablets.changed(owner, reached.timestamp(last))
            if tablet := self._tablets.tablet(owner):
                reached.note(tablet, last)
            is_lacking[own] = lsns[own] > self._tablets.in_files_lsn(owner)
        return changes if is_lacking.all() else changes.taken(is_lacking)


class _Reached:
    """How far the replay comes in each tablet by some records."""

    def __init__(self, records: LogRecords) -> None:
        self._records = records
        self._places: dict[Tablet, int] = {}

    def timestamp(self, place: int) -> int:
        """Return the timestamp of a record."""
        return int(self._records.timestamps[place])

    def note(self, tablet: Tablet, place: int) -> None:
        """Note that a record at this place is of a tablet."""
        self._places[tablet] = max(self._places.get(tablet, place), place)

    def stand(self) -> None:
        """Let the tablets stand where the replay is, once all of it is applied."""
        for tablet, place in self._places.items():
            with tablet.write_lock:
                tablet.stand_at(self.timestamp(place), self._records.first_lsn + place)


def restore_notes(
    parts: Parts, timestamps: np.ndarray, writers: NumberedWrites, transaction_memory: TransactionMemory
) -> None:
    """Replay the notes of log records with these ``timestamps``. Raises CorruptionError if one cannot be decoded."""
    writers.restore_all(parts.taken(np.isin(parts.kinds, [NoteKind.ANSWER, NoteKind.WRITERS])), timestamps)
    for record, note in parts.of_kind(NoteKind.TRANSACTIONS).notes():
        transaction_memory.restore(note, parts.first_lsn + record, int(timestamps[record]))


@contextmanager
def quarantining(tablet: Tablet, damage: DamageRegistry) -> Iterator[None]:
    """Put a tablet into quarantine if the body finds one of its files damaged; other tablets continue."""
    try:
        yield
    except StoreError as error:
        if not quarantined(tablet, error, damage):
            raise
