"""Pages of blocks with frames: the frames of all blocks, then the blocks (see `frames` and `frame_dictionary`)."""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import copy_bytes, view_i64
from ..simd.widths import store_cell
from .bit_packing import load_bits, packed_bytes
from .blocks import BLOCK_ROWS
from .decimals import pack_decimals, pick_powers, store_decimal, unpack_decimals
from .frame_dictionary import pack_dictionary, read_dictionary_cell, unpack_dictionary
from .frames import (
    DECIMAL,
    DICTIONARY,
    FRAME_BYTES,
    REAL,
    SLOPE_BITS,
    STEPS,
    block_start,
    exception_of,
    frame_base,
    frame_exceptions,
    frame_form,
    frame_slope,
    frame_width,
    load_cells,
    pack_integers,
    unpack_integers,
)
from .reals import pack_bits_of_reals, store_real, unpack_reals

SCRATCH_BYTES = 4 * 8 * BLOCK_ROWS
"""Room that packing and unpacking need: four blocks of 8 bytes a cell."""


@kernel
def pack_frames(cells: int, row_count: int, cell_bytes: int, valid: int, payload: int, scratch: int) -> int:
    """Write the frames and blocks of a page of integers; return the bytes written, without the tail.

    ``payload`` needs the frames, 8 bytes a row, and LOAD_BYTES.
    """
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    data, end = payload + FRAME_BYTES * blocks, np.int64(0)
    room = scratch + 8 * BLOCK_ROWS
    for block in range(blocks):
        first = BLOCK_ROWS * block
        rows = min(BLOCK_ROWS, row_count - first)
        source = cells + first * cell_bytes
        load_cells(source, rows, cell_bytes, 0 if valid == 0 else valid + first, scratch)
        frame = payload + FRAME_BYTES * block
        packed = pack_integers(source, scratch, rows, cell_bytes, frame, end, data, room)
        end = pack_dictionary(scratch, rows, cell_bytes, frame, end, packed, data, room)
    return FRAME_BYTES * blocks + end


@kernel
def pack_reals(cells: int, row_count: int, cell_bytes: int, valid: int, payload: int, scratch: int) -> int:
    """Do what `pack_frames` does for a page of floating point numbers of 4 or 8 bytes."""
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    data, end = payload + FRAME_BYTES * blocks, np.int64(0)
    room = scratch + 8 * BLOCK_ROWS
    powers = pick_powers(cells, row_count, cell_bytes, scratch)
    for block in range(blocks):
        first = BLOCK_ROWS * block
        rows = min(BLOCK_ROWS, row_count - first)
        source, frame = cells + first * cell_bytes, payload + FRAME_BYTES * block
        flags = 0 if valid == 0 else valid + first
        packed = pack_decimals(source, rows, cell_bytes, flags, frame, end, data, scratch, powers)
        if packed < 0:
            load_cells(source, rows, cell_bytes, flags, scratch)
            packed = pack_integers(source, scratch, rows, cell_bytes, frame, end, data, room)
            packed = pack_bits_of_reals(source, scratch, rows, cell_bytes, frame, end, packed, data, room)
            packed = pack_dictionary(scratch, rows, cell_bytes, frame, end, packed, data, room)
        end = packed
    return FRAME_BYTES * blocks + end


@kernel
def unpack_frames(
    payload: int, row_count: int, cell_bytes: int, first: int, last: int, target: int, scratch: int
) -> None:
    """Write the cells of blocks [first, last) of a page, back to back; ``scratch`` is 8 bytes for each row of one."""
    data = payload + FRAME_BYTES * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS)
    for block in range(first, last):
        frame = payload + FRAME_BYTES * block
        rows = min(BLOCK_ROWS, row_count - BLOCK_ROWS * block)
        place = target + (block - first) * BLOCK_ROWS * cell_bytes
        source = data + block_start(frame, block)
        if frame_form(frame) == DECIMAL:
            unpack_decimals(frame, source, rows, cell_bytes, place, scratch)
        elif frame_form(frame) == REAL:
            unpack_reals(frame, source, rows, cell_bytes, place)
        elif frame_form(frame) == DICTIONARY:
            unpack_dictionary(frame, source, rows, cell_bytes, place)
        else:
            unpack_integers(frame, source, rows, cell_bytes, place)


@inline
def frame_cell_address(payload, row_count, row):
    """Return where about the bits of one cell of a page are: right unless its block has a dictionary."""
    block = row // BLOCK_ROWS
    frame = payload + FRAME_BYTES * block
    source = payload + FRAME_BYTES * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS) + block_start(frame, block)
    return source + (((row - block * BLOCK_ROWS) * frame_width(frame)) >> 3)


@kernel
def read_frame_cell(payload: int, row_count: int, cell_bytes: int, row: int, target: int) -> None:
    """Write one cell of a page; reads its frame and no other cell."""
    block = row // BLOCK_ROWS
    frame = payload + FRAME_BYTES * block
    source = payload + FRAME_BYTES * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS) + block_start(frame, block)
    i, width, exceptions = row - block * BLOCK_ROWS, frame_width(frame), frame_exceptions(frame)
    rows = min(BLOCK_ROWS, row_count - BLOCK_ROWS * block)
    if frame_form(frame) == DICTIONARY:
        read_dictionary_cell(frame, source, rows, cell_bytes, i, target)
        return
    if exceptions > 0:
        place = source + packed_bytes(rows, width)
        exception = exception_of(place, exceptions, i)
        if exception >= 0:
            copy_bytes(target, place + 2 * exceptions + exception * cell_bytes, cell_bytes)
            return
    base, slope, packed = frame_base(frame), frame_slope(frame), np.int64(load_bits(source, i, width))
    if frame_form(frame) == DECIMAL:
        store_decimal(frame, base + packed, cell_bytes, target)
    elif frame_form(frame) == REAL:
        store_real(base + packed, slope, cell_bytes, target)
    elif frame_form(frame) == STEPS:
        store_cell(target, cell_bytes, base + slope * packed)
    else:
        store_cell(target, cell_bytes, base + packed + ((slope * i) >> SLOPE_BITS))


@kernel
def gather_frames(payload: int, row_count: int, cell_bytes: int, rows: int, count: int, target: int) -> None:
    """Write the cells at ``rows`` (int64, inside the page), in that order."""
    wanted = view_i64(rows, count)
    for i in range(count):
        read_frame_cell(payload, row_count, cell_bytes, wanted[i], target + i * cell_bytes)
