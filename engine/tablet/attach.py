"""Attaches rowsets that were built outside: one small log record adds all their rows to the tablet.

 1. The keys are looked up, some thousands at a time: every row must be new. From before that on, the tablet collects
    the keys that come to it (`NewKeys`). The base file is written and synced; the rowset gets a slot (`StagedRowSet`).
 2. Under the write lock: if no collected key is one of the rowset's, the commit is logged with only the ids of its
    rowsets, which join the tablet's version. So the lock is held only to check the keys that came since the last
    check. Every row is inserted at the commit's timestamp (`RowsetEntry.born`). Look-ups search the rowset by its
    Bloom filter until the key index has it.
 3. The manifest names the rowset once the record is durable (`name_attached`). Until the manifest is written next, the
    log record takes its place (`with_logged`): the log is not freed before, and an opening reads it first.

A crash before the record leaves orphaned files, which the next start removes. One commit may attach many rowsets, to
many tablets; whoever builds rowsets for one tablet must ensure that they share no keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..manifest.environment import Environment
from ..manifest.manifest import Manifest
from ..manifest.rowset_entry import RowsetEntry
from ..record.change import Attachment
from ..record.parts import find_parts
from ..rowset.diskrowset import DiskRowSet
from ..vectors.keys.keys import KeyVector, hash_keys, slice_keys
from ..wal.records import LogRecords
from .tablet import Tablet

_KEYS_AT_ONCE = 1 << 14
"""Keys to look up before the lock is released."""
_FEW = 16
"""So many keys are looked for one by one: that takes less time than to sort those among which they may be."""


class NewKeys:
    """The keys of rows to be inserted in a tablet, and whether they are still new."""

    def __init__(self, tablet: Tablet, hashes: np.ndarray, beside: NewKeys | None = None) -> None:
        """Watch from now on which keys come to the tablet. ``hashes`` are those of the keys, in any order. ``beside``
        are others of the tablet whose watch both share: writers note each key once, for however many."""
        self.tablet = tablet
        self.hashes = hashes
        self._ascending: np.ndarray | None = None
        self._met = False
        if beside:
            self._watch = beside._watch
        else:
            with tablet.write_lock:
                self._watch = tablet.watch()
        self._seen = len(self._watch)

    def are_absent(self, keys: KeyVector) -> bool:
        """Look up the keys, some at a time; return whether no rowset has one of them, alive or dead."""
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            part = slice_keys(keys, first, min(first + _KEYS_AT_ONCE, len(keys)))
            with self.tablet.write_lock:
                locations, _ = self.tablet.find(part, hash_keys(part))
            if (locations >= 0).any():
                return False
        return True

    def are_still_new(self) -> bool:
        """Whether none has come since; quick if called just before. The answer holds under the write lock.

        Compares hashes: two keys rarely share one, and then the answer is only a needless no.
        """
        came = self._watch[self._seen :]
        self._seen += len(came)
        self._met = self._met or bool(came and self._have_any(np.concatenate(came)))
        return not self._met

    def _have_any(self, came: np.ndarray) -> bool:
        if self._ascending is None and len(came) <= _FEW:
            return any(bool((self.hashes == each).any()) for each in came)
        if self._ascending is None:
            self._ascending = np.sort(self.hashes)
        places = np.searchsorted(self._ascending, came)
        places[places == len(self._ascending)] = 0
        return bool((self._ascending[places] == came).any())

    def forget(self) -> None:
        """Stop watching, for all that share the watch."""
        with self.tablet.write_lock:
            self.tablet.unwatch(self._watch)


class StagedRowSet:
    """A rowset that is ready to be attached to a tablet. If it is not, call ``give_up``."""

    def __init__(self, rowset: DiskRowSet, keys: NewKeys, hashes: np.ndarray) -> None:
        """Give a slot to an open ``rowset`` that has those of ``keys`` with these hashes.

        Raises:
            UnavailableError: the tablet has too many rowsets.
        """
        self.rowset = rowset
        self.keys = keys
        self.hashes = hashes
        self.is_logged = False
        """From here on the files belong to the log."""
        with self.tablet.write_lock:
            rowset.slot = self.tablet.free_slot()
            self.tablet.take_slot(rowset)

    @property
    def tablet(self) -> Tablet:
        return self.keys.tablet

    @property
    def attachment(self) -> Attachment:
        """The attachment for the log record."""
        rowset, numbered = self.rowset, self.tablet.schema.auto_incrementing
        zones = rowset.zone_maps(numbered.id, 0, len(rowset)) if numbered else []
        return Attachment(
            tablet_id=self.tablet.tablet_id,
            rowset=rowset.rowset_id,
            rows=len(rowset),
            last_auto_id=max((zone.max for zone in zones if isinstance(zone.max, int)), default=None),
        )

    def give_up(self) -> None:
        """Free the slot, which nothing names, and close the files; the caller removes them."""
        with self.tablet.write_lock:
            self.tablet.drop_slot(self.rowset.slot)
        self.rowset.close()


def attach(staged: Sequence[StagedRowSet], timestamp: int, lsn: int) -> None:
    """Attach rowsets to their tablets by a logged commit, under the write locks; all keys are still new."""
    for one in staged:
        one.is_logged = True
    for one in staged:
        one.tablet.attach(one.rowset, one.hashes, timestamp, lsn)


def name_attached(tablet: Tablet, environment: Environment) -> int:
    """Add the attached rowsets of a tablet to the manifest; return how many. The caller holds the maintenance lock.

    Nothing is written: the log records stand until the next write of the manifest.

    Raises:
        UnavailableError: the log has failed.
    """
    if not tablet.version.attached:
        return 0
    with tablet.write_lock:  # waits for whole commits: rowsets at one log position are added together or never
        attached = tablet.version.attached
    newest = attached[-1]
    environment.wait_until_settled(newest.base_timestamp, newest.durable_lsn)
    entries = [entry_of(rowset.rowset_id, rowset.base_timestamp, rowset.durable_lsn) for rowset in attached]
    environment.manifest.assume(
        lambda manifest: manifest.with_tablet(tablet.tablet_id, lambda entry: entry.with_attached(entries))
    )
    with tablet.write_lock:
        tablet.name_attached(attached)
    return len(attached)


def entry_of(rowset_id: int, timestamp: int, lsn: int) -> RowsetEntry:
    """Return the manifest entry of a rowset attached by the commit at ``timestamp`` and log position ``lsn``."""
    return RowsetEntry(id=rowset_id, durable_lsn=lsn, born=timestamp)


def with_logged(manifest: Manifest, attached: Iterable[tuple[int, RowsetEntry]]) -> Manifest:
    """Return the manifest with the rowsets that the log attaches, given as (tablet id, entry) in log order.

    Skips those of dropped tablets, and those that it had before.
    """
    by_tablet: dict[int, list[RowsetEntry]] = {}
    for tablet_id, entry in attached:
        by_tablet.setdefault(tablet_id, []).append(entry)
    for tablet_id, entries in by_tablet.items():
        manifest = manifest.with_tablet(tablet_id, lambda tablet, found=entries: tablet.with_attached(found))
    return manifest


def logged_attachments(records: Iterable[LogRecords]) -> list[tuple[int, RowsetEntry]]:
    """Return the rowsets that log records attach, each with its tablet id, in log order. Raises CorruptionError."""
    return [
        (attachment.tablet_id, entry_of(attachment.rowset, int(some.timestamps[place]), some.first_lsn + place))
        for some in records
        for place, attachment in find_parts(some.first_lsn, some.addresses, some.lengths, some.memory).attachments()
    ]
