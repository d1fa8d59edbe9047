"""Copies rows by number: checks arrays before calling the gather kernels.

A column of byte strings is a pair (offsets, data) here, as in a BytesVector.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..kernels.cells import gather as kernels
from .memory.memory import address_of, allocate

MAX_DATA_BYTES = 2**31 - 1
"""The most bytes of one vector of byte strings: its offsets are int32, as in Arrow's string."""

Strings = tuple[np.ndarray, np.ndarray]
"""(offsets int32, data uint8)"""

_GATHER_FIXED: dict[int, Callable[[int, int, int, int], None]] = {
    1: kernels.gather_u8,
    2: kernels.gather_u16,
    4: kernels.gather_u32,
    8: kernels.gather_u64,
    16: kernels.gather_u128,
}


def checked_indices(indices: np.ndarray, row_count: int) -> np.ndarray:
    """Return the ``indices`` of cells to copy from a vector as contiguous int64; IndexError if one is outside [0,
    row_count)."""
    indices = np.ascontiguousarray(indices, np.int64)
    if indices.size and kernels.largest_u64(address_of(indices), len(indices)) >= row_count:
        raise IndexError(f"a row number is outside [0, {row_count})")
    return indices


def gather_fixed(cells: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the cells of a vector at ``indices``, which are checked int64; ``cells`` are contiguous."""
    result = allocate(len(indices), cells.dtype)
    gather = _GATHER_FIXED[cells.dtype.itemsize]
    gather(address_of(cells), address_of(indices), len(indices), address_of(result))
    return result


def gather_bytes(
    offsets: np.ndarray, data: np.ndarray, indices: np.ndarray, valid: np.ndarray | None = None
) -> Strings:
    """Return (offsets, data) of a vector's byte strings at ``indices`` (checked int64), concatenated from 0.

    Where ``valid`` (one bool a result) is False the result is empty. Raises OverflowError if the result would hold more
    than 2**31 - 1 bytes.
    """
    count = len(indices)
    ends = allocate(count + 1, np.int32)
    flags = 0 if valid is None else address_of(valid)
    places = address_of(offsets), address_of(indices), address_of(ends)
    total = int(kernels.gather_offsets(places[0], places[1], count, flags, places[2]))
    cells = allocate(check_data_bytes(total), np.uint8)
    source = address_of(data)
    kernels.gather_strings(places[0], source, source + len(data), places[1], count, places[2], address_of(cells))
    return ends, cells


def concat_bytes(parts: Sequence[Strings]) -> Strings:
    """Return (offsets, data) of the byte strings of several vectors, the ``parts``, concatenated from 0.

    Raises OverflowError if the result would hold more than 2**31 - 1 bytes.
    """
    total = check_data_bytes(sum(int(offsets[-1]) - int(offsets[0]) for offsets, _ in parts))
    ends = allocate(sum(len(offsets) - 1 for offsets, _ in parts) + 1, np.int32)
    cells = allocate(total, np.uint8)
    row = position = 0
    ends[0] = 0
    for offsets, data in parts:
        start, stop = int(offsets[0]), int(offsets[-1])
        row_count = len(offsets) - 1
        np.add(offsets[1:], position - start, out=ends[row + 1 : row + 1 + row_count])
        cells[position : position + stop - start] = data[start:stop]
        row, position = row + row_count, position + stop - start
    return ends, cells


def patch_bytes(base: Strings, positions: np.ndarray, replacement: Strings) -> Strings:
    """Return (offsets, data) of the byte strings of a vector, with string i of ``replacement`` at ``positions[i]``.

    ``positions`` are checked int64, ascending. Raises OverflowError as `gather_bytes` does.
    """
    offsets, data = base
    new_offsets, new_data = replacement
    removed = int((offsets[positions + 1] - offsets[positions]).sum(dtype=np.int64))
    added = int(new_offsets[-1]) - int(new_offsets[0])
    total = int(offsets[-1]) - int(offsets[0]) - removed + added
    ends = allocate(len(offsets), np.int32)
    cells = allocate(check_data_bytes(total), np.uint8)
    rows, places = positions.astype(np.int32), np.arange(len(positions), dtype=np.int32)
    kernels.patch_strings(
        address_of(offsets),
        address_of(data),
        len(offsets) - 1,
        0,
        address_of(rows),
        address_of(places),
        len(rows),
        address_of(new_offsets),
        address_of(new_data),
        address_of(ends),
        address_of(cells),
    )
    return ends, cells


def check_data_bytes(count: int) -> int:
    """Return ``count``; OverflowError if one vector cannot hold that many bytes."""
    if count > MAX_DATA_BYTES:
        raise OverflowError(f"{count} bytes do not fit in one vector of at most {MAX_DATA_BYTES}")
    return count
