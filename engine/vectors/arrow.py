"""Vectors from Arrow arrays and back, without copying where the two layouts agree.

They agree on fixed widths and on strings. They differ on booleans and validity (Arrow packs bits, a vector has a byte
each), on cells under a NULL (garbage in Arrow, zero in a vector), and on decimals (Arrow always 16 bytes, a vector the
narrowest integer for the precision).

Arrays are trusted here: those from outside must have passed ``validate(full=True)``, or their offsets may point
anywhere.
"""

import numpy as np
import pyarrow as pa

from .gather import check_data_bytes, gather_bytes
from .memory.memory import allocate, allocate_zeroed
from .physical import INT128_DTYPE, PhysicalType, physical_of, resized
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, materialize


def from_arrow(array: pa.Array, physical: PhysicalType) -> Vector:
    """Return the cells of ``array``, which may be a slice, as a vector of ``physical``.

    A dictionary of strings becomes a DictionaryVector, any other dictionary is decoded. Raises TypeError if the array's
    type is not stored as ``physical``, and OverflowError for more than 2**31 - 1 bytes of strings or for a decimal too
    large for its precision's integer.
    """
    if not _fits(array.type, physical):
        raise TypeError(f"{array.type} is not stored as {physical}")
    if pa.types.is_dictionary(array.type):
        return _from_dictionary(array, physical)
    valid = _validity(array)
    if physical is PhysicalType.BYTES:
        return _from_strings(array, valid)
    if physical is PhysicalType.BOOL:
        return _fixed(_unpack_bits(array.buffers()[1], array.offset, len(array)), valid)
    if pa.types.is_decimal128(array.type):
        return _from_decimals(array, valid, physical)
    return _fixed(_cells(array, physical.dtype), valid)


def to_arrow(vector: Vector, arrow_type: pa.DataType, dictionary: bool = False) -> pa.Array:
    """Return the cells of ``vector`` as an array of ``arrow_type``, whose physical type is the vector's.

    A DictionaryVector is materialised, unless ``dictionary`` is true or ``arrow_type`` is a dictionary type; then the
    result is a DictionaryArray with int32 indices. The array keeps the vector's memory alive.
    """
    if pa.types.is_dictionary(arrow_type):
        arrow_type, dictionary = arrow_type.value_type, True
    if isinstance(vector, FixedVector):
        return _fixed_to_arrow(vector, arrow_type)
    if isinstance(vector, BytesVector):
        return _bytes_to_arrow(vector, arrow_type)
    if not dictionary:
        return _bytes_to_arrow(materialize(vector), arrow_type)
    codes = _fixed_to_arrow(FixedVector(vector.codes, vector.valid), pa.int32())
    values = _bytes_to_arrow(vector.dictionary, arrow_type)
    return pa.DictionaryArray.from_arrays(codes, values, safe=False)


def _fits(arrow_type: pa.DataType, physical: PhysicalType) -> bool:
    if pa.types.is_decimal128(arrow_type):  # an integer wider than the precision needs is fine
        return physical.is_integer and physical.width >= physical_of(arrow_type).width
    return physical_of(arrow_type) is physical


def _validity(array: pa.Array) -> np.ndarray | None:
    if array.null_count == 0:
        return None
    return _unpack_bits(array.buffers()[0], array.offset, len(array)).view(np.bool_)


def _unpack_bits(bitmap: pa.Buffer | None, first: int, count: int) -> np.ndarray:
    if bitmap is None:
        return np.zeros(0, np.uint8)
    last = first + count
    packed = np.frombuffer(bitmap, np.uint8, (last + 7) // 8 - first // 8, first // 8)
    return np.unpackbits(packed, bitorder="little")[first % 8 : first % 8 + count]


def _cells(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """Return the values buffer of ``array`` as a view, or as a copy when it is not aligned for ``dtype``."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype)
    cells = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return cells if cells.flags.aligned else cells.copy()


def _fixed(cells: np.ndarray, valid: np.ndarray | None) -> FixedVector:
    """Return the cells with zeros under the NULLs, copied only if there are other values."""
    if valid is None:
        return FixedVector(cells)
    null = np.flatnonzero(~valid)
    if np.ascontiguousarray(cells[null]).view(np.uint8).any():
        garbage, cells = cells, allocate(len(cells), cells.dtype)
        cells[:] = garbage
        cells[null] = np.zeros((), cells.dtype)
    return FixedVector(cells, valid)


def _from_decimals(array: pa.Array, valid: np.ndarray | None, physical: PhysicalType) -> FixedVector:
    wide = _fixed(_cells(array, INT128_DTYPE), valid)
    if physical is PhysicalType.INT128:
        return wide
    low = wide.values["lo"].view(np.int64)
    narrow = low.astype(physical.dtype)
    if (narrow != low).any() or (wide.values["hi"] != low >> 63).any():
        raise OverflowError(f"a value does not fit in {array.type}")
    return FixedVector(narrow, valid)


def _from_strings(array: pa.Array, valid: np.ndarray | None) -> BytesVector:
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


def _from_dictionary(array: pa.DictionaryArray, physical: PhysicalType) -> Vector:
    if physical is not PhysicalType.BYTES or array.dictionary.null_count:
        return from_arrow(array.dictionary_decode(), physical)
    values = _from_strings(array.dictionary, None)
    codes = from_arrow(array.indices.cast(pa.int32(), safe=False), PhysicalType.INT32)
    assert isinstance(codes, FixedVector)
    return DictionaryVector(codes.values, values, codes.valid)


def _fixed_to_arrow(vector: FixedVector, arrow_type: pa.DataType) -> pa.Array:
    assert vector.values.dtype.itemsize == physical_of(arrow_type).width, "not the vector's type"
    cells = vector.values
    if pa.types.is_boolean(arrow_type):
        cells = np.packbits(cells, bitorder="little")
    elif pa.types.is_decimal128(arrow_type) and cells.dtype != INT128_DTYPE:
        cells = resized(cells, INT128_DTYPE)
    return _array(arrow_type, len(vector), vector.valid, [pa.py_buffer(cells)])


def _bytes_to_arrow(vector: BytesVector, arrow_type: pa.DataType) -> pa.Array:
    offsets, data = vector.offsets, vector.data
    first, last = int(offsets[0]), int(offsets[-1])
    # Exactly these bytes: a message is padded from what the buffer has behind them, which may be anybody's.
    offsets, data = offsets - first if first else offsets, data[first:last]
    if pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type):
        offsets = offsets.astype(np.int64)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(data)]
    return _array(arrow_type, len(vector), vector.valid, buffers)


def _array(arrow_type: pa.DataType, row_count: int, valid: np.ndarray | None, buffers: list[pa.Buffer]) -> pa.Array:
    null_count = 0 if valid is None else row_count - int(np.count_nonzero(valid))
    bitmap = None
    if valid is not None and null_count:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(arrow_type, row_count, [bitmap, *buffers], null_count)
