"""Mini-blocks: runs of up to 1,024 cells, each shuffled and compressed alone.

A block that LZ4 does not shrink is stored as it is in memory, not even shuffled, so that reading it
is one copy; its size gives it away. All directory entries are ends (u4) that count from the first
block's first byte.
"""

import numpy as np

from ..ahead.kernel import kernel
from ..simd.simd import copy_bytes, load_u32, store_u32, view_i32, view_i64, view_u8, view_u16, view_u32
from ..simd.widths import convert_cells
from .lz4 import lz4_compress, lz4_decompress
from .transpose import SCRATCH_BYTES as TRANSPOSE_SCRATCH_BYTES
from .transpose import shuffle, unshuffle

BLOCK_ROWS = 1_024
"""Rows of one mini-block; the last one of a page may hold fewer."""

SCRATCH_BYTES = BLOCK_ROWS * 16 + TRANSPOSE_SCRATCH_BYTES
"""Room that packing and unpacking need: one block of the widest cells, and the transposition's."""

PACK_SLACK_BYTES = 16 * BLOCK_ROWS // 255 + 16
"""How far past the size of the cells LZ4 may write before a block turns out not to shrink."""


@kernel
def pack_blocks(cells: int, row_count: int, width: int, ends: int, target: int, scratch: int) -> int:
    """Write the mini-blocks of a page to ``target`` and their ends to ``ends``; return the bytes written.

    ``target`` needs the size of the cells and PACK_SLACK_BYTES more.
    """
    position = 0
    transpose_scratch = scratch + SCRATCH_BYTES - TRANSPOSE_SCRATCH_BYTES
    for first in range(0, row_count, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, row_count - first)
        raw_size = rows * width
        source = cells + first * width
        shuffle(source, scratch, rows, width, transpose_scratch)
        bound = raw_size + raw_size // 255 + 16
        size = np.int64(lz4_compress(scratch, target + position, np.int32(raw_size), np.int32(bound), np.int32(1)))
        if size <= 0 or size >= raw_size:
            copy_bytes(target + position, source, raw_size)
            size = raw_size
        position += size
        store_u32(ends, np.uint32(position))
        ends += 4
    return position


@kernel
def unpack_block(source: int, size: int, rows: int, width: int, target: int, scratch: int) -> int:
    """Restore one mini-block of ``size`` bytes; return 0, or -1 when its bytes are damaged."""
    raw_size = rows * width
    if size == raw_size:
        copy_bytes(target, source, raw_size)
        return 0
    written = lz4_decompress(source, scratch, np.int32(size), np.int32(raw_size))
    if written != raw_size:
        return -1
    transpose_scratch = scratch + SCRATCH_BYTES - TRANSPOSE_SCRATCH_BYTES
    unshuffle(scratch, target, rows, width, transpose_scratch)
    return 0


@kernel
def unpack_blocks(
    directory: int,
    row_count: int,
    width: int,
    blocks: int,
    block_count: int,
    target: int,
    scratch: int,
) -> int:
    """Restore the mini-blocks of a page whose numbers (int64) stand at ``blocks``, back to back from ``target``.

    ``directory`` is followed by the blocks of all ``row_count`` rows. Only the last block may be
    short, and then it must come last. Return 0, or -1 - n when block number n is damaged.
    """
    numbers = view_i64(blocks, block_count)
    data = directory + 4 * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS)
    for i in range(block_count):
        number = numbers[i]
        start = np.int64(0)
        if number > 0:
            start = np.int64(load_u32(directory + 4 * (number - 1)))
        size = np.int64(load_u32(directory + 4 * number)) - start
        rows = min(BLOCK_ROWS, row_count - number * BLOCK_ROWS)
        place = target + i * BLOCK_ROWS * width
        if unpack_block(data + start, size, rows, width, place, scratch) < 0:
            return -1 - number
    return 0


@kernel
def widen_codes(source: int, width: int, count: int, target: int) -> None:
    """Write ``count`` codes of a page, of 1, 2 or 4 bytes, as int32."""
    codes = view_i32(target, count)
    if width == 1:
        convert_cells(view_u8(source, count), codes)
    elif width == 2:
        convert_cells(view_u16(source, count), codes)
    else:
        convert_cells(view_u32(source, count), codes)


@kernel
def touched_blocks(rows: int, count: int, row_count: int, ordinals: int, blocks: int, positions: int) -> int:
    """Find the mini-blocks that hold ``rows`` (int64, any order) of a page of ``row_count`` rows.

    Write their numbers, ascending, to ``blocks``, and for each row its place among the cells of
    these blocks alone to ``positions``; return how many blocks there are, or -1 when a row is
    outside the page. ``ordinals`` is room for one int64 a block of the page.
    """
    wanted = view_i64(rows, count)
    places = view_i64(positions, count)
    total = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    ordinal = view_i64(ordinals, total)
    numbers = view_i64(blocks, total)
    ordinal[:] = 0
    for i in range(count):
        if wanted[i] < 0 or wanted[i] >= row_count:
            return -1
        ordinal[wanted[i] // BLOCK_ROWS] = 1
    touched = 0
    for number in range(total):
        if ordinal[number]:
            ordinal[number] = touched
            numbers[touched] = number
            touched += 1
    for i in range(count):
        block = wanted[i] // BLOCK_ROWS
        places[i] = ordinal[block] * BLOCK_ROWS + wanted[i] - block * BLOCK_ROWS
    return touched
