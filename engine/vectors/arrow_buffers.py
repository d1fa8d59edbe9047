"""Arrow's buffers as numpy arrays, and back: what all types of Arrow share, and strings."""

import numpy as np
import pyarrow as pa

from .gather import check_data_bytes, gather_bytes
from .memory.memory import allocate, allocate_zeroed
from .vector import BytesVector, FixedVector


def validity_of(array: pa.Array) -> np.ndarray | None:
    if array.null_count == 0:
        return None
    return unpack_bits(array.buffers()[0], array.offset, len(array)).view(np.bool_)


def unpack_bits(bitmap: pa.Buffer | None, first: int, count: int) -> np.ndarray:
    if bitmap is None:
        return np.zeros(0, np.uint8)
    last = first + count
    packed = np.frombuffer(bitmap, np.uint8, (last + 7) // 8 - first // 8, first // 8)
    return np.unpackbits(packed, bitorder="little")[first % 8 : first % 8 + count]


def cells_of(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """Return the values buffer of ``array`` as a view, or as a copy when it is not aligned for ``dtype``."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype)
    cells = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return cells if cells.flags.aligned else cells.copy()


def fixed(cells: np.ndarray, valid: np.ndarray | None) -> FixedVector:
    """Return the cells with zeros under the NULLs, copied only if there are other values."""
    if valid is None:
        return FixedVector(cells)
    null = np.flatnonzero(~valid)
    if np.ascontiguousarray(cells[null]).view(np.uint8).any():
        garbage, cells = cells, allocate(len(cells), cells.dtype)
        cells[:] = garbage
        cells[null] = np.zeros((), cells.dtype)
    return FixedVector(cells, valid)


def from_strings(array: pa.Array, valid: np.ndarray | None) -> BytesVector:
    if len(array) == 0:  # Arrow allows an empty array to have no offsets at all
        return BytesVector(allocate_zeroed(1, np.int32), allocate(0, np.uint8))
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offset_type = np.dtype(np.int64 if is_large else np.int32)
    offset_buffer, data_buffer = array.buffers()[1:]
    offsets = np.frombuffer(offset_buffer, offset_type, len(array) + 1, array.offset * offset_type.itemsize)
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    if is_large:
        first, last = int(offsets[0]), int(offsets[-1])
        check_data_bytes(last - first)
        offsets, data = (offsets - first).astype(np.int32), data[first:last]
    elif not offsets.flags.aligned:
        offsets = offsets.copy()
    if valid is not None and (offsets[1:] - offsets[:-1])[~valid].any():
        offsets, data = gather_bytes(offsets, data, np.arange(len(array)), valid)
    return BytesVector(offsets, data, valid)


def bytes_to_arrow(vector: BytesVector, arrow_type: pa.DataType) -> pa.Array:
    offsets, data = vector.offsets, vector.data
    first, last = int(offsets[0]), int(offsets[-1])
    # Exactly these bytes: a message is padded from what the buffer has behind them, which may be anybody's.
    offsets, data = offsets - first if first else offsets, data[first:last]
    if pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type):
        offsets = offsets.astype(np.int64)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(data)]
    return array_of(arrow_type, len(vector), vector.valid, buffers)


def array_of(
    arrow_type: pa.DataType,
    row_count: int,
    valid: np.ndarray | None,
    buffers: list[pa.Buffer],
    children: list[pa.Array] | None = None,
) -> pa.Array:
    null_count = 0 if valid is None else row_count - int(np.count_nonzero(valid))
    bitmap = None
    if valid is not None and null_count:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow_type, row_count, [bitmap, *buffers], null_count, children=children)
