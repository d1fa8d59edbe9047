"""Read a morsel: consecutive rows of all columns of a scan, from encoded pages, with deltas, in one call.

Tables of int64 describe what to do. Each column has the parts of pages that hold its rows, in the order of the rows,
and the patches to apply, the oldest first; those of all columns lie one after the other. A page has one of the kinds of
`point_read`, has passed the `check` of its codec, and stays in memory meanwhile. Numbers are decoded to their place in
the result. Codes of a dictionary are decoded and patched block by block, and become strings while they are in the
cache.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.deltas import overwrite_u8, overwrite_u16, overwrite_u32, overwrite_u64, overwrite_u128
from ..pages import fsst, prefix
from ..pages.blocks import BLOCK_ROWS, unpack_block, widen_codes
from ..pages.blocks import SCRATCH_BYTES as BLOCK_SCRATCH_BYTES
from ..pages.frame_pages import SCRATCH_BYTES as FRAME_SCRATCH_BYTES
from ..pages.frame_pages import unpack_frames
from ..pages.run_length import write_runs
from ..simd.simd import (
    copy16,
    copy_bytes,
    load_u8,
    load_u32,
    load_u64,
    store_u8,
    store_u32,
    store_u64,
    view_i32,
    view_u8,
    view_u32,
)
from .point_read import (
    BITS,
    CODES,
    FIXED,
    FRAMES,
    NULLS,
    PREFIXES,
    RUNS,
    SHUFFLED,
    STRINGS,
    SYMBOLS,
    run_of,
)

# What becomes of a column (`FORM`): numbers; codes of its dictionary (int32); strings.
AS_NUMBERS, AS_CODES, AS_STRINGS = range(3)

# The fields of a column. RESULT is written: the bytes of the strings, else 0; or DAMAGED. If it exceeds CAPACITY, the
# bytes that TARGET may take, the strings were not written, and it is enough for another call.
FORM, WIDTH, TARGET, ENDS, VALID, CAPACITY, PARTS, PATCHES = range(8)
OFFSETS, VALUES, VALUE_COUNT, LONGEST, RESULT = range(8, 13)
COLUMN_FIELDS = 13

# The fields of a part: rows [FIRST_ROW, LAST_ROW) of a page.
KIND, PAYLOAD, ROWS, FIRST_ROW, LAST_ROW, BITMAP = range(6)
PART_FIELDS = 6

# The fields of a patch. The validity of its cells is one bool each, or 0 if no cell is NULL.
PATCH_ROWS, PATCH_PLACES, PATCH_COUNT, PATCH_CELLS, PATCH_VALID = range(5)
PATCH_FIELDS = 5

TEXT_KINDS = frozenset((STRINGS, PREFIXES, SYMBOLS))
"""The kinds of pages of strings without a dictionary."""

DAMAGED = -1

TARGET_SLACK_BYTES = 64
"""How far past its cells a column may be written."""

_CELLS = max(BLOCK_SCRATCH_BYTES, FRAME_SCRATCH_BYTES)
_CODES = _CELLS + BLOCK_ROWS * 16
SCRATCH_BYTES = _CODES + BLOCK_ROWS * 4
"""Room that `read_morsel` needs."""


@kernel
def read_morsel(columns: int, count: int, parts: int, patches: int, first: int, last: int, scratch: int) -> int:
    """Read a morsel: write rows [first, last) of a rowset's columns; return how many columns have a RESULT that is no
    success.

    ENDS of strings has room for the rows and one more. Without VALID (0) no cell is NULL.
    """
    unfinished = np.int64(0)
    for number in range(count):
        column = columns + number * (8 * COLUMN_FIELDS)
        form = _field(column, FORM)
        if _field(column, VALID) != 0:
            _write_validity(column, parts, patches, first, last)
        if form == AS_STRINGS:
            result = _write_strings(column, parts, patches, first, scratch)
            unfinished += np.int64(result > _field(column, CAPACITY))
        else:
            result = _write_cells(column, parts, scratch)
            _overwrite(column, patches, first, last)
        unfinished += np.int64(result < 0)
        store_u64(column + 8 * RESULT, np.uint64(result))
        parts += _field(column, PARTS) * (8 * PART_FIELDS)
        patches += _field(column, PATCHES) * (8 * PATCH_FIELDS)
    return unfinished


@kernel
def longest_string(offsets: int, count: int) -> int:
    """Return the bytes of the longest of ``count`` strings in a dictionary that a morsel is read with."""
    ends = view_i32(offsets, count + 1)
    longest = np.int32(0)
    for i in range(count):
        longest = max(longest, ends[i + 1] - ends[i])
    return np.int64(longest)


@inline
def _field(entry, number):
    return np.int64(load_u64(entry + 8 * number))


@kernel
def _write_validity(column: int, parts: int, patches: int, first: int, last: int) -> None:
    """Write one bool a row: of the pages, then of the patches."""
    target = _field(column, VALID)
    for number in range(_field(column, PARTS)):
        part = parts + number * (8 * PART_FIELDS)
        start, stop, bitmap = _field(part, FIRST_ROW), _field(part, LAST_ROW), _field(part, BITMAP)
        if _field(part, KIND) == NULLS or bitmap == 0:
            _fill(target, stop - start, np.uint8(_field(part, KIND) != NULLS))
        else:
            _unpack_bits(bitmap, start, stop, target)
        target += stop - start
    target = _field(column, VALID)
    for number in range(_field(column, PATCHES)):
        patch = patches + number * (8 * PATCH_FIELDS)
        count, valid = _field(patch, PATCH_COUNT), _field(patch, PATCH_VALID)
        rows, places = view_i32(_field(patch, PATCH_ROWS), count), view_i32(_field(patch, PATCH_PLACES), count)
        for i in range(_first_at_least(rows, count, first), count):
            if rows[i] >= last:
                break
            flag = np.uint8(1) if valid == 0 else load_u8(valid + np.int64(places[i]))
            store_u8(target + (np.int64(rows[i]) - first), flag)


@kernel
def _write_cells(column: int, parts: int, scratch: int) -> int:
    """Write numbers, or the codes of a dictionary; return 0, or DAMAGED."""
    target, width = _field(column, TARGET), _field(column, WIDTH)
    for number in range(_field(column, PARTS)):
        part = parts + number * (8 * PART_FIELDS)
        kind, payload = _field(part, KIND), _field(part, PAYLOAD)
        start, stop = _field(part, FIRST_ROW), _field(part, LAST_ROW)
        if kind == SHUFFLED:
            if _unpack(payload, _field(part, ROWS), width, start, stop, target, scratch) < 0:
                return DAMAGED
        elif kind == FIXED:
            copy_bytes(target, payload + start * width, (stop - start) * width)
        elif kind == RUNS:
            runs = np.int64(load_u32(payload))
            first_run = run_of(payload + 4, runs, start)
            write_runs(payload + 4, payload + 4 + 2 * runs, width, start, stop, first_run, target)
        elif kind == FRAMES:
            _unpack_framed(part, width, target, scratch)
        elif kind == BITS:
            _unpack_bits(payload, start, stop, target)
        elif kind == CODES:
            at = target
            row = start
            while row < stop:
                end = min(stop, (row // BLOCK_ROWS + 1) * BLOCK_ROWS)
                if _block_codes(column, part, row, end, at, scratch) < 0:
                    return DAMAGED
                at += 4 * (end - row)
                row = end
        else:
            _fill(target, (stop - start) * width, np.uint8(0))
        target += (stop - start) * width
    return 0


@kernel
def _overwrite(column: int, patches: int, first: int, last: int) -> None:
    """Put the cells of patches, numbers or codes, into the column."""
    target, width = _field(column, TARGET), _field(column, WIDTH)
    for number in range(_field(column, PATCHES)):
        patch = patches + number * (8 * PATCH_FIELDS)
        rows, places = _field(patch, PATCH_ROWS), _field(patch, PATCH_PLACES)
        count, cells = _field(patch, PATCH_COUNT), _field(patch, PATCH_CELLS)
        if width == 8:
            overwrite_u64(target, first, last, rows, places, count, cells)
        elif width == 4:
            overwrite_u32(target, first, last, rows, places, count, cells)
        elif width == 2:
            overwrite_u16(target, first, last, rows, places, count, cells)
        elif width == 1:
            overwrite_u8(target, first, last, rows, places, count, cells)
        else:
            overwrite_u128(target, first, last, rows, places, count, cells)


@kernel
def _write_strings(column: int, parts: int, patches: int, first: int, scratch: int) -> int:
    """Write strings and their ends; return their bytes, what they may need if that is too much, or DAMAGED."""
    target, ends, capacity = _field(column, TARGET), _field(column, ENDS), _field(column, CAPACITY)
    valid, longest = _field(column, VALID), _field(column, LONGEST)
    end = needed = np.int64(0)
    store_u32(ends, np.uint32(0))
    ends += 4
    row = first
    for number in range(_field(column, PARTS)):
        part = parts + number * (8 * PART_FIELDS)
        kind, start, stop = _field(part, KIND), _field(part, FIRST_ROW), _field(part, LAST_ROW)
        if kind in (STRINGS, PREFIXES, SYMBOLS):
            needed += strings_bytes(kind, _field(part, PAYLOAD), _field(part, ROWS), start, stop)
            if needed <= capacity:
                end = needed = _copy_strings(part, ends, target, end)
                if end < 0:
                    return DAMAGED
        elif kind == NULLS and _field(column, PATCHES) == 0:
            same = view_i32(ends, stop - start)
            same[:] = np.int32(end)
        else:
            at = start
            while at < stop:
                block_end = min(stop, (at // BLOCK_ROWS + 1) * BLOCK_ROWS)
                rows, done = block_end - at, at - start
                codes = scratch + _CODES
                if _block_codes(column, part, at, block_end, codes, scratch) < 0:
                    return DAMAGED
                _overwrite_codes(column, patches, row + done, row + done + rows, codes)
                flags = np.int64(0) if valid == 0 else valid + (row - first) + done
                if needed + rows * longest <= capacity:
                    end = _write_values(column, codes, rows, flags, ends + 4 * done, target, end)
                    needed = end
                else:
                    needed += rows * longest
                    capacity = np.int64(-1)
                at = block_end
        row += stop - start
        ends += 4 * (stop - start)
    return needed


@kernel
def _block_codes(column: int, part: int, start: int, stop: int, target: int, scratch: int) -> int:
    """Write the codes (int32) of rows of one mini-block, 0 in a page of NULLs; return 0, or DAMAGED if one is not in
    the dictionary."""
    payload, count = _field(part, PAYLOAD), stop - start
    if _field(part, KIND) == NULLS:
        _fill(target, 4 * count, np.uint8(0))
        return 0
    width = np.int64(load_u8(payload))
    cells = scratch + _CELLS
    if _unpack(payload + 1, _field(part, ROWS), width, start, stop, cells, scratch) < 0:
        return DAMAGED
    widen_codes(cells, width, count, target)
    codes = view_u32(target, count)
    largest = np.uint32(0)
    for i in range(count):
        largest = max(largest, codes[i])
    return 0 if np.int64(largest) < _field(column, VALUE_COUNT) else DAMAGED


@kernel
def _overwrite_codes(column: int, patches: int, first: int, last: int, codes: int) -> None:
    for number in range(_field(column, PATCHES)):
        patch = patches + number * (8 * PATCH_FIELDS)
        rows, places = _field(patch, PATCH_ROWS), _field(patch, PATCH_PLACES)
        overwrite_u32(codes, first, last, rows, places, _field(patch, PATCH_COUNT), _field(patch, PATCH_CELLS))


@kernel
def _write_values(column: int, codes: int, count: int, valid: int, ends: int, target: int, end: int) -> int:
    """Write the strings of some codes from ``end`` on; return the new end. Those that are NULL are empty.

    Reads and writes in steps of 16 bytes: the dictionary is padded, and what overshoots is overwritten by the next
    string.
    """
    offsets, values, longest = _field(column, OFFSETS), _field(column, VALUES), _field(column, LONGEST)
    numbers, stops = view_i32(codes, count), view_i32(ends, count)
    for i in range(count):
        place = offsets + 4 * np.int64(numbers[i])
        start = np.int64(load_u32(place))
        length = np.int64(load_u32(place + 4)) - start
        if valid != 0:
            length *= np.int64(load_u8(valid + i))
        copy16(target + end, values + start)
        if longest > 16:
            for position in range(16, length, 16):
                copy16(target + end + position, values + start + position)
        end += length
        stops[i] = np.int32(end)
    return end


@kernel
def strings_bytes(kind: int, payload: int, rows: int, first: int, last: int) -> int:
    """Return how many bytes the strings of rows [first, last) of a page without a dictionary, of one of the TEXT_KINDS,
    may take until a read has written them."""
    if kind == SYMBOLS:
        return fsst.bytes_of_range(payload, rows, first, last)
    if kind == PREFIXES:
        return prefix.bytes_of_range(payload, rows, first, last)
    return np.int64(load_u32(payload + 4 * last)) - np.int64(load_u32(payload + 4 * first))


@kernel
def _copy_strings(part: int, ends: int, target: int, end: int) -> int:
    """Copy the strings of a part, and their ends, from ``end`` on; return the new end, or DAMAGED."""
    kind, payload, rows = _field(part, KIND), _field(part, PAYLOAD), _field(part, ROWS)
    start, stop = _field(part, FIRST_ROW), _field(part, LAST_ROW)
    if kind == SYMBOLS:
        return fsst.unpack_range(payload, rows, start, stop, ends, target, end)
    if kind == PREFIXES:
        return prefix.restore_range(payload, rows, start, stop, ends, target, end)
    offset, size = np.int64(load_u32(payload + 4 * start)), strings_bytes(kind, payload, rows, start, stop)
    copy_bytes(target + end, payload + 4 * (rows + 1) + offset, size)
    source, written = view_i32(payload + 4 * (start + 1), stop - start), view_i32(ends, stop - start)
    shift = np.int32(end - offset)
    for i in range(stop - start):
        written[i] = source[i] + shift
    return end + size


@kernel
def _unpack(directory: int, page_rows: int, width: int, start: int, stop: int, target: int, scratch: int) -> int:
    """Write rows [start, stop) of a page of mini-blocks (see `blocks`); return 0, or DAMAGED."""
    data = directory + 4 * ((page_rows + BLOCK_ROWS - 1) // BLOCK_ROWS)
    row = start
    while row < stop:
        number = row // BLOCK_ROWS
        first = number * BLOCK_ROWS
        begin = np.int64(load_u32(directory + 4 * number - 4)) if number > 0 else np.int64(0)
        size = np.int64(load_u32(directory + 4 * number)) - begin
        rows = min(BLOCK_ROWS, page_rows - first)
        end = min(stop, first + rows)
        is_whole = row == first and end == first + rows
        place = target if is_whole else scratch + _CELLS
        if unpack_block(data + begin, size, rows, width, place, scratch) < 0:
            return DAMAGED
        if not is_whole:
            _move(target, place + (row - first) * width, (end - row) * width)
        target += (end - row) * width
        row = end
    return 0


@kernel
def _unpack_framed(part: int, width: int, target: int, scratch: int) -> None:
    """Write rows of a page of frames (see `frame_pages`), zero where they are NULL."""
    payload, rows = _field(part, PAYLOAD), _field(part, ROWS)
    start, stop, bitmap = _field(part, FIRST_ROW), _field(part, LAST_ROW), _field(part, BITMAP)
    row, place = start, target
    while row < stop:
        number = row // BLOCK_ROWS
        first = number * BLOCK_ROWS
        end = min(stop, first + BLOCK_ROWS)
        if row == first and end == min(rows, first + BLOCK_ROWS):
            unpack_frames(payload, rows, width, number, number + 1, place, scratch)
        else:
            unpack_frames(payload, rows, width, number, number + 1, scratch + _CELLS, scratch)
            copy_bytes(place, scratch + _CELLS + (row - first) * width, (end - row) * width)
        place += (end - row) * width
        row = end
    if bitmap != 0:
        for i in range(stop - start):
            at = start + i
            if (load_u8(bitmap + (at >> 3)) >> np.uint8(at & 7)) & np.uint8(1) == 0:
                _fill(target + i * width, width, np.uint8(0))


@inline
def _move(target, source, length):
    """Copy bytes to the same place or a lower one."""
    if target != source:
        if target < source and source < target + length:
            cells, others = view_u8(target, length), view_u8(source, length)
            for i in range(length):
                cells[i] = others[i]
        else:
            copy_bytes(target, source, length)


@inline
def _first_at_least(rows, count, row):
    low, high = np.int64(0), count
    while low < high:
        middle = (low + high) >> 1
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _unpack_bits(bits: int, start: int, stop: int, target: int) -> None:
    """Write one byte, 0 or 1, for each of the bits [start, stop), the lowest first."""
    flags = view_u8(target, stop - start)
    for i in range(stop - start):
        place = start + i
        flags[i] = (load_u8(bits + (place >> 3)) >> np.uint8(place & 7)) & np.uint8(1)


@kernel
def _fill(target: int, count: int, value: np.uint8) -> None:
    cells = view_u8(target, count)
    cells[:] = value
