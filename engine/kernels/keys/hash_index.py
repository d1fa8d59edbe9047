"""The open-addressing hash table of `rowset.key_index`: linear probing, deletion by shifting back.

An entry is a slot (uint64) and, in a second array, 32 more bits of its hash::

    slot       63          40 39                        0      0 = empty
               | tag, 24 bit | location, 40 bit          |
    hash bits  31                                      0
               | upper half of the hash: gives the home  |

The home of an entry is ``hash bits * capacity >> 32``, so that a capacity need not be a power of
two, and so that entries lie in the order of their hash bits: growing the table reads and writes
memory in sequence. The tag is the low 24 bits of the hash (1 instead of 0), which say nothing about
the home. Looking up touches slots only; hash bits are there for growing and for shifting back.

Each kernel works in groups: first it asks for the cache lines of all keys of a group, then it visits
them, so that the misses overlap.
"""

import numpy as np

from ..ahead.kernel import inline, kernel, short_kernel
from ..simd.simd import load_u64, prefetch, view_i64, view_u32, view_u64
from .hashing import hash_string, hash_word

TAG_BITS = 24
LOCATION_BITS = 40

_GROUP = 64
_LOCATION_MASK = np.uint64((1 << LOCATION_BITS) - 1)
_TAG_SHIFT = np.uint64(LOCATION_BITS)
_HALF = np.uint64(32)
_EMPTY = np.uint64(0)


@inline
def _home(hash_bits, capacity):
    return np.int64((np.uint64(hash_bits) * np.uint64(capacity)) >> _HALF)


@inline
def tag_of(hashed):
    """Return the tag of a key's hash in its place in a slot; never 0, so that a slot in use is never 0."""
    tag = hashed << _TAG_SHIFT
    return tag if tag != 0 else np.uint64(1) << _TAG_SHIFT


@inline
def _next(slot, capacity):
    return slot + 1 if slot + 1 < capacity else 0


@inline
def matching(table, slot, capacity, tag):
    """Return the first slot of a key index from ``slot`` on with this tag, or -1 if an empty one comes first."""
    while table[slot] != _EMPTY:
        if table[slot] & ~_LOCATION_MASK == tag:
            return slot
        slot = _next(slot, capacity)
    return np.int64(-1)


@inline
def _holding(table, slot, capacity, entry):
    """Return the first slot from ``slot`` on that holds exactly ``entry``, or -1."""
    while table[slot] != _EMPTY:
        if table[slot] == entry:
            return slot
        slot = _next(slot, capacity)
    return np.int64(-1)


@kernel
def find_candidates(slots, capacity, hashes, count, locations, positions, cursors):
    """Look up each key in a hash index as far as its tag goes; return the number of candidates.

    Writes to ``locations`` (int64) the location of the first entry with the key's tag, or -1. For
    each key that has one, its number goes to ``positions`` and the entry's slot to ``cursors``.
    """
    table = view_u64(slots, capacity)
    hashed = view_u64(hashes, count)
    found = view_i64(locations, count)
    candidates = view_i64(positions, count)
    places = view_i64(cursors, count)
    candidate_count = np.int64(0)
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            prefetch(slots + 8 * _home(hashed[i] >> _HALF, capacity))
        for i in range(first, last):
            home = _home(hashed[i] >> _HALF, capacity)
            slot = matching(table, home, capacity, tag_of(hashed[i]))
            found[i] = -1
            if slot >= 0:
                found[i] = np.int64(table[slot] & _LOCATION_MASK)
                candidates[candidate_count] = i
                places[candidate_count] = slot
                candidate_count += 1
    return candidate_count


@kernel
def next_candidates(slots, capacity, hashes, count, locations, positions, cursors, position_count):
    """Go on with keys whose candidates in a hash index were other keys; return how many have one more.

    ``positions`` and ``cursors`` are read and written, as `find_candidates` writes them.
    """
    table = view_u64(slots, capacity)
    hashed = view_u64(hashes, count)
    found = view_i64(locations, count)
    candidates = view_i64(positions, position_count)
    places = view_i64(cursors, position_count)
    candidate_count = np.int64(0)
    for i in range(position_count):
        position = candidates[i]
        after = _next(places[i], capacity)
        slot = matching(table, after, capacity, tag_of(hashed[position]))
        found[position] = -1
        if slot >= 0:
            found[position] = np.int64(table[slot] & _LOCATION_MASK)
            candidates[candidate_count] = position
            places[candidate_count] = slot
            candidate_count += 1
    return candidate_count


@kernel
def insert(slots, hash_bits, capacity, hashes, locations, count):
    """Add an entry to a hash index for each key, none of which is there."""
    table = view_u64(slots, capacity)
    halves = view_u32(hash_bits, capacity)
    hashed = view_u64(hashes, count)
    located = view_u64(locations, count)
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            home = _home(hashed[i] >> _HALF, capacity)
            prefetch(slots + 8 * home)
            prefetch(hash_bits + 4 * home)
        for i in range(first, last):
            half = np.uint32(hashed[i] >> _HALF)
            slot = _home(half, capacity)
            while table[slot] != _EMPTY:
                slot = _next(slot, capacity)
            table[slot] = tag_of(hashed[i]) | located[i]
            halves[slot] = half


@short_kernel
def add(slots: int, hash_bits: int, capacity: int, key: int, length: int, location: int) -> None:
    """Add an entry to a hash index for one absent key: ``length`` bytes at ``key``; with a negative ``length``, one
    uint64."""
    hashed = hash_word(load_u64(key)) if length < 0 else hash_string(key, length)
    table = view_u64(slots, capacity)
    half = np.uint32(hashed >> _HALF)
    slot = _home(half, capacity)
    while table[slot] != _EMPTY:
        slot = _next(slot, capacity)
    table[slot] = tag_of(hashed) | np.uint64(location)
    view_u32(hash_bits, capacity)[slot] = half


@kernel
def rehash(slots, hash_bits, capacity, new_slots, new_hash_bits, new_capacity):
    """Copy all entries of a hash index of keys into an empty table."""
    table = view_u64(slots, capacity)
    halves = view_u32(hash_bits, capacity)
    new_table = view_u64(new_slots, new_capacity)
    new_halves = view_u32(new_hash_bits, new_capacity)
    for old in range(capacity):
        if table[old] != _EMPTY:
            slot = _home(halves[old], new_capacity)
            while new_table[slot] != _EMPTY:
                slot = _next(slot, new_capacity)
            new_table[slot] = table[old]
            new_halves[slot] = halves[old]


@kernel
def relocate(slots, capacity, hashes, old_locations, new_locations, count):
    """Change the location of keys in a hash index, in place; return how many were not found."""
    table = view_u64(slots, capacity)
    hashed = view_u64(hashes, count)
    old = view_u64(old_locations, count)
    new = view_u64(new_locations, count)
    missing = np.int64(0)
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            prefetch(slots + 8 * _home(hashed[i] >> _HALF, capacity))
        for i in range(first, last):
            tag = tag_of(hashed[i])
            slot = _holding(table, _home(hashed[i] >> _HALF, capacity), capacity, tag | old[i])
            if slot >= 0:
                table[slot] = tag | new[i]
            else:
                missing += 1
    return missing


@inline
def _shift_back(table, halves, capacity, hole):
    """Empty the slot ``hole``, moving back the entries after it that would lose their way home."""
    slot = _next(hole, capacity)
    while table[slot] != _EMPTY:
        home = _home(halves[slot], capacity)
        distance = slot - home if slot >= home else slot - home + capacity
        gap = slot - hole if slot >= hole else slot - hole + capacity
        if distance >= gap:
            table[hole] = table[slot]
            halves[hole] = halves[slot]
            hole = slot
        slot = _next(slot, capacity)
    table[hole] = _EMPTY


@kernel
def remove(slots, hash_bits, capacity, hashes, locations, count):
    """Take keys out of a hash index; return how many were not found."""
    table = view_u64(slots, capacity)
    halves = view_u32(hash_bits, capacity)
    hashed = view_u64(hashes, count)
    located = view_u64(locations, count)
    missing = np.int64(0)
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            home = _home(hashed[i] >> _HALF, capacity)
            prefetch(slots + 8 * home)
            prefetch(hash_bits + 4 * home)
        for i in range(first, last):
            home = _home(hashed[i] >> _HALF, capacity)
            slot = _holding(table, home, capacity, tag_of(hashed[i]) | located[i])
            if slot >= 0:
                _shift_back(table, halves, capacity, slot)
            else:
                missing += 1
    return missing
