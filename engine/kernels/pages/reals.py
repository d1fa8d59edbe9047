"""Floating point numbers as the integers of their bits, for blocks that were no decimals.

What makes them wide are the few numbers that are close to zero: their exponents are far from those of the others. So
integers count from the largest number down, and small numbers become exceptions. If there are numbers of both signs,
the sign goes to the lowest bit, and takes one. Cell i of a block is

    not (base + packed[i]), rotated to the right by ``turn`` bits

where ``turn``, 0 or 1, stands in the frame in place of the slope. Packed integers and exceptions are those of `frames`.
(ALP-RD, of the article that `decimals` names, cuts numbers in two, and keeps a dictionary of the front halves.)
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import view_i64, view_u32, view_u64
from ..simd.widths import store_cell
from .bit_packing import packed_bytes, unpack_bits
from .frames import (
    REAL,
    block_bytes,
    frame_base,
    frame_exceptions,
    frame_slope,
    frame_width,
    pack_block,
    patch,
    pick_width,
)

_WORD = np.uint64(0xFFFFFFFF)


@kernel
def pack_bits_of_reals(
    cells: int, values: int, rows: int, cell_bytes: int, frame: int, start: int, end: int, data: int, scratch: int
) -> int:
    """Write a block of a page in form REAL, and its frame, over one that ends at ``end`` unless that is smaller; return
    where the block ends.

    Otherwise as `frames.pack_integers`.
    """
    numbers, offsets = view_i64(values, rows), view_u64(scratch, rows)
    either, both = np.int64(0), np.int64(-1)
    for i in range(rows):
        either |= numbers[i]
        both &= numbers[i]
    turn = np.int64(either < 0 and both >= 0)
    bits = np.uint64(8 * cell_bytes)
    mask = ~np.uint64(0) >> (np.uint64(64) - bits)
    for i in range(rows):
        number = np.uint64(numbers[i])
        if turn != 0:
            number = (number << np.uint64(1)) | ((number & mask) >> (bits - np.uint64(1)))
        offsets[i] = ~number & mask
    base = offsets[0]
    for i in range(rows):
        base = min(base, offsets[i])
    for i in range(rows):
        offsets[i] -= base
    width = pick_width(scratch, rows, cell_bytes)
    if block_bytes(scratch, rows, cell_bytes, width) >= end - start:
        return end
    return pack_block(cells, scratch, rows, cell_bytes, frame, np.int64(base), turn, width, REAL, start, data)


@kernel
def unpack_reals(frame: int, source: int, rows: int, cell_bytes: int, target: int) -> None:
    """Write the cells of a page's block of form REAL that begins at ``source``."""
    base, turn, width = frame_base(frame), np.uint64(frame_slope(frame)), frame_width(frame)
    unpack_bits(source, rows, width, base, cell_bytes, target)
    if cell_bytes == 8:
        longs = view_u64(target, rows)
        back = np.uint64(64) - turn if turn != 0 else np.uint64(0)
        for i in range(rows):
            longs[i] = (~longs[i] >> turn) | (~longs[i] << back)
    else:
        words = view_u32(target, rows)
        back = np.uint64(32) - turn if turn != 0 else np.uint64(0)
        for i in range(rows):
            word = ~np.uint64(words[i]) & _WORD
            words[i] = np.uint32(((word >> turn) | (word << back)) & _WORD)
    patch(source + packed_bytes(rows, width), frame_exceptions(frame), cell_bytes, target)


@inline
def store_real(packed, turn, cell_bytes, target):
    """Write the cell of a page's block in form REAL whose packed integer, with its base, is ``packed``."""
    bits = np.uint64(8 * cell_bytes)
    mask = ~np.uint64(0) >> (np.uint64(64) - bits)
    number = ~np.uint64(packed) & mask
    if turn != 0:
        number = (number >> np.uint64(1)) | (number << (bits - np.uint64(1)))
    store_cell(target, cell_bytes, np.int64(number))
