"""Blocks of few distinct integers, far apart from each other: each once, and a short number for each cell.

The form DICTIONARY of a frame (see `frames`), such as of the timestamps of the few commits that wrote a block. The
block is the numbers, width bits x rows, and then the cells that they stand for, 2 to the power of ``width``, of which
the last ones may repeat: so no number can lead past them. Strings share a dictionary with the other pages of their
column; this one is in the block, which is still read alone.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy_bytes,
    leading_zeros64,
    view_i64,
    view_u8,
    view_u16,
    view_u32,
    view_u64,
)
from ..simd.widths import load_cell, store_cell
from .bit_packing import load_bits, pack_bits, packed_bytes, unpack_bits
from .frames import DICTIONARY, DICTIONARY_WIDEST, frame_width, write_frame

_SLOTS = 256
_SLOT_SHIFT = np.uint64(56)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: the upper bits of products are spread evenly (Knuth, TAOCP 3, 6.4)."""


@kernel
def pack_dictionary(
    values: int, rows: int, cell_bytes: int, frame: int, start: int, end: int, data: int, room: int
) -> int:
    """Write a block of a page again, with a dictionary, if that saves an eighth of it; return where it ends.

    It is at [start, end) after ``data``; ``values`` are its cells (int64). ``room`` is 8 bytes a row, and 16 a slot.
    """
    size, width = end - start, np.int64(0)
    while width < DICTIONARY_WIDEST:
        least = packed_bytes(rows, width + 1) + (cell_bytes << (width + 1))
        if least > size - (size >> 3):
            break
        width += 1
    if width == 0:
        return end
    count = _number_cells(values, rows, 1 << width, room)
    if count == 0:
        return end
    width = 64 - leading_zeros64(np.uint64(count - 1))
    distinct = view_i64(room + 8 * (rows + _SLOTS), _SLOTS)
    place = data + start
    place += pack_bits(room, rows, width, place)
    for number in range(1 << width):
        store_cell(place, cell_bytes, distinct[min(number, count - 1)])
        place += cell_bytes
    write_frame(frame, 0, 0, place - data, width, DICTIONARY, 1 << width)
    return place - data


@kernel
def _number_cells(values: int, rows: int, most: int, room: int) -> int:
    """Number the distinct cells in the order in which they come; return how many there are, 0 if more than ``most``.

    Writes the number of each cell (uint64) to ``room``; behind them are the slots, and then the distinct cells.
    """
    cells, numbers = view_i64(values, rows), view_u64(room, rows)
    slots, distinct = view_i64(room + 8 * rows, _SLOTS), view_i64(room + 8 * (rows + _SLOTS), _SLOTS)
    for slot in range(_SLOTS):
        slots[slot] = -1
    count = np.int64(0)
    for i in range(rows):
        slot = np.int64((np.uint64(cells[i]) * _MULTIPLIER) >> _SLOT_SHIFT)
        while slots[slot] >= 0 and distinct[slots[slot]] != cells[i]:
            slot = (slot + 1) & (_SLOTS - 1)
        if slots[slot] < 0:
            if count == most:
                return 0
            slots[slot], distinct[count] = count, cells[i]
            count += 1
        numbers[i] = np.uint64(slots[slot])
    return count


@inline
def _look_up(cells, place, width):
    """Put the cell of each number in its place; a cell's address is of no alignment."""
    for i in range(len(cells)):
        cells[i] = load_cell(place + np.int64(cells[i]) * width, width)


@kernel
def unpack_dictionary(frame: int, source: int, rows: int, cell_bytes: int, target: int) -> None:
    """Write the cells of a page's block with a dictionary that begins at ``source``."""
    width = frame_width(frame)
    place = source + packed_bytes(rows, width)
    unpack_bits(source, rows, width, np.int64(0), cell_bytes, target)
    if cell_bytes == 8:
        _look_up(view_u64(target, rows), place, 8)
    elif cell_bytes == 4:
        _look_up(view_u32(target, rows), place, 4)
    elif cell_bytes == 2:
        _look_up(view_u16(target, rows), place, 2)
    else:
        _look_up(view_u8(target, rows), place, 1)


@kernel
def read_dictionary_cell(frame: int, source: int, rows: int, cell_bytes: int, row: int, target: int) -> None:
    """Write one cell of a page's block with a dictionary that begins at ``source``."""
    width = frame_width(frame)
    place = source + packed_bytes(rows, width) + np.int64(load_bits(source, row, width)) * cell_bytes
    copy_bytes(target, place, cell_bytes)
