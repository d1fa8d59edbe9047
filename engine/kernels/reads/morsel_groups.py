"""Fold the chosen rows of a morsel into the states of their groups, window by window (see `windows`).

The key of a group is numbers like digits: for each key column the code of its dictionary, or its distance from the
least integer; NULL has a number of its own. `aggregate` says what becomes of the states.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.aggregate import (
    SUM_LANES,
    add_floats,
    add_integers,
    add_words,
    bound_floats,
    bound_floats_of_one,
    bound_integers,
    bound_integers_of_one,
    count_and_add,
    count_rows,
    keep_known,
    sum_floats,
    sum_integers,
)
from ..pages.blocks import BLOCK_ROWS
from ..pages.frames import load_cells
from ..simd.simd import copy_bytes, load_u64, view_f32, view_f64, view_i32, view_i64, view_u8, view_u16, view_u64
from .morsel import AS_CODES, COLUMN_FIELDS, DAMAGED, FORM, TARGET, VALID, WIDTH
from .morsel_filter import FLAGS, choose_window
from .morsel_filter import SCRATCH_BYTES as FILTER_SCRATCH_BYTES
from .windows import begin_windows, field_of, read_window, window_end

# What a state is (`FOLD`), and its results (FIRST to THIRD): a count; low and high halves of a sum of integers; the sum
# of int32, by groups only; the sum of floats; least and greatest integer; the same of floats, and how many numbers.
# COUNT, ADD_WORDS and ADD_FLOATS have as many tables as `fold_morsel` is told.
COUNT, ADD_INTEGERS, ADD_WORDS, ADD_FLOATS, BOUND_INTEGERS, BOUND_FLOATS = range(6)

# The fields of a state. Its column is -1 if all rows are counted.
FOLD, COLUMN, FIRST, SECOND, THIRD = range(5)
STATE_FIELDS = 5

# The fields of a key column: its column; how many numbers it has; the integer whose number is 0; the number of NULL.
KEY_COLUMN, KEY_NUMBERS, KEY_LOW, KEY_NULL = range(4)
KEY_FIELDS = 4

UNDECIDED = -2

# A window with at least one in so many rows chosen is folded whole, the others passed over like NULL; of one with fewer
# the cells are moved together first.
_DENSE = 16
_DENSE_GROUPS = 8

_VALID = FILTER_SCRATCH_BYTES
_GROUPS = _VALID + BLOCK_ROWS
_CELLS = _GROUPS + 4 * BLOCK_ROWS
_KNOWN = _CELLS + 8 * BLOCK_ROWS
_ROWS = _KNOWN + 8 * BLOCK_ROWS
_LANES = _ROWS + 4 * (BLOCK_ROWS + 1)
SCRATCH_BYTES = _LANES + 8 * SUM_LANES
"""Room that `fold_morsel` needs."""


@kernel
def fold_morsel(
    steps: int,
    step_count: int,
    states: int,
    state_count: int,
    keys: int,
    key_count: int,
    group_count: int,
    tables: int,
    needed: int,
    columns: int,
    count: int,
    parts: int,
    patches: int,
    first: int,
    last: int,
    among: int,
    scratch: int,
) -> int:
    """Fold the rows of a morsel, those of [first, last) with a 1 in ``among`` (0: all), that match the filter, if it
    has steps; return how many they are; or DAMAGED or UNDECIDED, if they must be folded in another way.

    The states and keys refer to the first ``needed`` of the columns, the filter to any.
    """
    begin_windows(columns, count, parts, patches, first, scratch)
    total = np.int64(0)
    row = first
    while row < last:
        stop = window_end(row, last)
        rows = stop - row
        found = rows
        if step_count > 0 or among != 0:
            source = np.int64(0) if among == 0 else among + (row - first)
            found = choose_window(steps, step_count, columns, row, stop, source, scratch)
        if found < 0:
            return DAMAGED
        if found > 0:
            for number in range(needed):
                if read_window(columns, number, row, stop, scratch) < 0:
                    return DAMAGED
            flags = np.int64(0) if found == rows else scratch + FLAGS
            if flags != 0 and found * (_DENSE if key_count == 0 else _DENSE_GROUPS) < rows:
                rows = _list_rows(flags, rows, scratch + _ROWS)
                for number in range(needed):
                    _keep_rows(columns + number * (8 * COLUMN_FIELDS), scratch + _ROWS, rows)
                flags = np.int64(0)
            for number in range(key_count):
                if _number_rows(keys + number * (8 * KEY_FIELDS), columns, number == 0, rows, scratch) < 0:
                    return UNDECIDED
            number = np.int64(0)
            while number < state_count:
                state = states + number * (8 * STATE_FIELDS)
                folded = np.int64(0)
                if key_count == 0 and field_of(state, COLUMN) < 0:
                    view_i64(field_of(state, FIRST), 1)[0] += found
                    folded = np.int64(1)
                elif key_count > 0 and flags == 0 and number + 1 < state_count:
                    folded = _fold_two(state, columns, rows, group_count, tables, scratch)
                if folded == 0:
                    _fold(state, columns, rows, flags, key_count, group_count, tables, scratch)
                    folded = np.int64(1)
                number += folded
            total += found
        row = stop
    return total


@kernel
def _list_rows(flags: int, count: int, target: int) -> int:
    """Write the places (int32) of flags that are set; return how many."""
    flag, rows = view_u8(flags, count), view_i32(target, count + 1)
    found = np.int64(0)
    for start in range(0, count & ~7, 8):
        if load_u64(flags + start) != 0:
            for i in range(start, start + 8):
                rows[found] = i
                found += np.int64(flag[i])
    for i in range(count & ~7, count):
        rows[found] = i
        found += np.int64(flag[i])
    return found


@inline
def _pick(cells, rows):
    for i in range(len(rows)):
        cells[i] = cells[rows[i]]


@kernel
def _keep_rows(column: int, rows: int, count: int) -> None:
    """Move the cells at some places, ascending, to the front of a window, with their validity."""
    cells, width, valid = field_of(column, TARGET), field_of(column, WIDTH), field_of(column, VALID)
    places = view_i32(rows, count)
    if width == 8:
        _pick(view_u64(cells, BLOCK_ROWS), places)
    elif width == 4:
        _pick(view_i32(cells, BLOCK_ROWS), places)
    elif width == 2:
        _pick(view_u16(cells, BLOCK_ROWS), places)
    elif width == 1:
        _pick(view_u8(cells, BLOCK_ROWS), places)
    if valid != 0:
        _pick(view_u8(valid, BLOCK_ROWS), places)


@kernel
def _number_rows(key: int, columns: int, is_first: bool, count: int, scratch: int) -> int:
    """Add a digit to the numbers of the rows' groups; return 0, or UNDECIDED if a cell has no number."""
    column = columns + field_of(key, KEY_COLUMN) * (8 * COLUMN_FIELDS)
    valid, null = field_of(column, VALID), field_of(key, KEY_NULL)
    group, digit = view_i32(scratch + _GROUPS, count), view_i64(scratch + _CELLS, count)
    numbers, is_coded = field_of(key, KEY_NUMBERS), field_of(column, FORM) == AS_CODES
    limit = null  # a cell that was changed may lie outside the range, and even have the number of NULL
    if is_coded and is_first and valid == 0:
        copy_bytes(scratch + _GROUPS, field_of(column, TARGET), 4 * count)
        return 0
    load_cells(field_of(column, TARGET), count, field_of(column, WIDTH), np.int64(0), scratch + _CELLS)
    if not is_coded:
        low = field_of(key, KEY_LOW)
        for i in range(count):
            digit[i] -= low
    if valid != 0:
        known, limit = view_u8(valid, count), numbers
        for i in range(count):
            digit[i] = (digit[i] if digit[i] < null else numbers) if known[i] else null
    least = greatest = np.int64(0)
    for i in range(count):
        least = min(least, digit[i])
        greatest = max(greatest, digit[i])
    if least < 0 or greatest >= limit:
        return UNDECIDED
    for i in range(count):
        group[i] = np.int32(digit[i] if is_first else group[i] * numbers + digit[i])
    return 0


@kernel
def _fold(
    state: int, columns: int, count: int, flags: int, key_count: int, group_count: int, tables: int, scratch: int
) -> None:
    """Fold the first cells of a window, those with a 1 in ``flags`` (0: all), into a state; their groups are known."""
    fold, number = field_of(state, FOLD), field_of(state, COLUMN)
    cells, valid = np.int64(0), flags
    if number >= 0:
        column = columns + number * (8 * COLUMN_FIELDS)
        valid = _both(field_of(column, VALID), flags, count, scratch + _VALID)
        cells = _widened(fold, column, count, scratch + _CELLS)
    first, second, third = field_of(state, FIRST), field_of(state, SECOND), field_of(state, THIRD)
    if key_count == 0:
        _fold_into_one(fold, cells, valid, count, first, second, third, scratch + _LANES)
        return
    groups = scratch + _GROUPS
    if fold == COUNT:
        count_rows(groups, valid, count, group_count, first, tables)
    elif fold in (ADD_WORDS, ADD_FLOATS, ADD_INTEGERS):
        if valid != 0:
            keep_known(cells, valid, count, np.int64(4 if fold == ADD_WORDS else 8), scratch + _KNOWN)
            cells = scratch + _KNOWN
        if fold == ADD_WORDS:
            add_words(groups, cells, count, group_count, first, tables)
        elif fold == ADD_FLOATS:
            add_floats(groups, cells, count, group_count, first, tables)
        else:
            add_integers(groups, cells, count, group_count, first, second)
    elif fold == BOUND_INTEGERS:
        bound_integers(groups, cells, valid, count, group_count, first, second)
    else:
        bound_floats(groups, cells, valid, count, group_count, first, second, third)


@kernel
def _fold_into_one(
    fold: int, cells: int, valid: int, count: int, first: int, second: int, third: int, lanes: int
) -> None:
    """Fold cells into the state of a single group."""
    if fold == COUNT:
        total = count
        if valid != 0:
            total = np.int64(0)
            flag = view_u8(valid, count)
            for i in range(count):
                total += np.int64(flag[i])
        view_i64(first, 1)[0] += total
    elif fold == ADD_FLOATS:
        sum_floats(cells, valid, count, first, lanes)
    elif fold == BOUND_INTEGERS:
        bound_integers_of_one(cells, valid, count, first, second)
    elif fold == BOUND_FLOATS:
        bound_floats_of_one(cells, valid, count, first, second, third)
    else:
        sum_integers(cells, valid, count, first, second)


@kernel
def _fold_two(state: int, columns: int, count: int, group_count: int, tables: int, scratch: int) -> int:
    """Fold cells into two states at once if the first counts the rows and the second sums floats without NULL; return
    how many states that were, 2 or 0."""
    other = state + 8 * STATE_FIELDS
    if field_of(state, FOLD) != COUNT or field_of(state, COLUMN) >= 0 or field_of(other, FOLD) != ADD_FLOATS:
        return 0
    column = columns + field_of(other, COLUMN) * (8 * COLUMN_FIELDS)
    if field_of(column, VALID) != 0:
        return 0
    cells = _widened(ADD_FLOATS, column, count, scratch + _CELLS)
    count_and_add(scratch + _GROUPS, cells, count, group_count, field_of(state, FIRST), field_of(other, FIRST), tables)
    return 2


@kernel
def _both(valid: int, flags: int, count: int, target: int) -> int:
    """Return the address of flags that are set where both are; 0 stands for flags that are all set."""
    if valid == 0 or flags == 0:
        return valid + flags
    known, flag, both = view_u8(valid, count), view_u8(flags, count), view_u8(target, count)
    for i in range(count):
        both[i] = known[i] & flag[i]
    return target


@kernel
def _widened(fold: int, column: int, count: int, target: int) -> int:
    """Return the address of a column's cells as the state takes them: int64 or float64, but words as they are."""
    cells, width = field_of(column, TARGET), field_of(column, WIDTH)
    if width == 8 or fold in (COUNT, ADD_WORDS):
        return cells
    if fold in (ADD_FLOATS, BOUND_FLOATS):
        small, wide = view_f32(cells, count), view_f64(target, count)
        for i in range(count):
            wide[i] = small[i]
    else:
        load_cells(cells, count, width, np.int64(0), target)
    return target
