"""Cells of any width, in bytes. Where the width is a constant, only the branch for it is compiled."""

import numpy as np

from ..ahead.kernel import inline
from .simd import (
    copy16,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)


@inline
def load_cell(source, width):
    """Return a cell of 1, 2, 4 or 8 bytes as an uint64."""
    if width == 8:
        return load_u64(source)
    if width == 4:
        return np.uint64(load_u32(source))
    if width == 2:
        return np.uint64(load_u16(source))
    return np.uint64(load_u8(source))


@inline
def store_cell(target, width, value):
    """Write the lower bytes of an integer as a cell of 1, 2, 4 or 8."""
    if width == 8:
        store_u64(target, np.uint64(value))
    elif width == 4:
        store_u32(target, np.uint32(value))
    elif width == 2:
        store_u16(target, np.uint16(value))
    else:
        store_u8(target, np.uint8(value))


@inline
def copy_cell(target, source, width):
    """Copy a cell of 1, 2, 4, 8 or 16 bytes."""
    if width == 16:
        copy16(target, source)
    elif width == 8:
        store_u64(target, load_u64(source))
    elif width == 4:
        store_u32(target, load_u32(source))
    elif width == 2:
        store_u16(target, load_u16(source))
    else:
        store_u8(target, load_u8(source))


@inline
def convert_cells(cells, values):
    """Write each number as one of another width; ``values`` are as many."""
    for i in range(len(values)):
        values[i] = cells[i]
