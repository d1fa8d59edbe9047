"""The key index: from the hash of a primary key to the location of its row.

A tablet has one hash table for its DiskRowSets, whatever their number, so that looking up a key costs one cache miss
and one comparison with the real key; a MemRowSet has its own. A slot holds 24 bits of the hash and a location of 40
bits, which only the caller interprets. Two keys may look alike (they share tag and neighbourhood, one pair in about ten
million), so `find` asks the caller to compare the keys themselves.

Memory: 12 bytes a slot (8, and 4 of hash bits that let the table grow without reading keys), at most
70 % of the slots in use: 17 bytes a key after `reserve` or just before growing, 34 just after.

Not thread-safe: writers, and readers beside writers, hold the tablet's write lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import numpy as np

from ..kernels.keys import hash_index as kernels
from ..kernels.reads.point_read import locate
from ..vectors.memory.memory import address_of, allocate
from ..vectors.memory.reserved import TABLES

Verify = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(positions int64[m] in the batch looked up, locations int64[m]) -> bool[m]: whether the key is there"""

Lock = AbstractContextManager[object]
"""Held while the table is changed, so that look-ups come between changes."""
NO_LOCK: Lock = nullcontext()

_MAX_LOAD = 0.7
_FIRST_CAPACITY = 1024
_ENTRY_BYTES = 12
_LARGE_BYTES = 1 << 20
LOCATION_MAX = (1 << kernels.LOCATION_BITS) - 1


class KeyIndex:
    """Maps the keys of a tablet, alive or dead, to locations: integers from 0 to 2**40 - 1."""

    def __init__(self, key_count: int = 0) -> None:
        """Make an empty index with room for ``key_count`` keys."""
        self._key_count = 0
        self._make_table(_capacity_for(key_count))

    @staticmethod
    def bytes_for(key_count: int) -> int:
        """Return the bytes of memory that an index with room for ``key_count`` keys takes."""
        return _capacity_for(key_count) * _ENTRY_BYTES

    @property
    def room(self) -> int:
        """How many keys fit before it must grow."""
        return self._room

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._key_count

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the table takes."""
        return self._slots.nbytes + self._hash_bits.nbytes

    def find(self, hashes: np.ndarray, verify: Verify) -> np.ndarray:
        """Return the location (int64) of each key, -1 for an absent key.

        ``hashes`` are the keys' 64-bit hashes (uint64). ``verify`` is called with all candidates at once. The search
        continues for those that are other keys, and calls it again if there are more candidates.
        """
        count = len(hashes)
        locations = allocate(count, np.int64)
        positions, cursors = allocate(count, np.int64), allocate(count, np.int64)
        search = (
            address_of(self._slots),
            self._capacity,
            address_of(hashes),
            count,
            address_of(locations),
            address_of(positions),
            address_of(cursors),
        )
        candidates = kernels.find_candidates(*search)
        while candidates:
            at = positions[:candidates].copy()
            other = np.flatnonzero(~verify(at, locations[at]))
            positions[: len(other)] = at[other]
            cursors[: len(other)] = cursors[other]
            candidates = kernels.next_candidates(*search, len(other)) if len(other) else 0
        return locations

    def locate(self, key: int, length: int) -> int:
        """Return the location of a key that is a uint64 at the address ``key``, or ``length`` bytes if not negative; -1
        if it is absent. Rarely it is another key's."""
        return locate(self._address, self._capacity, key, length)

    @property
    def table(self) -> tuple[int, int]:
        """The address of the table, and its slots: for `locate_keys`, under the tablet's write lock."""
        return self._address, self._capacity

    def insert(self, hashes: np.ndarray, locations: np.ndarray, lock: Lock = NO_LOCK) -> None:
        """Add keys that are known to be absent. Locations are int64. Changes the table under ``lock``."""
        _check(hashes, locations)
        keys = address_of(hashes), address_of(locations), len(hashes)
        with lock:
            self.reserve(self._key_count + len(hashes))
            kernels.insert(address_of(self._slots), address_of(self._hash_bits), self._capacity, *keys)
            self._key_count += len(hashes)

    def add(self, key: int, length: int, location: int) -> None:
        """Add one key, given as to ``locate``, that is known to be absent."""
        if self._key_count >= self._room:
            self.reserve(self._key_count + 1)
        kernels.add(self._address, self._bits_address, self._capacity, key, length, location)
        self._key_count += 1

    def relocate(
        self, hashes: np.ndarray, old_locations: np.ndarray, new_locations: np.ndarray, lock: Lock = NO_LOCK
    ) -> None:
        """Change the locations of present keys, in place, under ``lock``.

        No new location may be among the old ones: rows move to a rowset that is new to the index. Raises KeyError if a
        key was not at its old location; the others have moved.
        """
        _check(hashes, old_locations)
        _check(hashes, new_locations)
        table = address_of(self._slots), self._capacity
        keys = address_of(hashes), address_of(old_locations), address_of(new_locations), len(hashes)
        with lock:
            missing = kernels.relocate(*table, *keys)
        if missing:
            raise KeyError(f"{missing} of {len(hashes)} keys are not at their old locations")

    def remove(self, hashes: np.ndarray, locations: np.ndarray, lock: Lock = NO_LOCK) -> None:
        """Remove present keys, under ``lock``.

        Raises KeyError if a key was not at its location; the others are removed.
        """
        _check(hashes, locations)
        table = address_of(self._slots), address_of(self._hash_bits), self._capacity
        keys = address_of(hashes), address_of(locations), len(hashes)
        with lock:
            missing = int(kernels.remove(*table, *keys))
            self._key_count -= len(hashes) - missing
        if missing:
            raise KeyError(f"{missing} of {len(hashes)} keys are not at their locations")

    def reserve(self, key_count: int) -> None:
        """Make room for ``key_count`` keys in all.

        A table that must grow at least doubles, so that growing is amortised.
        """
        if key_count <= self.room:
            return
        larger = self._copied_to(max(_capacity_for(key_count), 2 * self._capacity))
        self._slots, self._hash_bits = larger._slots, larger._hash_bits
        self._capacity, self._room = larger._capacity, larger._room
        self._address, self._bits_address = larger._address, larger._bits_address

    def copy_for(self, key_count: int) -> KeyIndex:
        """Return a copy of the index with room for ``key_count`` keys in all, no fewer than it has.

        Meanwhile this one may be read, not changed.
        """
        return self._copied_to(_capacity_for(max(key_count, self._key_count)))

    def _copied_to(self, capacity: int) -> KeyIndex:
        copy = KeyIndex()
        copy._make_table(capacity)
        copy._key_count = self._key_count
        kernels.rehash(
            address_of(self._slots),
            address_of(self._hash_bits),
            self._capacity,
            address_of(copy._slots),
            address_of(copy._hash_bits),
            capacity,
        )
        return copy

    def _make_table(self, capacity: int) -> None:
        self._capacity = capacity
        self._room = int(capacity * _MAX_LOAD) - 1
        self._slots = _zeros(capacity, np.uint64)
        self._address = address_of(self._slots)
        self._hash_bits = _zeros(capacity, np.uint32)
        self._bits_address = address_of(self._hash_bits)


def _zeros(count: int, dtype: type) -> np.ndarray:
    """Return zeros: many of them on huge pages, which random access needs."""
    size = count * np.dtype(dtype).itemsize
    if size >= _LARGE_BYTES:
        with suppress(OSError):
            return TABLES.zeroed(size)[:size].view(dtype)
    return np.zeros(count, dtype)


def _capacity_for(key_count: int) -> int:
    """Return enough slots for ``key_count`` keys, with one always free."""
    return max(_FIRST_CAPACITY, int((key_count + 1) / _MAX_LOAD) + 2)


def _check(hashes: np.ndarray, locations: np.ndarray) -> None:
    assert hashes.dtype == np.uint64, "hashes are uint64"
    assert locations.dtype == np.int64, "locations are int64"
    assert len(hashes) == len(locations), "one location a key"
    assert not len(locations) or 0 <= locations.min() <= locations.max() <= LOCATION_MAX
