"""Fold cells into groups: each row has a group's number (int32), each group a slot in the arrays of results.

``valid`` is the address of one bool a row, or 0 when no cell is NULL; what is NULL is passed over. There are
``group_count`` slots, the caller's, begun with what folding nothing gives.
"""

import numpy as np

from .kernel import kernel
from .simd.simd import load_u8, view_f64, view_i32, view_i64, view_u8

_LOW = np.int64(0xFFFFFFFF)

SUM_LANES = 64
"""Sums that `sum_floats` keeps side by side."""


@kernel
def count_rows(groups, valid, row_count, group_count, counts, tables):
    """Add the rows of each group to int64 ``counts``: ``tables`` (a power of two) tables, one after the other, which
    take the rows in turns, so that rows of one group do not wait for one another."""
    group = view_i32(groups, row_count)
    count = view_i64(counts, group_count * tables)
    last = tables - 1
    if valid == 0:
        for i in range(row_count):
            count[(i & last) * group_count + group[i]] += 1
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            count[(i & last) * group_count + group[i]] += np.int64(flag[i])


@kernel
def sum_integers(cells, valid, row_count, lows, highs):
    """Do what `add_integers` does for a single group."""
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
    """Do what `add_floats` does for a single group, in SUM_LANES sums that are added up at the end: so they depend on
    one another less, and err less. ``scratch`` has room for SUM_LANES float64."""
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
def add_integers(groups, cells, valid, row_count, group_count, lows, highs):
    """Add int64 cells, their low 32 bits (unsigned) and high 32 bits (signed) apart: neither sum of 2**31 rows can
    overflow, and low + high * 2**32 is exact."""
    group = view_i32(groups, row_count)
    cell = view_i64(cells, row_count)
    low = view_i64(lows, group_count)
    high = view_i64(highs, group_count)
    if valid == 0:
        for i in range(row_count):
            low[group[i]] += cell[i] & _LOW
            high[group[i]] += cell[i] >> 32
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            low[group[i]] += cell[i] & _LOW if flag[i] else np.int64(0)
            high[group[i]] += cell[i] >> 32 if flag[i] else np.int64(0)


@kernel
def add_words(groups, cells, valid, row_count, group_count, totals, tables):
    """Add int32 cells to int64 ``totals``, which no 2**31 rows overflow; ``tables`` as in `count_rows`."""
    group = view_i32(groups, row_count)
    cell = view_i32(cells, row_count)
    total = view_i64(totals, group_count * tables)
    last = tables - 1
    if valid == 0:
        for i in range(row_count):
            total[(i & last) * group_count + group[i]] += np.int64(cell[i])
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            total[(i & last) * group_count + group[i]] += np.int64(cell[i]) if flag[i] else np.int64(0)


@kernel
def add_floats(groups, cells, valid, row_count, group_count, totals, tables):
    """Add float64 cells; ``tables`` as in `count_rows`."""
    group = view_i32(groups, row_count)
    cell = view_f64(cells, row_count)
    total = view_f64(totals, group_count * tables)
    last = tables - 1
    if valid == 0:
        for i in range(row_count):
            total[(i & last) * group_count + group[i]] += cell[i]
    else:
        flag = view_u8(valid, row_count)
        for i in range(row_count):
            total[(i & last) * group_count + group[i]] += cell[i] if flag[i] else 0.0


@kernel
def bound_integers(groups, cells, valid, row_count, group_count, lows, highs):
    """Lower ``lows`` and raise ``highs`` to the least and greatest int64 cells."""
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
    """As `bound_integers`, of float64; a NaN is passed over. ``numbers`` counts the cells that are none."""
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
    """Do what `bound_integers` does for a single group."""
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
    """Do what `bound_floats` does for a single group."""
    cell = view_f64(cells, row_count)
    low, high, number = view_f64(least, 1)[0], view_f64(greatest, 1)[0], np.int64(0)
    for i in range(row_count):
        if cell[i] == cell[i] and (valid == 0 or load_u8(valid + i) != 0):
            low = min(low, cell[i])
            high = max(high, cell[i])
            number += 1
    view_f64(least, 1)[0], view_f64(greatest, 1)[0] = low, high
    view_i64(numbers, 1)[0] += number
