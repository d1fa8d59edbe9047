"""Frames of reference: mini-blocks of integers as their distance from a line, packed to as few bits as they need.

Of a block of n cells, cell i is ``base + (slope x i >> 16) + packed[i]``, modulo 2 to the 64. A slope of 0 is the
usual frame of reference; another one keeps rising numbers small without a sum over the cells before. Cells that would
widen the packed numbers too much are exceptions: stored as they are, with their rows. (Patched frames of reference:
Zukowski, Heman, Nes, Boncz, ICDE 2006.)

The frame of a block, 24 bytes, little-endian; block k ends at ``end``, counted from the first byte of block 0::

    | base i8 | slope i8 | end u4 | width u1 | form u1 | exceptions u2 |

and the block::

    | packed, width bits x rows | row u2 x exceptions | cell x exceptions |

This is the form LINE. Cells that are whole steps apart, such as milliseconds in microseconds, take the form STEPS: cell
i is ``base + slope x packed[i]``. Other forms are those of `decimals`, `reals` and `frame_dictionary`; `frame_pages`
has the pages.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy_bytes,
    leading_zeros64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    view_i8,
    view_i16,
    view_i32,
    view_i64,
    view_u8,
    view_u64,
)
from ..simd.widths import convert_cells
from .bit_packing import WHOLE, WIDEST, mask_of, pack_bits, packed_bytes, unpack_bits
from .blocks import BLOCK_ROWS

FRAME_BYTES = 24
LINE, DECIMAL, STEPS, REAL, DICTIONARY = range(5)
"""The forms of a block."""

DICTIONARY_WIDEST = 6
"""Bits of the numbers of a block's dictionary, at most."""

SLOPE_BITS = 16
"""Bits of a slope behind the point."""

_WIDEST_STEP = np.uint64(2**63 - 1)

TAIL_BYTES = 8
"""Zeros at the end of a page, so that a load of packed bits stays inside."""


@inline
def frame_base(frame):
    return np.int64(load_u64(frame))


@inline
def frame_slope(frame):
    return np.int64(load_u64(frame + 8))


@inline
def frame_end(frame):
    return np.int64(load_u32(frame + 16))


@inline
def frame_width(frame):
    return np.int64(load_u8(frame + 20))


@inline
def frame_form(frame):
    return np.int64(load_u8(frame + 21))


@inline
def frame_exceptions(frame):
    return np.int64(load_u16(frame + 22))


@inline
def block_start(frame, number):
    return np.int64(0) if number == 0 else frame_end(frame - FRAME_BYTES)


@kernel
def write_frame(frame: int, base: int, slope: int, end: int, width: int, form: int, exceptions: int) -> None:
    """Write the 24 bytes of the frame of a page's block."""
    store_u64(frame, np.uint64(base))
    store_u64(frame + 8, np.uint64(slope))
    store_u32(frame + 16, np.uint32(end))
    store_u8(frame + 20, np.uint8(width))
    store_u8(frame + 21, np.uint8(form))
    store_u16(frame + 22, np.uint16(exceptions))


@kernel
def check_frames(payload: int, size: int, row_count: int, cell_bytes: int, forms: int) -> int:
    """Check the frames of a page: return 0, or -1 - n if block n contradicts its frame, or the page. Bit f of ``forms``
    allows form f.

    ``size`` bytes hold at least the frames and TAIL_BYTES.
    """
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    data = payload + FRAME_BYTES * blocks
    room = size - FRAME_BYTES * blocks - TAIL_BYTES
    start = np.int64(0)
    for block in range(blocks):
        frame = payload + FRAME_BYTES * block
        rows = min(BLOCK_ROWS, row_count - BLOCK_ROWS * block)
        width, end, exceptions = frame_width(frame), frame_end(frame), frame_exceptions(frame)
        if (width > WIDEST and width != WHOLE) or exceptions > rows or end > room:
            return -1 - block
        if frame_form(frame) > DICTIONARY or (forms >> frame_form(frame)) & 1 == 0:
            return -1 - block
        if frame_form(frame) == DECIMAL and (load_u8(frame + 8) > 18 or load_u8(frame + 9) > load_u8(frame + 8)):
            return -1 - block
        if frame_form(frame) == REAL and not 0 <= frame_slope(frame) <= 1:
            return -1 - block
        packed = packed_bytes(rows, width)
        if frame_form(frame) == DICTIONARY:
            if not 1 <= width <= DICTIONARY_WIDEST or exceptions != 1 << width:
                return -1 - block
            if end - start != packed + exceptions * cell_bytes:
                return -1 - block
            start = end
            continue
        if end - start != packed + exceptions * (2 + cell_bytes):
            return -1 - block
        before = np.int64(-1)
        for i in range(exceptions):
            row = np.int64(load_u16(data + start + packed + 2 * i))
            if row <= before or row >= rows:
                return -1 - block
            before = row
        start = end
    return 0 if start == room else -1 - blocks


@kernel
def load_cells(cells: int, rows: int, cell_bytes: int, valid: int, target: int) -> None:
    """Write the cells of a page's block as int64; one under NULL (a bool a cell at ``valid``, or 0) as its neighbour,
    which costs nothing."""
    values = view_i64(target, rows)
    if cell_bytes == 8:
        copy_bytes(target, cells, 8 * rows)
    elif cell_bytes == 4:
        convert_cells(view_i32(cells, rows), values)
    elif cell_bytes == 2:
        convert_cells(view_i16(cells, rows), values)
    else:
        convert_cells(view_i8(cells, rows), values)
    if valid != 0:
        flags = view_u8(valid, rows)
        first = 0
        while first < rows and flags[first] == 0:
            first += 1
        last = values[first] if first < rows else np.int64(0)
        for i in range(rows):
            last = values[i] if flags[i] != 0 else last
            values[i] = last


@kernel
def _range_bits(values: int, rows: int) -> int:
    """Return the bits of the difference of the largest and the smallest integer."""
    cells = view_i64(values, rows)
    low = high = cells[0]
    for i in range(rows):
        low = min(low, cells[i])
        high = max(high, cells[i])
    return 64 - leading_zeros64(np.uint64(high) - np.uint64(low))


@kernel
def _slope_of(values: int, rows: int) -> int:
    """Return the slope of the line through the middles of both halves of the cells; 0 if it is too steep to be of use.

    Sums of integers, unlike the line of least squares, are taken several cells at a time; of jitter they leave a
    little more.
    """
    cells = view_i64(values, rows)
    half = rows >> 1
    first = cells[0]
    low = high = np.int64(0)
    for i in range(half):
        low += cells[i] - first
    for i in range(half, 2 * half):
        high += cells[i] - first
    slope = (float(high) - float(low)) / (float(half) * float(half)) * float(1 << SLOPE_BITS)
    return np.int64(slope) if abs(slope) < float(1 << 52) else np.int64(0)


@kernel
def pick_width(offsets: int, rows: int, cell_bytes: int) -> int:
    """Return the width of packed numbers with which a block of a page is smallest; wider ones of ``offsets`` are
    exceptions.

    Goes down from one width that occurs to the next until a block grows by an eighth.
    """
    cells = view_u64(offsets, rows)
    within = np.uint64(0)
    for i in range(rows):
        within |= cells[i]
    bits = 64 - leading_zeros64(within)
    best = bits if bits <= WIDEST else np.int64(WHOLE)
    best_size = packed_bytes(rows, best)
    while bits > 0:
        limit = mask_of(bits - 1)
        within, exceptions = np.uint64(0), np.int64(0)
        for i in range(rows):
            is_wide = cells[i] > limit
            exceptions += np.int64(is_wide)
            within |= np.uint64(0) if is_wide else cells[i]
        bits = 64 - leading_zeros64(within)
        if bits <= WIDEST:
            size = packed_bytes(rows, bits) + exceptions * (2 + cell_bytes)
            if size > best_size + (best_size >> 3):
                return best
            if size < best_size:
                best, best_size = bits, size
    return best


@kernel
def pack_integers(
    cells: int, values: int, rows: int, cell_bytes: int, frame: int, start: int, data: int, scratch: int
) -> int:
    """Write a page's block of form LINE or STEPS, of ``values`` (int64), and its frame; return where it ends.

    ``cells`` are the same as they are stored; blocks begin at ``data``, this one at ``start`` after it. ``scratch``
    has room for another 8 bytes a row. ``data`` needs 8 bytes a row.
    """
    numbers = view_i64(values, rows)
    offsets, lines = view_u64(scratch, rows), view_i64(scratch, rows)
    slope = _slope_of(values, rows) if rows > 2 else np.int64(0)
    whole = bits = _range_bits(values, rows)
    if slope != 0:
        for i in range(rows):
            lines[i] = numbers[i] - ((slope * np.int64(i)) >> SLOPE_BITS)
        bits = min(whole, _range_bits(scratch, rows))
    step = _step_of(values, rows)
    if whole - (63 - leading_zeros64(np.uint64(step))) < bits:
        return _pack_steps(cells, values, rows, cell_bytes, frame, step, start, data, scratch)
    if bits == whole:
        slope = np.int64(0)
        copy_bytes(scratch, values, 8 * rows)
    base = lines[0]
    for i in range(rows):
        base = min(base, lines[i])
    for i in range(rows):
        offsets[i] -= np.uint64(base)
    width = pick_width(scratch, rows, cell_bytes)
    return pack_block(cells, scratch, rows, cell_bytes, frame, base, slope, width, LINE, start, data)


@kernel
def _step_of(values: int, rows: int) -> int:
    """Return the largest number that divides the distances of all cells; 1 if there is none up to 2^63 - 1."""
    cells = view_i64(values, rows)
    step = np.uint64(0)
    for i in range(1, rows):
        distance = np.uint64(max(cells[i], cells[0])) - np.uint64(min(cells[i], cells[0]))
        if step & (step - np.uint64(1)) != 0:
            distance %= step
        elif step != 0:  # timestamps: the low bits of most are zero, and no division is needed to see it
            distance &= step - np.uint64(1)
        while distance != 0:
            step, distance = distance, step % distance
        if step == 1:
            return 1
    return np.int64(step) if 0 < step <= _WIDEST_STEP else np.int64(1)


@kernel
def _pack_steps(
    cells: int, values: int, rows: int, cell_bytes: int, frame: int, step: int, start: int, data: int, scratch: int
) -> int:
    """Write a block of form STEPS, as `pack_integers` does."""
    numbers, offsets = view_i64(values, rows), view_u64(scratch, rows)
    base = numbers[0]
    for i in range(rows):
        base = min(base, numbers[i])
    for i in range(rows):
        offsets[i] = (np.uint64(numbers[i]) - np.uint64(base)) // np.uint64(step)
    width = pick_width(scratch, rows, cell_bytes)
    return pack_block(cells, scratch, rows, cell_bytes, frame, base, step, width, STEPS, start, data)


@kernel
def block_bytes(offsets: int, rows: int, cell_bytes: int, width: int) -> int:
    """Return the bytes of a page's block of ``offsets`` (uint64) with that width."""
    values, mask = view_u64(offsets, rows), mask_of(width)
    exceptions = np.int64(0)
    for i in range(rows):
        exceptions += np.int64(values[i] > mask)
    return packed_bytes(rows, width) + exceptions * (2 + cell_bytes)


@kernel
def pack_block(
    cells: int,
    offsets: int,
    rows: int,
    cell_bytes: int,
    frame: int,
    base: int,
    parameter: int,
    width: int,
    form: int,
    start: int,
    data: int,
) -> int:
    """Write ``offsets`` (uint64) as a block of a page; those of more than ``width`` bits as exceptions. Return where it
    ends."""
    values = view_u64(offsets, rows)
    mask = mask_of(width)
    exceptions = np.int64(0)
    for i in range(rows):
        exceptions += np.int64(values[i] > mask)
    place = data + start
    place += pack_bits(offsets, rows, width, place)
    if exceptions > 0:
        kept = place + 2 * exceptions
        for i in range(rows):
            if values[i] > mask:
                store_u16(place, np.uint16(i))
                copy_bytes(kept, cells + i * cell_bytes, cell_bytes)
                place, kept = place + 2, kept + cell_bytes
        place = kept
    write_frame(frame, base, parameter, place - data, width, form, exceptions)
    return place - data


@inline
def _add_frame(target, rows, base, slope, form):
    """Make the packed numbers in ``target``, a view of integers, the cells; those of form LINE have their base."""
    if form == STEPS:
        for i in range(rows):
            target[i] = base + slope * target[i]
    else:
        for i in range(rows):
            target[i] += (slope * np.int64(i)) >> SLOPE_BITS


@kernel
def patch(place: int, exceptions: int, cell_bytes: int, target: int) -> None:
    """Write the exceptions of a block, which stand at ``place``, over its cells."""
    kept = place + 2 * exceptions
    for i in range(exceptions):
        row = np.int64(load_u16(place + 2 * i))
        copy_bytes(target + row * cell_bytes, kept + i * cell_bytes, cell_bytes)


@kernel
def unpack_integers(frame: int, source: int, rows: int, cell_bytes: int, target: int) -> None:
    """Write the cells of a page's block of form LINE or STEPS that begins at ``source``."""
    base, slope, width, form = frame_base(frame), frame_slope(frame), frame_width(frame), frame_form(frame)
    unpack_bits(source, rows, width, base if form == LINE else np.int64(0), cell_bytes, target)
    if slope != 0 or form != LINE:
        if cell_bytes == 8:
            _add_frame(view_i64(target, rows), rows, base, slope, form)
        elif cell_bytes == 4:
            _add_frame(view_i32(target, rows), rows, base, slope, form)
        elif cell_bytes == 2:
            _add_frame(view_i16(target, rows), rows, base, slope, form)
        else:
            _add_frame(view_i8(target, rows), rows, base, slope, form)
    patch(source + packed_bytes(rows, width), frame_exceptions(frame), cell_bytes, target)


@kernel
def exception_of(place: int, exceptions: int, row: int) -> int:
    """Return which exception of a page's block is that of ``row``; -1 if none is."""
    low, high = np.int64(0), exceptions
    while low < high:
        middle = (low + high) >> 1
        if np.int64(load_u16(place + 2 * middle)) < row:
            low = middle + 1
        else:
            high = middle
    return low if low < exceptions and np.int64(load_u16(place + 2 * low)) == row else np.int64(-1)
