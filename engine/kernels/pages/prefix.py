"""Front coding: each string as what it shares with the one before, and the rest.

Block layout, little-endian, for up to 1,024 rows::

    | width u1 | shared u1 x rows | rest length (width bytes) x rows | rests, end to end |

``width`` is 1, 2 or 4, the least that holds the longest rest of the block. Up to 255 bytes are
shared; the first row of a block shares nothing, so that a block is decoded alone. The layout by
columns lets the lengths be checked and summed without touching the strings.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy16,
    copy_bytes,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    trailing_zeros64,
    view_i32,
    view_i64,
)
from .blocks import BLOCK_ROWS

MAX_SHARED = 255

COPY_SLACK_BYTES = 16
"""How far `restore_blocks` writes past the last string."""

MAX_OUTPUT_BYTES = 2**31 - 1


@inline
def _load_length(lengths, width, row):
    if width == 1:
        return np.int64(load_u8(lengths + row))
    if width == 2:
        return np.int64(load_u16(lengths + 2 * row))
    return np.int64(load_u32(lengths + 4 * row))


@kernel
def _shared_bytes(left, right, limit, data_end):
    """Return how many of the first ``limit`` bytes of two strings are equal."""
    shared = 0
    while shared < limit:
        if max(left, right) + shared + 8 > data_end:
            if load_u8(left + shared) != load_u8(right + shared):
                return shared
            shared += 1
            continue
        difference = load_u64(left + shared) ^ load_u64(right + shared)
        if difference:
            return min(limit, shared + (trailing_zeros64(difference) >> 3))
        shared += 8
    return limit


@kernel
def _pack_block(offsets, data, data_end, rows, target):
    """Write one block whose strings start at ``offsets`` (i4); return its size."""
    starts = view_i32(offsets, rows + 1)
    shared_place = target + 1
    longest = np.int64(0)
    previous = np.int64(starts[0])
    for row in range(rows):
        start = np.int64(starts[row])
        length = np.int64(starts[row + 1]) - start
        shared = np.int64(0)
        if row > 0:
            limit = min(length, start - previous, MAX_SHARED)
            shared = _shared_bytes(data + previous, data + start, limit, data_end)
        store_u8(shared_place + row, np.uint8(shared))
        longest = max(longest, length - shared)
        previous = start
    width = 1 if longest < 1 << 8 else 2 if longest < 1 << 16 else 4
    store_u8(target, np.uint8(width))
    lengths = shared_place + rows
    place = lengths + width * rows
    for row in range(rows):
        shared = np.int64(load_u8(shared_place + row))
        rest = np.int64(starts[row + 1]) - np.int64(starts[row]) - shared
        if width == 1:
            store_u8(lengths + row, np.uint8(rest))
        elif width == 2:
            store_u16(lengths + 2 * row, np.uint16(rest))
        else:
            store_u32(lengths + 4 * row, np.uint32(rest))
        copy_string(data + np.int64(starts[row]) + shared, place, rest, data_end)
        place += rest
    return place - target


@inline
def copy_string(source, target, length, source_end):
    """Copy ``length`` bytes of a page's string 16 at a time, overshooting, unless that would read past the source."""
    if source + length + 15 <= source_end:
        position = 0
        while position < length:
            copy16(target + position, source + position)
            position += 16
    else:
        copy_bytes(target, source, length)


@kernel
def pack_blocks(offsets: int, data: int, data_end: int, row_count: int, ends: int, target: int) -> int:
    """Encode a page of strings by prefixes: write the blocks of a BytesVector and the end (u4) of each; return the
    bytes written.

    ``target`` needs 1 byte a block, 5 a row, the strings, and COPY_SLACK_BYTES.
    """
    position = 0
    for first in range(0, row_count, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, row_count - first)
        position += _pack_block(offsets + 4 * first, data, data_end, rows, target + position)
        store_u32(ends, np.uint32(position))
        ends += 4
    return position


@kernel
def check_block(block: int, size: int, rows: int) -> int:
    """Return how many bytes a block of a page of strings decodes to, or -1 when its lengths contradict each other."""
    width = np.int64(load_u8(block)) if size > 0 else 0
    if width != 1 and width != 2 and width != 4:
        return -1
    rests = size - 1 - rows * (1 + width)
    if rests < 0 or load_u8(block + 1) != 0:
        return -1
    lengths = block + 1 + rows
    total = np.int64(0)
    previous = np.int64(0)
    for row in range(rows):
        shared = np.int64(load_u8(block + 1 + row))
        rest = _load_length(lengths, width, row)
        if shared > previous or rest > rests:
            return -1
        previous = shared + rest
        rests -= rest
        total += previous
    return total if rests == 0 else -1


@kernel
def check_blocks(payload: int, row_count: int) -> int:
    """Check a page of strings in prefixes: return 0, or -1 - n when block n is damaged or makes the page decode to 2
    GiB or more.

    The directory of ends (u4) at ``payload`` has been checked.
    """
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    start = np.int64(0)
    total = np.int64(0)
    for block in range(blocks):
        end = np.int64(load_u32(payload + 4 * block))
        rows = min(BLOCK_ROWS, row_count - block * BLOCK_ROWS)
        size = check_block(payload + 4 * blocks + start, end - start, rows)
        total += size
        if size < 0 or total > MAX_OUTPUT_BYTES:
            return -1 - block
        start = end
    return 0


@inline
def _block_start(payload, row_count, block):
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    start = np.int64(0)
    if block > 0:
        start = np.int64(load_u32(payload + 4 * (block - 1)))
    return payload + 4 * blocks + start


@inline
def _payload_end(payload, row_count):
    return _block_start(payload, row_count, (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS)


@kernel
def measure_blocks(payload: int, row_count: int, numbers: int, block_count: int, offsets: int) -> int:
    """Write where each string of the listed blocks (i8) of a page will start; return the bytes in all.

    ``offsets`` (i4) has one entry more than the blocks have rows. Blocks are checked.
    """
    blocks = view_i64(numbers, block_count)
    store_u32(offsets, np.uint32(0))
    position = np.int64(0)
    for i in range(block_count):
        block = _block_start(payload, row_count, blocks[i])
        rows = min(BLOCK_ROWS, row_count - blocks[i] * BLOCK_ROWS)
        width = np.int64(load_u8(block))
        ends = view_i32(offsets + 4 * (i * BLOCK_ROWS + 1), rows)
        for row in range(rows):
            position += np.int64(load_u8(block + 1 + row))
            position += _load_length(block + 1 + rows, width, row)
            ends[row] = np.int32(position)
    return position


@kernel
def _restore_rows(
    block: int, payload_end: int, rows: int, first: int, last: int, ends: int, target: int, place: int
) -> int:
    """Write the strings of rows [first, last) of a block of ``rows`` from ``place`` on; return where the last one ends.

    With ``ends`` not 0, write (i4) where each ends, counted from ``target``. The rows before ``first`` replace one
    another at ``place``: they need room too.
    """
    width = np.int64(load_u8(block))
    lengths = block + 1 + rows
    source = lengths + width * rows
    for row in range(first):
        shared, rest = np.int64(load_u8(block + 1 + row)), _load_length(lengths, width, row)
        copy_string(source, place + shared, rest, payload_end)
        source += rest
    previous = place
    for row in range(first, last):
        shared, rest = np.int64(load_u8(block + 1 + row)), _load_length(lengths, width, row)
        position = 0
        while position < shared:
            copy16(place + position, previous + position)
            position += 16
        previous = place
        place += shared
        copy_string(source, place, rest, payload_end)
        place += rest
        source += rest
        if ends != 0:
            store_u32(ends, np.uint32(place - target))
            ends += 4
    return place


@kernel
def restore_blocks(
    payload: int,
    payload_end: int,
    row_count: int,
    numbers: int,
    block_count: int,
    target: int,
) -> None:
    """Decode a page of strings: write those of the listed blocks (i8), end to end; overshoots COPY_SLACK_BYTES."""
    blocks = view_i64(numbers, block_count)
    place = target
    for i in range(block_count):
        block = _block_start(payload, row_count, blocks[i])
        rows = min(BLOCK_ROWS, row_count - blocks[i] * BLOCK_ROWS)
        place = _restore_rows(block, payload_end, rows, 0, rows, 0, target, place)


@kernel
def bytes_of_range(payload: int, row_count: int, first: int, last: int) -> int:
    """Return how many bytes `restore_range` may write for rows [first, last) of a page."""
    total = np.int64(0)
    for number in range(first // BLOCK_ROWS, (last + BLOCK_ROWS - 1) // BLOCK_ROWS):
        block, rows = _block_start(payload, row_count, number), min(BLOCK_ROWS, row_count - number * BLOCK_ROWS)
        width = np.int64(load_u8(block))
        for row in range(rows):
            total += np.int64(load_u8(block + 1 + row)) + _load_length(block + 1 + rows, width, row)
    return total


@kernel
def restore_range(payload: int, row_count: int, first: int, last: int, ends: int, target: int, end: int) -> int:
    """Write the strings of rows [first, last) of a page from ``target + end`` on, and where each ends (i4, counted from
    ``target``); return the last end. Overshoots COPY_SLACK_BYTES."""
    place, row = target + end, first
    while row < last:
        number = row // BLOCK_ROWS
        block, start = _block_start(payload, row_count, number), BLOCK_ROWS * number
        rows, stop = min(BLOCK_ROWS, row_count - start), min(last, start + BLOCK_ROWS)
        payload_end = _payload_end(payload, row_count)
        place = _restore_rows(block, payload_end, rows, row - start, stop - start, ends, target, place)
        ends += 4 * (stop - row)
        row = stop
    return place - target


@kernel
def read_string(payload: int, row_count: int, row: int, target: int, room: int) -> int:
    """Write the string of one row of a page; return its bytes, or -2 if ``room`` bytes may not be enough. Overshoots
    COPY_SLACK_BYTES."""
    number, i = row // BLOCK_ROWS, row % BLOCK_ROWS
    block, rows = _block_start(payload, row_count, number), min(BLOCK_ROWS, row_count - number * BLOCK_ROWS)
    width = np.int64(load_u8(block))
    longest = length = np.int64(0)
    for before in range(i + 1):
        length = np.int64(load_u8(block + 1 + before)) + _load_length(block + 1 + rows, width, before)
        longest = max(longest, length)
    if longest > room:
        return -2
    _restore_rows(block, _payload_end(payload, row_count), rows, i, i + 1, 0, target, target)
    return length
