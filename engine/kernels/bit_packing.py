"""Integers of a fixed number of bits, one behind the other, so that any of them is one load and two instructions away.

Value i begins at bit i x width, counted from the lowest bit of the first byte. A load takes 8 bytes from the byte in
which a value begins; so that it has all bits, widths are 0 to 57, or 64.
"""

import numpy as np

from .kernel import inline, kernel
from .simd.simd import load_u64, store_u64, view_u64

LOAD_BYTES = 8
"""How far a read of the last value may reach past the byte in which it begins."""

WIDEST = 57
WHOLE = 64


@inline
def packed_bytes(count, width):
    """Return the bytes that ``count`` values take."""
    return (count * width + 7) >> 3


@inline
def mask_of(width):
    return ~np.uint64(0) if width == WHOLE else (np.uint64(1) << np.uint64(width)) - np.uint64(1)


@kernel
def pack_bits(values: int, count: int, width: int, target: int) -> int:
    """Write the lower ``width`` bits of ``count`` values (uint64); return the bytes written.

    ``target`` needs LOAD_BYTES more.
    """
    cells = view_u64(values, count)
    mask = mask_of(width)
    if width == WHOLE:
        for i in range(count):
            store_u64(target + 8 * i, cells[i])
        return 8 * count
    word, filled, place = np.uint64(0), np.uint64(0), target
    bits = np.uint64(width)
    for i in range(count):
        word |= (cells[i] & mask) << filled
        filled += bits
        # Whole bytes leave the register; at most 7 bits stay, and 57 more fit.
        store_u64(place, word)
        place += np.int64(filled >> np.uint64(3))
        word = np.uint64(0) if filled == np.uint64(WHOLE) else word >> (filled & ~np.uint64(7))
        filled &= np.uint64(7)
    return packed_bytes(count, width)


@inline
def load_bits(source, i, width):
    """Return value ``i`` (uint64)."""
    bit = i * width
    return (load_u64(source + (bit >> 3)) >> np.uint64(bit & 7)) & mask_of(width)


@inline
def unpack_bits(source, count, width, base, target):
    """Write ``base`` plus each value to the cells of ``target``, a view of integers of any width.

    Eight values begin at the same bits of their bytes as the eight before: their places are computed once.
    """
    mask = mask_of(width)
    place1, shift1 = width >> 3, np.uint64(width & 7)
    place2, shift2 = (2 * width) >> 3, np.uint64((2 * width) & 7)
    place3, shift3 = (3 * width) >> 3, np.uint64((3 * width) & 7)
    place4, shift4 = (4 * width) >> 3, np.uint64((4 * width) & 7)
    place5, shift5 = (5 * width) >> 3, np.uint64((5 * width) & 7)
    place6, shift6 = (6 * width) >> 3, np.uint64((6 * width) & 7)
    place7, shift7 = (7 * width) >> 3, np.uint64((7 * width) & 7)
    eights = count >> 3
    for eight in range(eights):
        i, at = 8 * eight, source + eight * width
        target[i] = base + np.int64(load_u64(at) & mask)
        target[i + 1] = base + np.int64((load_u64(at + place1) >> shift1) & mask)
        target[i + 2] = base + np.int64((load_u64(at + place2) >> shift2) & mask)
        target[i + 3] = base + np.int64((load_u64(at + place3) >> shift3) & mask)
        target[i + 4] = base + np.int64((load_u64(at + place4) >> shift4) & mask)
        target[i + 5] = base + np.int64((load_u64(at + place5) >> shift5) & mask)
        target[i + 6] = base + np.int64((load_u64(at + place6) >> shift6) & mask)
        target[i + 7] = base + np.int64((load_u64(at + place7) >> shift7) & mask)
    for i in range(8 * eights, count):
        target[i] = base + np.int64(load_bits(source, i, width))
