"""Evaluate a part of a filter on the rows of a morsel, window by window (see `windows`), and count the matches.

The filter is a list of steps in postfix order: those that test a column leave flags, one byte a row, ALL and ANY
combine those of the two steps before, and CUT leaves out what follows if no flag is set, so that its columns are not
read. Cells that are NULL match nothing but UNKNOWN.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..pages.blocks import BLOCK_ROWS
from ..simd.simd import (
    copy_bytes,
    load_u8,
    population_count64,
    view_f32,
    view_f64,
    view_i8,
    view_i16,
    view_i32,
    view_i64,
    view_u8,
    view_u64,
)
from .morsel import COLUMN_FIELDS, DAMAGED, TARGET, VALID
from .windows import SCRATCH_BYTES as WINDOWS_SCRATCH_BYTES
from .windows import begin_windows, field_of, read_window, window_end

# What a step does. BETWEEN: LOW <= cell <= HIGH. LISTED: the cell is one of HIGH cells (int64 or float64) at LOW.
# CODED: the byte of the code (int32) at LOW is 1. KNOWN and UNKNOWN: the cell is not NULL, or it is.
BETWEEN, LISTED, CODED, KNOWN, UNKNOWN, ALL, ANY, CUT = range(8)

# The type of the cells that a step tests.
INT8, INT16, INT32, INT64, FLOAT32, FLOAT64 = range(6)

# The fields of a step. With NEGATED it holds for the other cells that are not NULL. LOW and HIGH of BETWEEN are int64
# in the range of the type, or the bits of a float64.
WHAT, COLUMN, CELLS, NEGATED, LOW, HIGH = range(6)
STEP_FIELDS = 6

DEPTH_MAX = 8
"""The most flags that wait for ALL and ANY."""

FLAGS = WINDOWS_SCRATCH_BYTES
"""Where in the scratch memory the flags of a window are left."""
SCRATCH_BYTES = FLAGS + DEPTH_MAX * BLOCK_ROWS
"""Room that `choose_rows` needs."""


@kernel
def choose_rows(
    steps: int,
    step_count: int,
    columns: int,
    count: int,
    parts: int,
    patches: int,
    first: int,
    last: int,
    among: int,
    chosen: int,
    scratch: int,
) -> int:
    """Filter a morsel: write which of the rows [first, last) match, one byte (1 or 0) each; return how many, or
    DAMAGED.

    Only rows with a 1 in ``among`` (0: all) can match; windows without one are not read. ``chosen`` may be ``among``.
    """
    begin_windows(columns, count, parts, patches, first, scratch)
    total = np.int64(0)
    row = first
    while row < last:
        stop = window_end(row, last)
        source = np.int64(0) if among == 0 else among + (row - first)
        found = choose_window(steps, step_count, columns, row, stop, source, scratch)
        if found < 0:
            return DAMAGED
        copy_bytes(chosen + (row - first), scratch + FLAGS, stop - row)
        total += found
        row = stop
    return total


@kernel
def choose_window(steps: int, step_count: int, columns: int, row: int, stop: int, among: int, scratch: int) -> int:
    """Filter one window of a morsel, [row, stop), as `choose_rows` does, and leave the flags of its rows at FLAGS;
    ``among`` has those of that window. Without steps all rows match."""
    count = stop - row
    flag = view_u8(scratch + FLAGS, count)
    if among != 0 and not _has_any(among, count):
        flag[:] = np.uint8(0)
        return np.int64(0)
    if step_count == 0:
        flag[:] = np.uint8(1)
    elif _test_window(steps, step_count, columns, row, stop, scratch) < 0:
        return DAMAGED
    if among != 0:
        other = view_u8(among, count)
        for i in range(count):
            flag[i] &= other[i]
    return _count(scratch + FLAGS, count)


@kernel
def _has_any(flags: int, count: int) -> bool:
    """Return whether a flag is set."""
    flag = view_u8(flags, count)
    found = np.uint8(0)
    for i in range(count):
        found |= flag[i]
    return found != 0


@kernel
def _count(flags: int, count: int) -> int:
    """Return how many flags are set."""
    words, flag = view_u64(flags, count >> 3), view_u8(flags, count)
    total = np.int64(0)
    for i in range(count >> 3):
        total += np.int64(population_count64(words[i]))
    for i in range(count & ~7, count):
        total += np.int64(flag[i])
    return total


@kernel
def _test_window(steps: int, step_count: int, columns: int, row: int, stop: int, scratch: int) -> int:
    """Leave the flags of a window at FLAGS; return 0, or DAMAGED. CUT only follows flags that wait alone."""
    depth, count = np.int64(0), stop - row
    for number in range(step_count):
        step = steps + number * (8 * STEP_FIELDS)
        what = field_of(step, WHAT)
        if what == CUT:
            if not _has_any(scratch + FLAGS + (depth - 1) * BLOCK_ROWS, count):
                return 0
        elif what in (ALL, ANY):
            depth -= 1
            flag = view_u8(scratch + FLAGS + (depth - 1) * BLOCK_ROWS, count)
            other = view_u8(scratch + FLAGS + depth * BLOCK_ROWS, count)
            if what == ALL:
                for i in range(count):
                    flag[i] &= other[i]
            else:
                for i in range(count):
                    flag[i] |= other[i]
        else:
            if read_window(columns, field_of(step, COLUMN), row, stop, scratch) < 0:
                return DAMAGED
            column = columns + field_of(step, COLUMN) * (8 * COLUMN_FIELDS)
            _test_cells(step, column, scratch + FLAGS + depth * BLOCK_ROWS, count)
            depth += 1
    return 0


@kernel
def _test_cells(step: int, column: int, flags: int, count: int) -> None:
    """Write the flags of a step that tests the cells of a column."""
    flag = view_u8(flags, count)
    what, cells, valid = field_of(step, WHAT), field_of(column, TARGET), field_of(column, VALID)
    if what in (KNOWN, UNKNOWN):
        flag[:] = np.uint8(1)
    elif what == CODED:
        codes, table = view_i32(cells, count), field_of(step, LOW)
        for i in range(count):
            flag[i] = load_u8(table + np.int64(codes[i]))
    elif what == LISTED:
        _test_listed(step, cells, flags, count)
    else:
        _test_between(step, cells, flags, count)
    if field_of(step, NEGATED) != 0:
        for i in range(count):
            flag[i] ^= np.uint8(1)
    if valid != 0:
        known = view_u8(valid, count)
        wanted = np.uint8(what == UNKNOWN)
        for i in range(count):
            flag[i] &= known[i] ^ wanted
    elif what == UNKNOWN:
        flag[:] = np.uint8(0)


@inline
def _between(cell, low, high, flag):
    for i in range(len(flag)):
        flag[i] = np.uint8((cell[i] >= low) & (cell[i] <= high))


@kernel
def _test_between(step: int, cells: int, flags: int, count: int) -> None:
    flag, kind = view_u8(flags, count), field_of(step, CELLS)
    low, high = field_of(step, LOW), field_of(step, HIGH)
    if kind == INT32:
        _between(view_i32(cells, count), np.int32(low), np.int32(high), flag)
    elif kind == INT64:
        _between(view_i64(cells, count), low, high, flag)
    elif kind == INT16:
        _between(view_i16(cells, count), np.int16(low), np.int16(high), flag)
    elif kind == INT8:
        _between(view_i8(cells, count), np.int8(low), np.int8(high), flag)
    else:
        ends = view_f64(step + 8 * LOW, 2)
        if kind == FLOAT64:
            _between(view_f64(cells, count), ends[0], ends[1], flag)
        else:
            _between(view_f32(cells, count), np.float32(ends[0]), np.float32(ends[1]), flag)


@inline
def _equal(cell, wanted, flag):
    for i in range(len(flag)):
        flag[i] |= np.uint8(cell[i] == wanted)


@kernel
def _test_listed(step: int, cells: int, flags: int, count: int) -> None:
    flag, kind, listed = view_u8(flags, count), field_of(step, CELLS), field_of(step, HIGH)
    numbers, reals = view_i64(field_of(step, LOW), listed), view_f64(field_of(step, LOW), listed)
    flag[:] = np.uint8(0)
    for place in range(listed):
        if kind == INT32:
            _equal(view_i32(cells, count), np.int32(numbers[place]), flag)
        elif kind == INT64:
            _equal(view_i64(cells, count), numbers[place], flag)
        elif kind == INT16:
            _equal(view_i16(cells, count), np.int16(numbers[place]), flag)
        elif kind == INT8:
            _equal(view_i8(cells, count), np.int8(numbers[place]), flag)
        elif kind == FLOAT64:
            _equal(view_f64(cells, count), reals[place], flag)
        else:
            _equal(view_f32(cells, count), np.float32(reals[place]), flag)
