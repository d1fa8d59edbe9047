"""Vectors from Arrow arrays and back, without copying where the two layouts agree.

They agree on fixed widths and on strings. They differ on booleans and validity (Arrow packs bits, a vector has a byte
each), on cells under a NULL (garbage in Arrow, zero in a vector), and on decimals (Arrow always 16 bytes, a vector the
narrowest integer for the precision), unsigned integers and half floats (a vector the next wider type), and nested
arrays (a vector has a byte string for each cell).

Arrays are trusted here: those from outside must have passed ``validate(full=True)``, or their offsets may point
anywhere.
"""

import numpy as np
import pyarrow as pa

from ...schemas.cells.types import NESTED_IDS
from .arrow_buffers import array_of, bytes_to_arrow, cells_of, fixed, from_strings, unpack_bits, validity_of
from .nested import nested_from_arrow, nested_to_arrow
from .physical import INT128_DTYPE, NARROWER, PhysicalType, physical_of, resized
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes, materialize


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
    if array.type.id in NESTED_IDS:
        return nested_from_arrow(array)
    valid = validity_of(array)
    if physical is PhysicalType.BYTES:
        return from_strings(array, valid)
    if physical is PhysicalType.BOOL:
        return fixed(unpack_bits(array.buffers()[1], array.offset, len(array)), valid)
    if pa.types.is_decimal128(array.type):
        return _from_decimals(array, valid, physical)
    if (narrow := NARROWER.get(array.type.id)) is not None:
        return FixedVector(resized(fixed(cells_of(array, narrow), valid).values, physical.dtype), valid)
    return fixed(cells_of(array, physical.dtype), valid)


def to_arrow(vector: Vector, arrow_type: pa.DataType, dictionary: bool = False) -> pa.Array:
    """Return the cells of ``vector`` as an array of ``arrow_type``, whose physical type is the vector's.

    A DictionaryVector is materialised, unless ``dictionary`` is true or ``arrow_type`` is a dictionary type; then the
    result is a DictionaryArray with int32 indices. The array keeps the vector's memory alive.
    """
    if pa.types.is_dictionary(arrow_type):
        arrow_type, dictionary = arrow_type.value_type, True
    if isinstance(vector, FixedVector):
        return _fixed_to_arrow(vector, arrow_type)
    if arrow_type.id in NESTED_IDS:
        return nested_to_arrow(as_bytes(vector), arrow_type)
    if isinstance(vector, BytesVector):
        return bytes_to_arrow(vector, arrow_type)
    if not dictionary:
        return bytes_to_arrow(materialize(vector), arrow_type)
    codes = _fixed_to_arrow(FixedVector(vector.codes, vector.valid), pa.int32())
    values = bytes_to_arrow(vector.dictionary, arrow_type)
    return pa.DictionaryArray.from_arrays(codes, values, safe=False)


def _fits(arrow_type: pa.DataType, physical: PhysicalType) -> bool:
    if pa.types.is_decimal128(arrow_type):  # an integer wider than the precision needs is fine
        return physical.is_integer and physical.width >= physical_of(arrow_type).width
    return physical_of(arrow_type) is physical


def _from_decimals(array: pa.Array, valid: np.ndarray | None, physical: PhysicalType) -> FixedVector:
    wide = fixed(cells_of(array, INT128_DTYPE), valid)
    if physical is PhysicalType.INT128:
        return wide
    low = wide.values["lo"].view(np.int64)
    narrow = low.astype(physical.dtype)
    if (narrow != low).any() or (wide.values["hi"] != low >> 63).any():
        raise OverflowError(f"a value does not fit in {array.type}")
    return FixedVector(narrow, valid)


def _from_dictionary(array: pa.DictionaryArray, physical: PhysicalType) -> Vector:
    if physical is not PhysicalType.BYTES or array.dictionary.null_count:
        return from_arrow(array.dictionary_decode(), physical)
    values = from_strings(array.dictionary, None)
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
    elif (narrow := NARROWER.get(arrow_type.id)) is not None:
        cells = resized(cells, narrow)
    return array_of(arrow_type, len(vector), vector.valid, [pa.py_buffer(cells)])
