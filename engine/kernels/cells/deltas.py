"""Deltas: sort them by row, select what a snapshot sees, and put new cells in the place of old ones.

Deltas are a pair of int32 arrays here: ``rowids``, ascending, and ``places``, which say where each one's cell and
timestamp stand. A window is the deltas of rows [first, last); kernels find it by binary search. Nothing outside it is
written, whatever the rows are, as long as they ascend.
"""

import numpy as np

from ..ahead.families import family
from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    view_i32,
    view_i64,
)
from ..simd.widths import copy_cell
from .gather import copy_exactly, load_offset

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@kernel
def sort_rows(rowids, count, rows, places, spare_rows, spare_places):
    """Sort deltas by row: sort ``rowids`` (int32, not negative) stably by radix, and write the rows and the place that
    each came from.

    The result is in ``rows`` and ``places`` when 0 is returned, in the spare arrays when 1 is.
    """
    source = view_i32(rowids, count)
    from_rows, from_places = view_i32(rows, count), view_i32(places, count)
    to_rows, to_places = view_i32(spare_rows, count), view_i32(spare_places, count)
    largest = np.int32(0)
    for i in range(count):
        from_rows[i], from_places[i] = source[i], i
        largest = max(largest, source[i])
    starts = np.empty(_DIGITS + 1, np.int64)
    shift = swaps = 0
    while shift < 31 and (largest >> shift) > 0:
        starts[:] = 0
        for i in range(count):
            starts[((from_rows[i] >> shift) & (_DIGITS - 1)) + 1] += 1
        for digit in range(_DIGITS):
            starts[digit + 1] += starts[digit]
        for i in range(count):
            digit = (from_rows[i] >> shift) & (_DIGITS - 1)
            at = starts[digit]
            starts[digit] = at + 1
            to_rows[at], to_places[at] = from_rows[i], from_places[i]
        from_rows, to_rows = to_rows, from_rows
        from_places, to_places = to_places, from_places
        shift += _DIGIT_BITS
        swaps ^= 1
    return swaps


@inline
def _lower_bound(rows, low, high, row):
    """Return the first position in [low, high) whose row is not below ``row``, else ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def last_seen(rowids, places, count, first, last, timestamps, snapshot, result_rows, result_places):
    """Write the last delta at or before ``snapshot`` of each row of the window; return how many rows have one.

    The deltas of a row stand in the order of time.
    """
    rows, at, times = view_i32(rowids, count), view_i32(places, count), view_i64(timestamps, count)
    out_rows, out_places = view_i32(result_rows, count), view_i32(result_places, count)
    found, previous = 0, np.int32(-1)
    for i in range(_lower_bound(rows, 0, count, first), count):
        row = rows[i]
        if row >= last:
            break
        if times[at[i]] <= snapshot:
            found += np.int64(row != previous)
            previous = row
            out_rows[found - 1], out_places[found - 1] = row, at[i]
    return found


@kernel
def first_unseen(rowids, places, count, first, last, timestamps, snapshot, result_rows, result_places):
    """Write the first delta after ``snapshot`` of each row of the window; return how many rows have one."""
    rows, at, times = view_i32(rowids, count), view_i32(places, count), view_i64(timestamps, count)
    out_rows, out_places = view_i32(result_rows, count), view_i32(result_places, count)
    found, previous = 0, np.int32(-1)
    for i in range(_lower_bound(rows, 0, count, first), count):
        row = rows[i]
        if row >= last:
            break
        if row != previous and times[at[i]] > snapshot:
            previous = row
            out_rows[found], out_places[found] = row, at[i]
            found += 1
    return found


@kernel
def last_of_rows(rowids, places, count, result_rows, result_places):
    """Write the last delta of each row; return the number of rows."""
    rows, at = view_i32(rowids, count), view_i32(places, count)
    out_rows, out_places = view_i32(result_rows, count), view_i32(result_places, count)
    found, previous = 0, np.int32(-1)
    for i in range(count):
        found += np.int64(rows[i] != previous)
        previous = rows[i]
        out_rows[found - 1], out_places[found - 1] = rows[i], at[i]
    return found


@kernel
def match_rows(rowids, places, count, wanted, wanted_count, result_positions, result_places):
    """Find which of the rows ``wanted`` (int64, ascending) of a column have a delta; there is at most one a row.

    Write the position of each in ``wanted`` and its delta's place; return how many there are.
    """
    rows, at, asked = view_i32(rowids, count), view_i32(places, count), view_i64(wanted, wanted_count)
    out_positions, out_places = view_i32(result_positions, wanted_count), view_i32(result_places, wanted_count)
    found = low = 0
    for position in range(wanted_count):
        row, step = asked[position], 1
        while low + step < count and rows[low + step] < row:
            step *= 2
        low = _lower_bound(rows, low, min(low + step, count), row)
        if low == count:
            break
        if rows[low] == row:
            out_positions[found], out_places[found] = position, at[low]
            found += 1
    return found


def _overwrite(width):
    def overwrite(result, first, last, rowids, places, count, cells):
        """Put the cells of the window into ``result``, whose cell 0 is row ``first``."""
        rows, at = view_i32(rowids, count), view_i32(places, count)
        for i in range(_lower_bound(rows, 0, count, first), count):
            if rows[i] >= last:
                break
            copy_cell(result + (np.int64(rows[i]) - first) * width, cells + np.int64(at[i]) * width, width)

    return overwrite


overwrite_u8, overwrite_u16, overwrite_u32, overwrite_u64, overwrite_u128 = family("overwrite_u{}", _overwrite)


@kernel
def string_growth(offsets, first, last, rowids, places, count, new_offsets):
    """Return by how many bytes the deltas of the window, strings, lengthen a vector whose string 0 is row ``first``,
    times two; plus one when the length of any of them changes."""
    rows, at = view_i32(rowids, count), view_i32(places, count)
    growth, differs = np.int64(0), np.int64(0)
    for i in range(_lower_bound(rows, 0, count, first), count):
        if rows[i] >= last:
            break
        row, place = np.int64(rows[i]) - first, np.int64(at[i])
        change = load_offset(new_offsets, place + 1) - load_offset(new_offsets, place)
        change -= load_offset(offsets, row + 1) - load_offset(offsets, row)
        differs |= np.int64(change != 0)
        growth += change
    return growth * 2 + differs


@kernel
def overwrite_strings(offsets, data, first, last, rowids, places, count, new_offsets, new_data):
    """Apply deltas: put the strings of the window, each as long as the one that it replaces, into ``data``."""
    rows, at = view_i32(rowids, count), view_i32(places, count)
    for i in range(_lower_bound(rows, 0, count, first), count):
        if rows[i] >= last:
            break
        place = np.int64(at[i])
        start = load_offset(new_offsets, place)
        target = data + load_offset(offsets, np.int64(rows[i]) - first)
        copy_exactly(target, new_data + start, load_offset(new_offsets, place + 1) - start)
