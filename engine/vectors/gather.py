"""Copy rows by number: the checked way from vectors to the gather kernels."""

from collections.abc import Sequence

import numpy as np

from .memory import allocate

MAX_DATA_BYTES = 2**31 - 1
"""Most bytes one BytesVector can hold: its offsets are int32, as in Arrow's string."""


def checked_indices(indices: np.ndarray, row_count: int) -> np.ndarray:
    """Return ``indices`` as contiguous int64; IndexError when one is outside [0, row_count)."""
    indices = np.ascontiguousarray(indices, np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= row_count):
        raise IndexError(f"a row number is outside [0, {row_count})")
    return indices


def gather_fixed(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return ``values[indices]`` in memory of our own; ``indices`` are checked int64."""
    return values[indices]


def gather_bytes(
    offsets: np.ndarray, data: np.ndarray, indices: np.ndarray, valid: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, data) of the byte strings at ``indices`` (checked int64), end to end from 0.

    Where ``valid`` (one bool a result) is False the result is empty. Raises OverflowError when
    the result would hold more than 2**31 - 1 bytes.
    """
    starts = offsets[:-1][indices].astype(np.int64)
    lengths = offsets[1:][indices] - starts
    if valid is not None:
        lengths[~valid] = 0
    total = check_data_bytes(int(lengths.sum()))
    ends = np.cumsum(lengths)
    result = allocate(len(indices) + 1, np.int32)
    result[0] = 0
    result[1:] = ends
    cells = allocate(total, np.uint8)
    cells[:] = data[np.repeat(starts - ends + lengths, lengths) + np.arange(total)]
    return result, cells


def concat_bytes(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, data) of the byte strings of all ``parts``, end to end from 0.

    Raises OverflowError when the result would hold more than 2**31 - 1 bytes.
    """
    total = check_data_bytes(sum(int(offsets[-1]) - int(offsets[0]) for offsets, _ in parts))
    result = allocate(sum(len(offsets) - 1 for offsets, _ in parts) + 1, np.int32)
    cells = allocate(total, np.uint8)
    row = position = 0
    result[0] = 0
    for offsets, data in parts:
        start, end = int(offsets[0]), int(offsets[-1])
        row_count = len(offsets) - 1
        np.add(offsets[1:], position - start, out=result[row + 1 : row + 1 + row_count])
        cells[position : position + end - start] = data[start:end]
        row, position = row + row_count, position + end - start
    return result, cells


def patch_bytes(
    base: tuple[np.ndarray, np.ndarray],
    positions: np.ndarray,
    replacement: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, data) of ``base`` with byte string i of ``replacement`` at ``positions[i]``.

    ``positions`` are checked int64, ascending. Raises OverflowError as `gather_bytes` does.
    """
    offsets, data = concat_bytes([base, replacement])
    base_rows = len(base[0]) - 1
    indices = np.arange(base_rows, dtype=np.int64)
    indices[positions] = base_rows + np.arange(len(positions))
    return gather_bytes(offsets, data, indices)


def check_data_bytes(count: int) -> int:
    """Return ``count``; OverflowError when a BytesVector cannot hold that many bytes."""
    if count > MAX_DATA_BYTES:
        raise OverflowError(f"{count} bytes do not fit in one vector of at most {MAX_DATA_BYTES}")
    return count
