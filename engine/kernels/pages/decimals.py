"""Floating point numbers that were decimals, as integers: 12.34 as 1234, with the power of ten in the frame.

ALP: Afroozeh, Kuffo, Boncz, "ALP: Adaptive Lossless floating-Point Compression", SIGMOD 2024. A number x of a block is
the integer d = round(x * 10^exponent * 10^-factor), if d * 10^factor * 10^-exponent is x to the bit; other numbers are
exceptions. Products by inverse powers are off by a bit now and then: a large exponent, with a factor that takes its
zeros away again, finds the bit back. The integers are packed as in `frames`; in the frame, exponent and factor (u1
each, six zeros behind them) stand where the slope does.

Numbers of 4 bytes are computed with as numbers of 8, and rounded.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import leading_zeros64, load_u8, view_f32, view_f64, view_i32, view_i64, view_u8, view_u64
from .bit_packing import WHOLE, mask_of, packed_bytes, unpack_bits
from .blocks import BLOCK_ROWS
from .frames import DECIMAL, frame_base, frame_exceptions, frame_width, pack_block, patch, pick_width

MAX_EXPONENT = 18
"""Ten to this power is a double, exactly."""

_ROUNDING = 6755399441055744.0
"""2^52 + 2^51: a sum with it has no bits behind the point, and the integer in its _EXCEPTION bits."""
_ROUNDING_BITS = np.int64(0x4338000000000000)

_EXCEPTION = np.int64(-(2**63))
"""Stands for the integer of a number that has none."""

_SAMPLED_BLOCKS = 4
_SAMPLED_CELLS = 32
_POWERS_BITS = 16


@inline
def _power(exponent):
    power = 1.0
    for _ in range(exponent):
        power *= 10.0
    return power


@inline
def powers_of(exponent, factor):
    """Return exponent and factor of the decimals in a block of a page as they stand in its frame."""
    return np.int64(exponent) | (np.int64(factor) << 8)


@kernel
def _round_cells(cells: int, count: int, cell_bytes: int, stride: int, powers: int, numbers: int, sums: int) -> int:
    """Write the integer (int64) of every ``stride``-th of the cells; return how many have none, and are exceptions.

    ``sums`` is room for 8 bytes a cell.
    """
    exponent, factor = powers & 255, powers >> 8
    up, down = _power(exponent), 1.0 / _power(factor)
    factor_power, inverse = _power(factor), 1.0 / _power(exponent)
    integers, rounded, bits = view_i64(numbers, count), view_f64(sums, count), view_i64(sums, count)
    exceptions = np.int64(0)
    if cell_bytes == 8:
        reals, stored = view_f64(cells, count * stride), view_i64(cells, count * stride)
        for i in range(count):
            rounded[i] = reals[i * stride] * up * down + _ROUNDING
        for i in range(count):
            integers[i] = bits[i] - _ROUNDING_BITS
        for i in range(count):
            rounded[i] = float(integers[i]) * factor_power * inverse
        for i in range(count):
            is_exception = bits[i] != stored[i * stride]
            exceptions += np.int64(is_exception)
            integers[i] = _EXCEPTION if is_exception else integers[i]
        return exceptions
    singles, words = view_f32(cells, count * stride), view_i32(cells, count * stride)
    narrow, narrow_bits = view_f32(sums, count), view_i32(sums, count)
    for i in range(count):
        rounded[i] = np.float64(singles[i * stride]) * up * down + _ROUNDING
    for i in range(count):
        integers[i] = bits[i] - _ROUNDING_BITS
    for i in range(count):
        narrow[i] = np.float32(float(integers[i]) * factor_power * inverse)
    for i in range(count):
        is_exception = narrow_bits[i] != words[i * stride]
        exceptions += np.int64(is_exception)
        integers[i] = _EXCEPTION if is_exception else integers[i]
    return exceptions


@kernel
def _sample_bits(cells: int, rows: int, cell_bytes: int, powers: int, scratch: int) -> int:
    """Return about how many bits a sample of a block's cells takes with given powers."""
    count = min(rows, _SAMPLED_CELLS)
    stride = (rows // count - 1) | 1  # odd, so that a pattern of cells is not missed
    exceptions = _round_cells(cells, count, cell_bytes, stride, powers, scratch, scratch + 8 * _SAMPLED_CELLS)
    integers = view_i64(scratch, count)
    low, high = np.int64(2**63 - 1), np.int64(-(2**63))
    for i in range(count):
        if integers[i] != _EXCEPTION:
            low, high = min(low, integers[i]), max(high, integers[i])
    width = 0 if high < low else 64 - leading_zeros64(np.uint64(high) - np.uint64(low))
    return count * width + exceptions * (8 * cell_bytes + 16)


@kernel
def pick_powers(cells: int, row_count: int, cell_bytes: int, scratch: int) -> int:
    """Return the best powers of up to four blocks of a page, 16 bits each; the first in the _EXCEPTION bits."""
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    sampled = min(blocks, _SAMPLED_BLOCKS)
    found = np.uint64(0)
    for sample in range(sampled):
        first = BLOCK_ROWS * (sample * blocks // sampled)
        rows = min(BLOCK_ROWS, row_count - first)
        best, best_bits = np.int64(0), np.int64(2**62)
        for exponent in range(MAX_EXPONENT, -1, -1):
            for factor in range(exponent, -1, -1):
                powers = powers_of(exponent, factor)
                bits = _sample_bits(cells + first * cell_bytes, rows, cell_bytes, powers, scratch)
                if bits < best_bits:
                    best, best_bits = powers, bits
        found |= np.uint64(best) << np.uint64(_POWERS_BITS * sample)
    return np.int64(found)


@kernel
def _pick_of_block(cells: int, rows: int, cell_bytes: int, candidates: int, scratch: int) -> int:
    """Return the best of a page's powers for a block."""
    best, best_bits, tried = np.int64(-1), np.int64(2**62), np.int64(-1)
    for sample in range(_SAMPLED_BLOCKS):
        powers = np.int64((np.uint64(candidates) >> np.uint64(_POWERS_BITS * sample)) & np.uint64(0xFFFF))
        if powers != tried:
            bits = _sample_bits(cells, rows, cell_bytes, powers, scratch)
            if bits < best_bits:
                best, best_bits = powers, bits
        tried = powers
    return best


@kernel
def pack_decimals(
    cells: int,
    rows: int,
    cell_bytes: int,
    valid: int,
    frame: int,
    start: int,
    data: int,
    scratch: int,
    candidates: int,
) -> int:
    """Write a page's block of form DECIMAL, and its frame; return where it ends, -1 if it would not be smaller than its
    cells.

    ``candidates`` are those of `pick_powers`. Blocks begin at ``data``, this one at ``start`` after it. Cells under
    NULL (``valid`` is as for `frames.load_cells`) take no bits. ``scratch`` has room for 16 bytes a row.
    """
    powers = _pick_of_block(cells, rows, cell_bytes, candidates, scratch)
    numbers = scratch + 8 * BLOCK_ROWS
    _round_cells(cells, rows, cell_bytes, 1, powers, numbers, scratch)
    integers, offsets = view_i64(numbers, rows), view_u64(numbers, rows)
    flags = view_u8(valid, 0 if valid == 0 else rows)
    for i in range(len(flags)):
        if flags[i] == 0:
            integers[i] = _EXCEPTION
    base = np.int64(2**63 - 1)
    for i in range(rows):
        base = base if integers[i] == _EXCEPTION else min(base, integers[i])
    if base == np.int64(2**63 - 1):
        base = np.int64(0)
    for i in range(rows):
        offsets[i] = ~np.uint64(0) if integers[i] == _EXCEPTION else offsets[i] - np.uint64(base)
    for i in range(len(flags)):
        if flags[i] == 0:
            offsets[i] = np.uint64(0)
    width = pick_width(numbers, rows, cell_bytes)
    if width == WHOLE:
        return -1
    mask = mask_of(width)
    exceptions = np.int64(0)
    for i in range(rows):
        exceptions += np.int64(offsets[i] > mask)
    if packed_bytes(rows, width) + exceptions * (2 + cell_bytes) >= rows * cell_bytes:
        return -1
    return pack_block(cells, numbers, rows, cell_bytes, frame, base, powers, width, DECIMAL, start, data)


@kernel
def unpack_decimals(frame: int, source: int, rows: int, cell_bytes: int, target: int, scratch: int) -> None:
    """Write the cells of a page's block of form DECIMAL that begins at ``source``; ``scratch`` is 8 bytes a row."""
    width = frame_width(frame)
    integers = view_i64(scratch, rows)
    unpack_bits(source, rows, width, frame_base(frame), 8, scratch)
    factor, inverse = _power(load_u8(frame + 9)), 1.0 / _power(load_u8(frame + 8))
    if cell_bytes == 8:
        doubles = view_f64(target, rows)
        for i in range(rows):
            doubles[i] = float(integers[i]) * factor * inverse
    else:
        singles = view_f32(target, rows)
        for i in range(rows):
            singles[i] = np.float32(float(integers[i]) * factor * inverse)
    patch(source + packed_bytes(rows, width), frame_exceptions(frame), cell_bytes, target)


@kernel
def store_decimal(frame: int, number: int, cell_bytes: int, target: int) -> None:
    """Write the cell of an integer in a page's block of form DECIMAL."""
    value = float(number) * _power(load_u8(frame + 9)) * (1.0 / _power(load_u8(frame + 8)))
    if cell_bytes == 8:
        view_f64(target, 1)[0] = value
    else:
        view_f32(target, 1)[0] = np.float32(value)
