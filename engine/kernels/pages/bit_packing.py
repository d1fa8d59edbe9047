"""Integers of a fixed number of bits, one behind the other, so that any of them is one load and two instructions away.

Value i begins at bit i x width, counted from the lowest bit of the first byte. A load takes 8 bytes from the byte in
which a value begins; so that it has all bits, widths are 0 to 57, or 64.
"""

import numpy as np

from ..ahead.form import FORM, Form
from ..ahead.kernel import inline, kernel
from ..simd.simd import load_u64, store_u64, view_i8, view_i16, view_i32, view_i64, view_u64

LOAD_BYTES = 8
"""How far a read of the last value may reach past the byte in which it begins."""

WIDEST = 57
WHOLE = 64

_NARROW = 25
"""The most bits of a value that is moved in a lane of 4 bytes."""

CAN_UNPACK = False
if FORM is Form.JIT:
    from ..simd.unpack_llvm import CAN_UNPACK, make_unpack_eights

    _unpack_narrow8 = make_unpack_eights(8, 4)
    _unpack_narrow4 = make_unpack_eights(4, 4)
    _unpack_narrow2 = make_unpack_eights(2, 4)
    _unpack_narrow1 = make_unpack_eights(1, 4)
    _unpack_wide8 = make_unpack_eights(8, 8)
    _unpack_wide4 = make_unpack_eights(4, 8)


@inline
def packed_bytes(count, width):
    """Return the bytes that ``count`` values of a page take when packed to ``width`` bits."""
    return (count * width + 7) >> 3


@inline
def mask_of(width):
    return ~np.uint64(0) if width == WHOLE else (np.uint64(1) << np.uint64(width)) - np.uint64(1)


@kernel
def pack_bits(values: int, count: int, width: int, target: int) -> int:
    """Pack values of a page: write the lower ``width`` bits of ``count`` of them (uint64); return the bytes written.

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
    """Return packed value ``i`` of a page (uint64)."""
    bit = i * width
    return (load_u64(source + (bit >> 3)) >> np.uint64(bit & 7)) & mask_of(width)


@inline
def _fill(cells, first, count, source, width, base, spare):
    """Write values; ``spare`` is how many bits cells are smaller than an int64."""
    if width == 0:
        for i in range(count):
            cells[i] = (np.int64(base) << spare) >> spare
    else:
        for i in range(first, count):
            cells[i] = ((base + np.int64(load_bits(source, i, width))) << spare) >> spare


@kernel
def unpack_bits(source: int, count: int, width: int, base: int, cell_bytes: int, target: int) -> None:
    """Unpack values of a page: write ``base`` plus each, modulo their size, as integers of 1, 2, 4 or 8 bytes."""
    done, spare = np.int64(0), np.int64(64 - 8 * cell_bytes)
    if CAN_UNPACK and width > 0:
        done = _unpack_eights(source, count, width, base, cell_bytes, target)
    if cell_bytes == 8:
        _fill(view_i64(target, count), done, count, source, width, base, spare)
    elif cell_bytes == 4:
        _fill(view_i32(target, count), done, count, source, width, base, spare)
    elif cell_bytes == 2:
        _fill(view_i16(target, count), done, count, source, width, base, spare)
    else:
        _fill(view_i8(target, count), done, count, source, width, base, spare)


if CAN_UNPACK:

    @kernel
    def _unpack_eights(source: int, count: int, width: int, base: int, cell_bytes: int, target: int) -> int:
        """Do what `unpack_bits` does for the first values, without reading further than LOAD_BYTES behind the last one;
        return how many."""
        is_narrow = width <= _NARROW
        reach = (width >> 1 if is_narrow else (3 * width) >> 2) + (16 - LOAD_BYTES)
        eights = min(count >> 3, max(packed_bytes(count, width) - reach + width, 0) // width)
        if is_narrow:
            if cell_bytes == 8:
                _unpack_narrow8(source, eights, width, base, target)
            elif cell_bytes == 4:
                _unpack_narrow4(source, eights, width, base, target)
            elif cell_bytes == 2:
                _unpack_narrow2(source, eights, width, base, target)
            else:
                _unpack_narrow1(source, eights, width, base, target)
        elif cell_bytes == 8:
            _unpack_wide8(source, eights, width, base, target)
        elif cell_bytes == 4:
            _unpack_wide4(source, eights, width, base, target)
        else:
            return 0
        return 8 * eights
