"""Split-block Bloom filters: a key touches one block of 256 bits, one cache line, and one bit of each of its 8 words.

The block is chosen by the upper half of a key's hash, the bits by the lower half: bit ``low * SALT[i] >> 27`` of the
block's i-th 32-bit word. As in Impala, Kudu and Parquet (Putze, Sanders and Singler, "Cache-, Hash- and
Space-Efficient Bloom Filters", 2007), salts included. The bits stand on disk: nothing here may change.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import prefetch, view_i64, view_u8, view_u32, view_u64

BLOCK_BYTES = 32

_GROUP = 64
_HALF = np.uint64(32)
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


@inline
def _block_of(hashed, block_count):
    return np.int64(((hashed >> _HALF) * np.uint64(block_count)) >> _HALF)


@inline
def _bit(low, salt):
    """Return the one bit that a key sets in a word; ``low`` is the lower half of its hash, as a uint64."""
    product = (low * np.uint64(salt)) & np.uint64(0xFFFFFFFF)
    return np.uint32(np.uint64(1) << (product >> np.uint64(27)))


@kernel
def add_to_filter(blocks, block_count, hashes, count):
    """Set the bits of each key's hash (uint64) in a Bloom filter of ``block_count`` blocks."""
    hashed = view_u64(hashes, count)
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            prefetch(blocks + BLOCK_BYTES * _block_of(hashed[i], block_count))
        for i in range(first, last):
            low = hashed[i] & np.uint64(0xFFFFFFFF)
            words = view_u32(blocks + BLOCK_BYTES * _block_of(hashed[i], block_count), 8)
            words[0] |= _bit(low, _SALT[0])
            words[1] |= _bit(low, _SALT[1])
            words[2] |= _bit(low, _SALT[2])
            words[3] |= _bit(low, _SALT[3])
            words[4] |= _bit(low, _SALT[4])
            words[5] |= _bit(low, _SALT[5])
            words[6] |= _bit(low, _SALT[6])
            words[7] |= _bit(low, _SALT[7])


@inline
def _missing(words, low):
    """Return the bits of a key that its block lacks; 0 when it has all."""
    return (
        (_bit(low, _SALT[0]) & ~words[0])
        | (_bit(low, _SALT[1]) & ~words[1])
        | (_bit(low, _SALT[2]) & ~words[2])
        | (_bit(low, _SALT[3]) & ~words[3])
        | (_bit(low, _SALT[4]) & ~words[4])
        | (_bit(low, _SALT[5]) & ~words[5])
        | (_bit(low, _SALT[6]) & ~words[6])
        | (_bit(low, _SALT[7]) & ~words[7])
    )


@kernel
def probe_filter(pages, page_shift, block_count, hashes, count, result):
    """Write for each key's hash whether all its bits are set in a Bloom filter (one byte, 0 or 1).

    The filter lies in pages of ``1 << page_shift`` blocks, whose addresses are the int64 at ``pages``.
    """
    last_page = (block_count - 1) >> page_shift
    addresses = view_i64(pages, last_page + 1)
    hashed = view_u64(hashes, count)
    found = view_u8(result, count)
    mask = (1 << page_shift) - 1
    for first in range(0, count, _GROUP):
        last = min(first + _GROUP, count)
        for i in range(first, last):
            block = _block_of(hashed[i], block_count)
            prefetch(addresses[block >> page_shift] + BLOCK_BYTES * (block & mask))
        for i in range(first, last):
            block = _block_of(hashed[i], block_count)
            words = view_u32(addresses[block >> page_shift] + BLOCK_BYTES * (block & mask), 8)
            found[i] = _missing(words, hashed[i] & np.uint64(0xFFFFFFFF)) == 0
