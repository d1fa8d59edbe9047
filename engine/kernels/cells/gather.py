"""Copy cells by row number: random reads, sequential writes.

Byte strings are copied 16 bytes at a time, past the end of the string: what overshoots is
overwritten by the next one, and the result has slack. The source may be anybody's memory, so its
last 16 bytes are read exactly.
"""

import numpy as np

from ..ahead.families import family
from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy8,
    copy16,
    copy_bytes,
    load_u8,
    load_u32,
    prefetch,
    store_u8,
    store_u32,
    view_i32,
    view_i64,
    view_u8,
    view_u64,
)
from ..simd.widths import copy_cell

_LOOK_AHEAD = 16
"""Strings between the one being copied and the one being fetched into the cache."""


@kernel
def largest_u64(cells, count):
    """Return the largest of ``count`` uint64, which are row numbers of cells; an int64 below zero counts as very
    large."""
    values = view_u64(cells, count)
    largest = np.uint64(0)
    for i in range(count):
        largest = max(largest, values[i])
    return largest


def _gather(width):
    def gather(cells, indices, count, result):
        """Write cell ``indices[i]`` to place i of ``result``."""
        rows = view_i64(indices, count)
        for i in range(count):
            copy_cell(result + i * width, cells + rows[i] * width, width)

    return gather


gather_u8, gather_u16, gather_u32, gather_u64, gather_u128 = family("gather_u{}", _gather)


@inline
def load_offset(offsets, row):
    """Return the int32 offset of string ``row`` of a vector, which is not negative, as an int64."""
    return np.int64(load_u32(offsets + row * 4))


@kernel
def gather_offsets(offsets, indices, count, valid, result):
    """Gather strings of a vector: write the int32 offsets of those at ``indices``, end to end from 0; return the last.

    ``valid`` is the address of one bool a result, or 0; where it is False the string is empty. The
    return value is right even when it does not fit in the int32 written.
    """
    rows = view_i64(indices, count)
    ends = view_i32(result, count + 1)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        length = load_offset(offsets, rows[i] + 1) - load_offset(offsets, rows[i])
        if valid != 0 and load_u8(valid + i) == 0:
            length = 0
        end += length
        ends[i + 1] = end
    return end


@inline
def copy_string(target, source, length, source_end):
    """Copy the ``length`` bytes of a cell; write up to 15 more, read none at or past ``source_end``."""
    if source + ((length + 15) & -16) <= source_end:
        position = 0
        while position < length:
            copy16(target + position, source + position)
            position += 16
    else:
        copy_bytes(target, source, length)


@kernel
def gather_strings(offsets, data, data_end, indices, count, result_offsets, result):
    """Gather strings of a vector: write those at ``indices`` end to end, as ``result_offsets`` (of `gather_offsets`)
    says.

    ``result`` needs 16 bytes of slack; ``data_end`` is the address past the readable source.
    """
    rows = view_i64(indices, count)
    ends = view_i32(result_offsets, count + 1)
    for i in range(count):
        if i + _LOOK_AHEAD < count:
            prefetch(data + load_offset(offsets, rows[i + _LOOK_AHEAD]))
        start = np.int64(ends[i])
        source = data + load_offset(offsets, rows[i])
        copy_string(result + start, source, np.int64(ends[i + 1]) - start, data_end)


@kernel
def patch_strings(
    offsets, data, row_count, first, rowids, places, count, new_offsets, new_data, result_offsets, result
):
    """Write the strings of a vector, whose string 0 is row ``first``, with those of ``rowids`` replaced.

    ``rowids`` (int32) ascend, without repeats, and lie in the vector; string ``places[i]`` (int32) of the new ones goes
    to ``rowids[i]``. Runs between two of them move whole. ``result`` needs 16 bytes of slack.
    """
    starts = view_i32(offsets, row_count + 1)
    rows, at = view_i32(rowids, count), view_i32(places, count)
    ends = view_i32(result_offsets, row_count + 1)
    ends[0] = 0
    row = end = np.int64(0)
    for i in range(count + 1):
        stop = np.int64(rows[i]) - first if i < count else row_count
        start = np.int64(starts[row])
        run_bytes = np.int64(starts[stop]) - start
        copy_bytes(result + end, data + start, run_bytes)
        shift = end - start
        for kept in range(row, stop):
            ends[kept + 1] = np.int64(starts[kept + 1]) + shift
        end += run_bytes
        if i < count:
            place = np.int64(at[i])
            start = load_offset(new_offsets, place)
            length = load_offset(new_offsets, place + 1) - start
            copy_exactly(result + end, new_data + start, length)
            end += length
            ends[stop + 1] = end
        row = stop + 1


@kernel
def copy_exactly(target, source, length):
    """Copy the ``length`` bytes of a cell between places that do not overlap; short ones without a loop."""
    if length > 32:
        copy_bytes(target, source, length)
    elif length >= 16:
        copy16(target, source)
        copy16(target + length - 16, source + length - 16)
    elif length >= 8:
        copy8(target, source)
        copy8(target + length - 8, source + length - 8)
    elif length >= 4:
        first, last = load_u32(source), load_u32(source + length - 4)
        store_u32(target, first)
        store_u32(target + length - 4, last)
    else:
        cells = view_u8(source, length)
        for i in range(length):
            store_u8(target + i, cells[i])
