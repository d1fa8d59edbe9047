"""Find runs of equal cells, and write them out again.

A run is its cell and the number (u2) of its last row. Both directions work on 64 bytes at a time:
one comparison of a register with its neighbour finds all the places where a run ends, and cells are
written in whole registers that overshoot the run's end, where the next run overwrites them.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    changes_u8,
    changes_u16,
    changes_u32,
    changes_u64,
    fill64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    population_count64,
    store_u16,
    trailing_zeros64,
    view_u16,
)
from ..simd.widths import copy_cell

LASTS_SLACK_BYTES = 8
"""How far `find_runs` writes past the last run's number."""

FILL_SLACK_BYTES = 64
"""How far `write_runs` writes past the last cell."""


@kernel
def find_runs(cells: int, row_count: int, width: int, lasts: int) -> int:
    """Encode a page by run lengths: write the last row (u2) of each run of equal cells to ``lasts``; return the number
    of runs.

    At least one row; cells of 1, 2, 4 or 8 bytes.
    """
    per_step = 64 // width
    steps = (row_count - 1) // per_step
    target = lasts
    for step in range(steps):
        address = cells + 64 * step
        if width == 8:
            changes = changes_u64(address)
        elif width == 4:
            changes = changes_u32(address)
        elif width == 2:
            changes = changes_u16(address)
        else:
            changes = changes_u8(address)
        place = target
        target += 2 * population_count64(changes)
        row = step * per_step
        while changes:
            # Four at a time: a branch for each set bit would be guessed wrong too often.
            for k in range(4):
                store_u16(place + 2 * k, np.uint16(row + trailing_zeros64(changes)))
                changes &= changes - np.uint64(1)
            place += 8
    for row in range(steps * per_step, row_count - 1):
        differs = False
        for byte in range(row * width, (row + 1) * width):
            differs |= load_u8(cells + byte) != load_u8(cells + byte + width)
        if differs:
            store_u16(target, np.uint16(row))
            target += 2
    store_u16(target, np.uint16(row_count - 1))
    return (target - lasts) // 2 + 1


@inline
def _take(cells, width, numbers, target):
    for i in range(len(numbers)):
        copy_cell(target + i * width, cells + np.int64(numbers[i]) * width, width)


@kernel
def take_cells(cells: int, width: int, rows: int, count: int, target: int) -> None:
    """Copy the cells of a page at ``count`` row numbers (u2), side by side, to ``target``."""
    numbers = view_u16(rows, count)
    if width == 8:
        _take(cells, 8, numbers, target)
    elif width == 4:
        _take(cells, 4, numbers, target)
    elif width == 2:
        _take(cells, 2, numbers, target)
    else:
        _take(cells, 1, numbers, target)


@kernel
def write_runs(lasts: int, cells: int, width: int, first: int, last: int, first_run: int, target: int) -> None:
    """Decode a page of run lengths: write rows [first, last), at least one, to ``target``; ``first_run`` is the run of
    ``first``.

    Overshoots the last cell by up to FILL_SLACK_BYTES.
    """
    run = first_run
    row = first
    while row < last:
        end = min(np.int64(load_u16(lasts + 2 * run)) + 1, last)
        if width == 8:
            pattern = load_u64(cells + 8 * run)
        elif width == 4:
            pattern = np.uint64(load_u32(cells + 4 * run)) * np.uint64(0x0000000100000001)
        elif width == 2:
            pattern = np.uint64(load_u16(cells + 2 * run)) * np.uint64(0x0001000100010001)
        else:
            pattern = np.uint64(load_u8(cells + run)) * np.uint64(0x0101010101010101)
        place = target + (row - first) * width
        stop = target + (end - first) * width
        while place < stop:
            fill64(place, pattern)
            place += 64
        row = end
        run += 1
