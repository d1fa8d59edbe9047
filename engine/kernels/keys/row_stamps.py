"""When rows changed last, by the hashes of their keys: a timestamp for all rows that share a place.

A table of stamps has a power of two of timestamps (uint64). ``shift`` is 64 less its bits. Rows of several tables share
it: ``table`` goes into the hash.
"""

import numpy as np

from ..ahead.kernel import inline, kernel, short_kernel
from ..simd.simd import load_u64, store_u64, view_u64
from .hashing import hash_string, hash_word


@short_kernel
def stamp_of(stamps: int, shift: int, table: int, key: int, length: int) -> int:
    """Return the address of the stamp of a row. The key is ``length`` bytes at ``key``; with a negative ``length``, one
    uint64."""
    hashed = hash_word(load_u64(key)) if length < 0 else hash_string(key, length)
    return _place(stamps, shift, table, hashed)


@kernel
def stamp_rows(stamps: int, shift: int, table: int, hashes: int, count: int, timestamp: int) -> None:
    """Stamp the rows whose keys have these hashes (uint64)."""
    given = view_u64(hashes, count)
    for i in range(count):
        place = _place(stamps, shift, table, given[i])
        if load_u64(place) < np.uint64(timestamp):
            store_u64(place, np.uint64(timestamp))


@inline
def _place(stamps, shift, table, hashed):
    mixed = hash_word(hashed ^ np.uint64(table))
    return stamps + np.int64(mixed >> np.uint64(shift)) * 8
