"""KeyLookup: finds the locations of keys in a tablet.

It searches three places, until every key is found:

1. each MemRowSet, which has its own hash index;
2. the key index: one hash table over the *indexed* DiskRowSets, whatever their number;
3. each other DiskRowSet, by its Bloom filter and a search (`DiskRowSet.find`).

Results are correct at any time, so a rowset may become indexed whenever there is time: after a flush, a compaction or
the opening of the tablet, a few thousand keys at a time under the write lock. As many rowsets are indexed as the
store's budget allows, newest first. When indexed rows move to another rowset, the slot of the old one holds their new
locations (`slots`), and look-ups use those until the index has followed.

A table that must grow is copied to a larger one beside writers, who only read it: only maintenance moves rows on disk,
one operation at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .. import threads
from ..kernels.reads.point_batch import locate_keys
from ..manifest.key_budget import KeyIndexBudget
from ..rowset.diskrowset import DiskRowSet
from ..rowset.key_index import KeyIndex
from ..rowset.location import ROWID_BITS, by_slot, pack, rowids_of, slots_of
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyVector, equal_at, hash_keys
from ..vectors.memory.memory import address_of, allocate
from .slots import Forwarded, Slots
from .unresolved_keys import Find, UnresolvedKeys
from .version import Version

KEYS_AT_ONCE = 1 << 14
"""Keys to move in the index before the write lock is released."""
_HEADROOM = 1.25
"""A table grows by this factor if the budget allows."""
_SEARCHES_WORTH_INDEXING = 8
"""A replay builds the index if it searches for one in this many of the keys that are not indexed: of many at once, a
Bloom filter takes as long for one as the index for two, and a search as the index for ten to some hundred."""

ABSENT, UNDECIDED = -1, -2
"""Results of ``KeyLookup.locate``."""

Mode = Literal["index", "partial", "search"]


@dataclass(frozen=True, slots=True, eq=False)
class MovedKeys:
    """The keys of a rowset whose rows have moved: each row's location, -1 if it is gone, and its key's hash."""

    slot: int
    locations: np.ndarray
    hashes: Iterable[tuple[int, np.ndarray]]
    """Ranges of rows: the first row, and the hashes from there on."""


def hashes_of(rowset: RowSet) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, hashes) for the keys of all rows of a tablet's rowset, some thousands at a time, computed on
    demand."""
    row_count = len(rowset)
    for first in range(0, row_count, KEYS_AT_ONCE):
        yield first, hash_keys(rowset.keys_in(first, min(first + KEYS_AT_ONCE, row_count)))


class KeyLookup:
    """The key index of one tablet. Look-ups need the tablet's write lock; the other methods say what they need."""

    def __init__(self, slots: Slots, budget: KeyIndexBudget) -> None:
        self._slots = slots
        self._budget = budget
        self._index: KeyIndex | None = None
        self._indexed: set[int] = set()
        """The slots of DiskRowSets whose keys are all in the index."""
        self._forwarded: set[int] = set()
        """The slots that were indexed and whose rows have moved. The index has keys of these and of indexed ones."""
        self._unreadable: set[int] = set()
        """The slots of DiskRowSets whose keys could not be read: a search may not need the corrupt page."""
        self._upkeep = threads.Lock()
        """Held to change the index; taken before the write lock."""
        self._wanted_once = False
        self._is_released = False
        self._searched_keys = 0

    # Look-ups, under the write lock

    def find(self, version: Version, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        """Return the location (int64) of each key, -1 if not found."""
        missing = self.find_in_memory(version, keys, hashes)
        if missing:
            for rowset in self.searched(version):
                self._searched_keys += len(missing)
                missing.ask(find_in(rowset))
        return missing.locations

    def locate(self, version: Version, key: int, length: int) -> int:
        """Return the location of one key, given as to ``KeyIndex.locate``, or ABSENT; rarely it is another key's.

        UNDECIDED if only ``find_in_memory`` and the ``searched`` rowsets can tell.
        """
        if self._budget.on_demand and not self._wanted_once:
            return UNDECIDED
        for memrowset in reversed(version.in_memory):
            if len(memrowset) and (row := memrowset.locate(key, length)) >= 0:
                return memrowset.slot << ROWID_BITS | row
        index = self._index
        if index is not None and (location := index.locate(key, length)) >= 0:
            return location
        return UNDECIDED if (version.disk or version.attached) and self.searched(version) else ABSENT

    def locate_all(self, version: Version, hashes: np.ndarray) -> np.ndarray | None:
        """Return the location (int64) of each key, -1 for an absent one; rarely it is another key's.

        None if only ``find`` can tell.
        """
        if self._budget.on_demand and not self._wanted_once:
            return None
        indexes = [
            (*rowset.index_table, rowset.slot << ROWID_BITS) for rowset in reversed(version.in_memory) if len(rowset)
        ]
        index = self._index  # held while the kernel reads it: it may be released meanwhile
        if index is not None:
            indexes.append((*index.table, 0))
        tables, found = np.array(indexes, np.int64), allocate(len(hashes), np.int64)
        where = address_of(hashes), len(hashes), address_of(found)
        if locate_keys(address_of(tables), len(indexes), *where) and self.searched(version):
            return None
        current = self._slots.current(found)
        return current if current is found or ((current < 0) == (found < 0)).all() else None

    def find_in_memory(self, version: Version, keys: KeyVector, hashes: np.ndarray) -> UnresolvedKeys:
        """Look up keys in MemRowSets and index; those still missing can only be in ``searched`` rowsets."""
        if self._budget.on_demand and not self._wanted_once:
            self._build_at_once(version)
        missing = UnresolvedKeys(keys, hashes)
        for memrowset in reversed(version.in_memory):
            if len(memrowset):
                missing.ask(find_in(memrowset))
        if self._index is not None:
            missing.ask(self._find_indexed)
        return missing

    def searched(self, version: Version) -> list[DiskRowSet]:
        """Return the DiskRowSets that are not indexed, newest first."""
        return [rowset for rowset in reversed(version.on_disk) if rowset.slot not in self._indexed]

    def _find_indexed(self, keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        index = self._index
        if index is None:
            return np.full(len(keys), -1, np.int64)

        def verify(positions: np.ndarray, candidates: np.ndarray) -> np.ndarray:
            same = np.zeros(len(positions), np.bool_)
            current = self._slots.current(candidates)
            there = np.flatnonzero(current >= 0)
            for slot, group in by_slot(current[there]):
                rows = there[group]
                stored = self._slots.rowset(slot).keys_at(rowids_of(current[rows]))
                same[rows] = equal_at(keys, positions[rows], stored, np.arange(len(rows)))
            return same

        return self._slots.current(index.find(hashes, verify))

    # What there is

    @property
    def is_on_demand(self) -> bool:
        """Whether the first look-up builds the index, instead of maintenance."""
        return self._budget.on_demand

    @property
    def nbytes(self) -> int:
        """Bytes of the index of DiskRowSets."""
        return 0 if self._index is None else self._index.nbytes

    @property
    def key_count(self) -> int:
        """Keys in the index of DiskRowSets."""
        return 0 if self._index is None else len(self._index)

    def mode(self, version: Version) -> Mode:
        """Return whether all DiskRowSets are indexed, some, or none."""
        if not self.searched(version):
            return "index"
        return "partial" if self._indexed else "search"

    def worth_indexing(self, version: Version) -> list[DiskRowSet]:
        """Return the DiskRowSets that are not indexed and would fit, newest first."""
        room = self._budget.free_bytes + self.nbytes
        key_count, chosen = self.key_count, []
        for rowset in self.searched(version):
            if rowset.slot not in self._unreadable and KeyIndex.bytes_for(key_count + len(rowset)) <= room:
                key_count += len(rowset)
                chosen.append(rowset)
        return chosen

    # Upkeep, under the tablet's maintenance lock

    def build(self, version: Version, write_lock: AbstractContextManager[object]) -> int:
        """Index as much of a version as fits, beside writers; return how many keys were added.

        An error while reading a rowset's keys excludes that rowset and empties the index, since the table may hold some
        of its keys. The next call indexes the others.
        """
        with self._upkeep:
            self._wanted_once = True
            return self._include(self.worth_indexing(version), write_lock)

    def build_for_searches(self, version: Version, key_count: int, worth: int = _SEARCHES_WORTH_INDEXING) -> None:
        """Index as much as fits if that is worth it for so many keys to be looked up, and those that were searched for
        before: a search costs as much as to index ``worth`` keys. The tablet must not be in use yet, but by those who
        look up keys under its write lock."""
        searched = self.searched(version)
        rows = sum(len(rowset) for rowset in searched)
        if rows and (self._searched_keys + key_count * len(searched)) * worth > rows:
            self._searched_keys = 0
            self.build(version, nullcontext())

    def forward(self, slot: int, locations: np.ndarray) -> None:
        """Take a rowset out of its slot, under the write lock: its rows are now at ``locations``, -1 if gone.
        ``follow`` updates the index later."""
        self._unreadable.discard(slot)
        if slot in self._indexed:
            self._indexed.remove(slot)
            self._forwarded.add(slot)
            self._slots.take(slot, Forwarded(locations))
        else:
            self._slots.drop(slot)

    def follow(
        self, moved: Sequence[MovedKeys], targets: Sequence[DiskRowSet], write_lock: AbstractContextManager[object]
    ) -> None:
        """Update the index for forwarded rowsets, whose rows are mostly in ``targets`` now.

        The targets become indexed if they fit in the budget. After an error the caller lets the index ``forget``.
        """
        with self._upkeep:
            # A first look-up may have built the index since the rows moved.
            targets = [rowset for rowset in targets if rowset.slot not in self._indexed]
            old = {keys.slot for keys in moved}.intersection(self._forwarded)
            new = np.array([rowset.slot for rowset in targets], np.int64)
            staying = sum(_count_live_in(new, keys.locations) for keys in moved if keys.slot in old)
            arriving = sum(len(rowset) for rowset in targets)
            if not arriving or not self._make_room(self.key_count + arriving - staying, write_lock):
                new = new[:0]
            for keys in moved:
                for first, hashes in keys.hashes:
                    self.relocate(keys, first, hashes, new, write_lock)
            with write_lock:
                for slot in old:
                    self._slots.drop(slot)
                self._forwarded.difference_update(old)
                self._indexed.update(new.tolist())
                self._give_back_if_empty()

    def relocate(
        self,
        keys: MovedKeys,
        first: int,
        hashes: np.ndarray,
        indexed: np.ndarray,
        write_lock: AbstractContextManager[object],
    ) -> None:
        """Move the keys of rows from ``first`` on, by their hashes.

        Keys now in the slots ``indexed`` end up in the index, others do not. Only the table itself is changed under the
        write lock: every numpy step there would be another wait for the interpreter.
        """
        new = np.ascontiguousarray(keys.locations[first : first + len(hashes)])
        stays = _live_in(indexed, new)
        if keys.slot not in self._forwarded:
            if stays.any():
                self._entries.insert(hashes[stays], new[stays], write_lock)
            return
        old = pack(keys.slot, np.arange(first, first + len(hashes)))
        if not stays.all():
            self._entries.remove(hashes[~stays], old[~stays], write_lock)
            hashes, old, new = hashes[stays], old[stays], new[stays]
        self._entries.relocate(hashes, old, new, write_lock)

    def forget(self, write_lock: AbstractContextManager[object]) -> None:
        """Empty the index, after an error while it followed. Look-ups search all rowsets until it is built anew."""
        with self._upkeep, write_lock:
            self._forget_all()
            self._wanted_once = False

    def release(self) -> None:
        """Release the memory, when the tablet is closed or dropped, and take none any more: nobody would give it
        back."""
        with self._upkeep:
            self._is_released = True
            self._budget.take(-self.nbytes)
            self._indexed, self._index = set(), None  # in this order: a look-up in between searches all rowsets

    # Inner workings

    @property
    def _entries(self) -> KeyIndex:
        assert self._index is not None, "there is room made before keys are put in, and keys before they move"
        return self._index

    def _build_at_once(self, version: Version) -> None:
        """Index as much as fits in one step under the write lock, which the caller holds."""
        if self._upkeep.acquire(blocking=False):
            try:
                self._include(self.worth_indexing(version), nullcontext())
                self._wanted_once = True
            finally:
                self._upkeep.release()

    def _include(self, rowsets: Sequence[DiskRowSet], write_lock: AbstractContextManager[object]) -> int:
        if not rowsets or not self._make_room(self.key_count + sum(map(len, rowsets)), write_lock):
            return 0
        for rowset in rowsets:
            try:
                self._include_one(rowset, write_lock)
            except BaseException:
                self._unreadable.add(rowset.slot)
                with write_lock:
                    self._forget_all()
                raise
        return sum(map(len, rowsets))

    def _include_one(self, rowset: DiskRowSet, write_lock: AbstractContextManager[object]) -> None:
        for first, hashes in hashes_of(rowset):
            locations = pack(rowset.slot, np.arange(first, first + len(hashes)))
            self._entries.insert(hashes, locations, write_lock)
        with write_lock:
            self._indexed.add(rowset.slot)

    def _forget_all(self) -> None:
        """Empty the index, under the write lock."""
        self._budget.take(-self.nbytes)
        for slot in self._forwarded:
            self._slots.drop(slot)
        self._forwarded, self._indexed, self._index = set(), set(), None

    def _make_room(self, key_count: int, write_lock: AbstractContextManager[object]) -> bool:
        """Make room in the table for ``key_count`` keys in all, if the budget allows; return whether there is room."""
        index = self._index
        if self._is_released:
            return False
        if index is not None and index.room >= key_count:
            return True
        for wanted in (int(key_count * _HEADROOM), key_count):
            more = KeyIndex.bytes_for(wanted) - self.nbytes
            if self._budget.take(more):
                try:
                    larger = KeyIndex(wanted) if index is None else index.copy_for(wanted)
                except BaseException as error:
                    self._budget.take(-more)
                    if isinstance(error, MemoryError):
                        return False
                    raise
                with write_lock:
                    self._index = larger
                return True
        return False

    def _give_back_if_empty(self) -> None:
        if self._index is not None and not len(self._index):
            self._budget.take(-self.nbytes)
            self._index = None


def find_in(rowset: RowSet) -> Find:
    """Return a function that finds keys in one rowset of a tablet."""

    def find(keys: KeyVector, hashes: np.ndarray) -> np.ndarray:
        rows = rowset.find(keys, hashes)
        return np.where(rows < 0, -1, pack(rowset.slot, rows))

    return find


def _count_live_in(slots: np.ndarray, locations: np.ndarray) -> int:
    """Return how many locations are in one of the slots; works on parts, as there may be many."""
    parts = (locations[first : first + KEYS_AT_ONCE] for first in range(0, len(locations), KEYS_AT_ONCE))
    return sum(int(np.count_nonzero(_live_in(slots, part))) for part in parts)


def _live_in(slots: np.ndarray, locations: np.ndarray) -> np.ndarray:
    """Return which locations are in one of the slots."""
    return np.isin(slots_of(locations), slots)  # the slot of -1 is negative
