"""Read the rows of a morsel window by window: at most a mini-block of each column that is needed, in the nearest cache.

A column is described as for `morsel.read_morsel`, as numbers or codes; its TARGET and VALID have room for one window
only. Windows follow one another in the order of rows, and may leave rows out.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..pages.blocks import BLOCK_ROWS
from ..simd.simd import copy_bytes, load_u64, store_u64
from .morsel import (
    COLUMN_FIELDS,
    DAMAGED,
    FIRST_ROW,
    LAST_ROW,
    PART_FIELDS,
    PARTS,
    PATCH_FIELDS,
    PATCHES,
    read_morsel,
)
from .morsel import SCRATCH_BYTES as MORSEL_SCRATCH_BYTES

# The state of a column: the first row of the window that was read last; the part that holds it, and the first row of
# that part; where the column's patches begin.
READ_ROW, PART, PART_ROW, FIRST_PATCH = range(4)
STATE_FIELDS = 4

COLUMNS_MAX = 32
_PARTS_MAX = 8
"""The most pages that a window may touch."""

_COLUMN = MORSEL_SCRATCH_BYTES
_PARTS = _COLUMN + 8 * COLUMN_FIELDS
_STATES = _PARTS + 8 * PART_FIELDS * _PARTS_MAX
SCRATCH_BYTES = _STATES + 8 * STATE_FIELDS * COLUMNS_MAX
"""Room that reading windows needs."""


@inline
def field_of(entry, number):
    return np.int64(load_u64(entry + 8 * number))


@inline
def _set_field(entry, number, value):
    store_u64(entry + 8 * number, np.uint64(value))


@inline
def window_end(row, last):
    """Return where the window of a morsel that begins at ``row`` ends: with the mini-block, where pages begin with
    one."""
    return min(last, (row // BLOCK_ROWS + 1) * BLOCK_ROWS)


@kernel
def begin_windows(columns: int, count: int, parts: int, patches: int, first: int, scratch: int) -> None:
    """Prepare to read the windows of a morsel of ``count`` columns, at most COLUMNS_MAX, from row ``first`` on."""
    for number in range(count):
        column, state = columns + number * (8 * COLUMN_FIELDS), scratch + _STATES + number * (8 * STATE_FIELDS)
        _set_field(state, READ_ROW, np.int64(-1))
        _set_field(state, PART, parts)
        _set_field(state, PART_ROW, first)
        _set_field(state, FIRST_PATCH, patches)
        parts += field_of(column, PARTS) * (8 * PART_FIELDS)
        patches += field_of(column, PATCHES) * (8 * PATCH_FIELDS)


@kernel
def read_window(columns: int, number: int, row: int, stop: int, scratch: int) -> int:
    """Read a window of a morsel: write rows [row, stop) of column ``number``, unless they are what it holds; return 0,
    or DAMAGED if the column has to be read in another way."""
    column, state = columns + number * (8 * COLUMN_FIELDS), scratch + _STATES + number * (8 * STATE_FIELDS)
    if field_of(state, READ_ROW) == row:
        return 0
    part, at = field_of(state, PART), field_of(state, PART_ROW)
    rows = field_of(part, LAST_ROW) - field_of(part, FIRST_ROW)
    while at + rows <= row:
        at += rows
        part += 8 * PART_FIELDS
        rows = field_of(part, LAST_ROW) - field_of(part, FIRST_ROW)
    _set_field(state, READ_ROW, row)
    _set_field(state, PART, part)
    _set_field(state, PART_ROW, at)
    found = np.int64(0)
    while at < stop:
        if found == _PARTS_MAX:
            return DAMAGED
        target = scratch + _PARTS + found * (8 * PART_FIELDS)
        copy_bytes(target, part, 8 * PART_FIELDS)
        start, end = field_of(part, FIRST_ROW), field_of(part, LAST_ROW)
        _set_field(target, FIRST_ROW, start + max(row - at, 0))
        _set_field(target, LAST_ROW, min(end, start + stop - at))
        at += end - start
        part += 8 * PART_FIELDS
        found += 1
    window = scratch + _COLUMN
    copy_bytes(window, column, 8 * COLUMN_FIELDS)
    _set_field(window, PARTS, found)
    patches = field_of(state, FIRST_PATCH)
    unfinished = read_morsel(window, 1, scratch + _PARTS, patches, row, stop, scratch)
    return DAMAGED if unfinished != 0 else 0
