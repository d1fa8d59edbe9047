"""Fold cells into groups: each row has a group's number (int32), each group a slot in the arrays of results.

``valid`` is the address of one bool a row, or 0 when no cell is NULL; what is NULL is passed over. There are
``group_count`` slots, the caller's, begun with what folding nothing gives.
"""

import numpy as np

from ..ahead.kernel import kernel
from ..simd.simd import load_u8, view_f64, view_i32, view_i64, view_u8

_LOW = np.int64(0xFFFFFFFF)

SUM_LANES = 64
"""Sums that `sum_floats` keeps side by side."""


TABLES = 4
"""How many tables a sum may be kept in, one after the other, which take the rows in turns: then rows of one group do
not wait for one another. They are added up at the end."""


@kernel
def keep_known(cells: int, valid: int, row_count: int, width: int, target: int) -> None:
    """Copy cells of a column to sum, of 4 or 8 bytes, zero where they are NULL: to add that is faster than to pass them
    over."""
    known = view_u8(valid, row_count)
    if width == 8:
        cell, kept = view_i64(cells, row_count), view_i64(target, row_count)
        for i in range(row_count):
            kept[i] = cell[i] & -np.int64(known[i])
    else:
        word, kept_word = view_i32(cells, row_count), view_i32(target, row_count)
        for i in range(row_count):
            kept_word[i] = word[i] & -np.int32(known[i])


@kernel
def count_rows(groups, valid, row_count, group_count, counts, tables):
    """Add the rows of each group to int64 ``counts``, in one table or TABLES of them."""
    group = view_i32(groups, row_count)
    count = view_i64(counts, group_count * tables)
    if valid != 0:
        flag = view_u8(valid, row_count)
        last = tables - 1
        for i in range(row_count):
            count[np.uint64((i & last) * group_count + group[i])] += np.int64(flag[i])
        return
    in_turns = row_count & ~3 if tables == TABLES else 0
    for i in range(0, in_turns, 4):
        count[np.uint64(group[i])] += 1
        count[np.uint64(group_count + group[i + 1])] += 1
        count[np.uint64(2 * group_count + group[i + 2])] += 1
        count[np.uint64(3 * group_count + group[i + 3])] += 1
    for i in range(in_turns, row_count):
        count[np.uint64(group[i])] += 1


@kernel
def sum_integers(cells, valid, row_count, lows, highs):
    """Sum int64 cells as `add_integers` does, for a single group."""
    cell = view_i64(cells, row_count)
    low = high = np.int64(0)
    if valid == 0:
        for i in range(row_count):
            low += cell[i] & _LOW
            high += cell[i] >> 32
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            low += cell[i] & _LOW if flag[i] else np.int64(0)
            high += cell[i] >> 32 if flag[i] else np.int64(0)
    view_i64(lows, 1)[0] += low
    view_i64(highs, 1)[0] += high


@kernel
def sum_floats(cells: int, valid: int, row_count: int, total: int, scratch: int) -> None:
    """Sum float64 cells as `add_floats` does, for a single group, in SUM_LANES sums that are added up at the end: so
    they depend on one another less, and err less. ``scratch`` has room for SUM_LANES float64."""
    lane = view_f64(scratch, SUM_LANES)
    lane[:] = 0.0
    for first in range(0, row_count, SUM_LANES):
        count = min(SUM_LANES, row_count - first)
        cell = view_f64(cells + 8 * first, count)
        if valid == 0:
            for i in range(count):
                lane[i] += cell[i]
        else:
            flag = view_u8(valid + first, count)
            for i in range(count):
                lane[i] += cell[i] if flag[i] else 0.0
    result = 0.0
    for i in range(SUM_LANES):
        result += lane[i]
    view_f64(total, 1)[0] += result


@kernel
def add_integers(groups, cells, row_count, group_count, lows, highs):
    """Sum int64 cells by group, zero where they are NULL; their low 32 bits (unsigned) and high 32 bits (signed) apart:
    neither sum of 2**31 rows can overflow, and low + high * 2**32 is exact."""
    group = view_i32(groups, row_count)
    cell = view_i64(cells, row_count)
    low = view_i64(lows, group_count)
    high = view_i64(highs, group_count)
    for i in range(row_count):
        place = np.uint64(group[i])
        low[place] += cell[i] & _LOW
        high[place] += cell[i] >> 32


@kernel
def add_words(groups, cells, row_count, group_count, totals, tables):
    """Sum int32 cells by group, zero where they are NULL, in int64 ``totals``, which no 2**31 rows overflow; ``tables``
    as in `count_rows`."""
    group = view_i32(groups, row_count)
    cell = view_i32(cells, row_count)
    total = view_i64(totals, group_count * tables)
    in_turns = row_count & ~3 if tables == TABLES else 0
    for i in range(0, in_turns, 4):
        total[np.uint64(group[i])] += np.int64(cell[i])
        total[np.uint64(group_count + group[i + 1])] += np.int64(cell[i + 1])
        total[np.uint64(2 * group_count + group[i + 2])] += np.int64(cell[i + 2])
        total[np.uint64(3 * group_count + group[i + 3])] += np.int64(cell[i + 3])
    for i in range(in_turns, row_count):
        total[np.uint64(group[i])] += np.int64(cell[i])


@kernel
def add_floats(groups, cells, row_count, group_count, totals, tables):
    """Sum float64 cells by group, zero where they are NULL; ``tables`` as in `count_rows`."""
    group = view_i32(groups, row_count)
    cell = view_f64(cells, row_count)
    total = view_f64(totals, group_count * tables)
    in_turns = row_count & ~3 if tables == TABLES else 0
    for i in range(0, in_turns, 4):
        total[np.uint64(group[i])] += cell[i]
        total[np.uint64(group_count + group[i + 1])] += cell[i + 1]
        total[np.uint64(2 * group_count + group[i + 2])] += cell[i + 2]
        total[np.uint64(3 * group_count + group[i + 3])] += cell[i + 3]
    for i in range(in_turns, row_count):
        total[np.uint64(group[i])] += cell[i]


@kernel
def count_and_add(
    groups: int, cells: int, row_count: int, group_count: int, counts: int, totals: int, tables: int
) -> None:
    """Count rows and sum cells by group as `count_rows`, without NULL, and `add_floats` do, for less than both take."""
    group = view_i32(groups, row_count)
    cell = view_f64(cells, row_count)
    count = view_i64(counts, group_count * tables)
    total = view_f64(totals, group_count * tables)
    in_turns = row_count & ~3 if tables == TABLES else 0
    for i in range(0, in_turns, 4):
        place = np.uint64(group[i])
        second = np.uint64(group_count + group[i + 1])
        third = np.uint64(2 * group_count + group[i + 2])
        fourth = np.uint64(3 * group_count + group[i + 3])
        count[place] += 1
        total[place] += cell[i]
        count[second] += 1
        total[second] += cell[i + 1]
        count[third] += 1
        total[third] += cell[i + 2]
        count[fourth] += 1
        total[fourth] += cell[i + 3]
    for i in range(in_turns, row_count):
        place = np.uint64(group[i])
        count[place] += 1
        total[place] += cell[i]


@kernel
def bound_integers(groups, cells, valid, row_count, group_count, lows, highs):
    """Find bounds by group: lower ``lows`` and raise ``highs`` to the least and greatest int64 cells."""
    group = view_i32(groups, row_count)
    cell = view_i64(cells, row_count)
    low = view_i64(lows, group_count)
    high = view_i64(highs, group_count)
    for i in range(row_count):
        if valid == 0 or load_u8(valid + i) != 0:
            low[group[i]] = min(low[group[i]], cell[i])
            high[group[i]] = max(high[group[i]], cell[i])


@kernel
def bound_floats(groups, cells, valid, row_count, group_count, lows, highs, numbers):
    """Find bounds by group as `bound_integers` does, of float64; a NaN is passed over. ``numbers`` counts the cells
    that are none."""
    group = view_i32(groups, row_count)
    cell = view_f64(cells, row_count)
    low = view_f64(lows, group_count)
    high = view_f64(highs, group_count)
    number = view_i64(numbers, group_count)
    for i in range(row_count):
        is_number = cell[i] == cell[i]
        if is_number and (valid == 0 or load_u8(valid + i) != 0):
            low[group[i]] = min(low[group[i]], cell[i])
            high[group[i]] = max(high[group[i]], cell[i])
            number[group[i]] += 1


@kernel
def bound_integers_of_one(cells: int, valid: int, row_count: int, least: int, greatest: int) -> None:
    """Find the least and greatest int64 cells as `bound_integers` does, for a single group."""
    cell = view_i64(cells, row_count)
    low, high = view_i64(least, 1)[0], view_i64(greatest, 1)[0]
    if valid == 0:
        for i in range(row_count):
            low = min(low, cell[i])
            high = max(high, cell[i])
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            low = min(low, cell[i] if flag[i] else low)
            high = max(high, cell[i] if flag[i] else high)
    view_i64(least, 1)[0], view_i64(greatest, 1)[0] = low, high


@kernel
def bound_floats_of_one(cells: int, valid: int, row_count: int, least: int, greatest: int, numbers: int) -> None:
    """Find the least and greatest float64 cells as `bound_floats` does, for a single group."""
    cell = view_f64(cells, row_count)
    low, high, number = view_f64(least, 1)[0], view_f64(greatest, 1)[0], np.int64(0)
    for i in range(row_count):
        if cell[i] == cell[i] and (valid == 0 or load_u8(valid + i) != 0):
            low = min(low, cell[i])
            high = max(high, cell[i])
            number += 1
    view_f64(least, 1)[0], view_f64(greatest, 1)[0] = low, high
    view_i64(numbers, 1)[0] += number
