"""Attach rowsets that were built outside: their rows come to the tablet by one small log record, not row by row.

 1. The keys are looked up, some thousands at a time: every row must be new. From before that on, the tablet notes which
    keys come to it (`NewKeys`). The base file is written and synced; the rowset gets a slot (`StagedRowSet`).
 2. Under the write lock: if none of the keys that came is one of the rowset's, the commit is logged, with no more than
    the ids of its rowsets, and they stand in the tablet's version. So the lock is held for as long as it takes to look
    at the keys that came since they were last looked at. Every row is born at the commit's timestamp
    (`RowsetEntry.born`). Look-ups search the rowset by its Bloom filter until the key index has it, like any that is
    not indexed.
 3. The manifest names the rowset when the record is durable (`name_attached`). Until the manifest is written next, the
    log record stands in for that (`with_logged`): the log is not freed before, and an opening reads it first of all.

A crash before the record leaves files that nothing names, which the next start sweeps. One commit may attach many
rowsets, to many tablets; those of one tablet may not share keys, which is for whoever built them to see to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..manifest.environment import Environment
from ..manifest.manifest import Manifest, RowsetEntry
from ..record.change import Attachment, unpack_attachments
from ..rowset.diskrowset import DiskRowSet
from ..vectors.keys import KeyVector, hash_keys, slice_keys
from ..wal.format import LogRecord
from .tablet import Tablet

_KEYS_AT_ONCE = 1 << 14
"""Keys that are looked up without letting go of the lock."""


class NewKeys:
    """The keys of rows that are to come to a tablet as new ones, and whether they still are."""

    def __init__(self, tablet: Tablet, hashes: np.ndarray) -> None:
        """Note from now on which keys come to the tablet. ``hashes`` are those of the keys, in any order."""
        self.tablet = tablet
        self.hashes = hashes
        self._ascending: np.ndarray | None = None
        self._seen = 0
        self._met = False
        with tablet.write_lock:
            self._watch = tablet.watch()

    def are_absent(self, keys: KeyVector) -> bool:
        """Look the keys up, some at a time; return whether no rowset has one of them, alive or dead."""
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            part = slice_keys(keys, first, min(first + _KEYS_AT_ONCE, len(keys)))
            with self.tablet.write_lock:
                locations, _ = self.tablet.find(part, hash_keys(part))
            if (locations >= 0).any():
                return False
        return True

    def are_still_new(self) -> bool:
        """Whether none has come since; quick when this was asked just before. The answer holds under the write lock.

        Hashes are compared: that two keys share theirs is rare, and only means that the answer is no.
        """
        while self._seen < len(self._watch) and not self._met:
            came = self._watch[self._seen]
            if self._ascending is None:
                self._ascending = np.sort(self.hashes)
            places = np.searchsorted(self._ascending, came)
            places[places == len(self._ascending)] = 0
            self._met = bool((self._ascending[places] == came).any())
            self._seen += 1
        return not self._met

    def forget(self) -> None:
        """Note no more keys."""
        with self.tablet.write_lock:
            self.tablet.unwatch(self._watch)


class StagedRowSet:
    """A rowset that is ready to be attached. Unless that follows, ``give_up`` must."""

    def __init__(self, rowset: DiskRowSet, keys: NewKeys, hashes: np.ndarray) -> None:
        """Give a slot to an open ``rowset`` that has those of ``keys`` with these hashes.

        Raises:
            UnavailableError: the tablet has as many rowsets as it can.
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
        """The tablet that the rows belong to."""
        return self.keys.tablet

    @property
    def attachment(self) -> Attachment:
        """What the log record says."""
        rowset, numbered = self.rowset, self.tablet.schema.auto_incrementing
        zones = rowset.zone_maps(numbered.id, 0, len(rowset)) if numbered else []
        return Attachment(
            tablet_id=self.tablet.tablet_id,
            rowset=rowset.rowset_id,
            rows=len(rowset),
            last_auto_id=max((zone.max for zone in zones if isinstance(zone.max, int)), default=None),
        )

    def give_up(self) -> None:
        """Free the slot, which nothing names, and let go of the files; removing them is up to the caller."""
        with self.tablet.write_lock:
            self.tablet.drop_slot(self.rowset.slot)
        self.rowset.close()


def attach(staged: Sequence[StagedRowSet], timestamp: int, lsn: int) -> None:
    """Let the rows of rowsets be born by a commit that is logged, under the write locks; all keys are still new."""
    for one in staged:
        one.is_logged = True
    for one in staged:
        one.tablet.attach(one.rowset, one.hashes, timestamp, lsn)


def name_attached(tablet: Tablet, environment: Environment) -> int:
    """Enter the attached rowsets of a tablet in the manifest; return how many. The caller holds the maintenance lock.

    Nothing is written: the log tells of them until the manifest is written next.

    Raises:
        UnavailableError: the log has failed.
    """
    if not tablet.version.attached:
        return 0
    with tablet.write_lock:  # all rowsets of a commit: those at one log position are entered together or never
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
    """Return the manifest's entry of a rowset that the commit at ``timestamp`` and log position ``lsn`` attached."""
    return RowsetEntry(id=rowset_id, durable_lsn=lsn, born=timestamp)


def with_logged(manifest: Manifest, attached: Iterable[tuple[int, RowsetEntry]]) -> Manifest:
    """Return the manifest with the rowsets that the log attaches, given as (tablet id, entry) in the order of the log.

    Those of tablets that are gone are passed over, and those that it knew before.
    """
    by_tablet: dict[int, list[RowsetEntry]] = {}
    for tablet_id, entry in attached:
        by_tablet.setdefault(tablet_id, []).append(entry)
    for tablet_id, entries in by_tablet.items():
        manifest = manifest.with_tablet(tablet_id, lambda tablet, found=entries: tablet.with_attached(found))
    return manifest


def logged_attachments(records: Iterable[LogRecord]) -> list[tuple[int, RowsetEntry]]:
    """Return the rowsets that log records attach, each with the id of its tablet, in the order of the log."""
    return [
        (attachment.tablet_id, entry_of(attachment.rowset, record.timestamp, record.lsn))
        for record in records
        for attachment in unpack_attachments(record.payload, record.lsn)
    ]
