"""Fold cells into groups: each row has a group's number (int32), each group a slot in the arrays of results.

``valid`` is the address of one bool a row, or 0 when no cell is NULL; what is NULL is passed over. There are
``group_count`` slots, the caller's, begun with what folding nothing gives.
"""

import numpy as np

from .kernel import kernel
from .simd.simd import load_u8, view_f64, view_i32, view_i64

_LOW = np.int64(0xFFFFFFFF)


@kernel
def count_rows(groups, valid, row_count, group_count, counts):
    """Add to int64 ``counts`` the rows of each group."""
    group = view_i32(groups, row_count)
    count = view_i64(counts, group_count)
    for i in range(row_count):
        if valid == 0 or load_u8(valid + i) != 0:
            count[group[i]] += 1


@kernel
def add_integers(groups, cells, valid, row_count, group_count, lows, highs):
    """Add int64 cells, their low 32 bits (unsigned) and high 32 bits (signed) apart: neither sum of 2**31 rows can
    overflow, and low + high * 2**32 is exact."""
    group = view_i32(groups, row_count)
    cell = view_i64(cells, row_count)
    low = view_i64(lows, group_count)
    high = view_i64(highs, group_count)
    for i in range(row_count):
        if valid == 0 or load_u8(valid + i) != 0:
            low[group[i]] += cell[i] & _LOW
            high[group[i]] += cell[i] >> 32


@kernel
def add_floats(groups, cells, valid, row_count, group_count, totals):
    """Add float64 cells."""
    group = view_i32(groups, row_count)
    cell = view_f64(cells, row_count)
    total = view_f64(totals, group_count)
    for i in range(row_count):
        if valid == 0 or load_u8(valid + i) != 0:
            total[group[i]] += cell[i]


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
