"""Vectors of every shape from plain Python lists, and back."""

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.keys.keys import BytesKeys
from nyala.engine.vectors.physical import INT128_DTYPE, PhysicalType
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector

compiled = settings(deadline=None)
"""The first example compiles kernels, which takes as long as it takes."""

ARROW_TYPES = {
    PhysicalType.BOOL: pa.bool_(),
    PhysicalType.INT8: pa.int8(),
    PhysicalType.INT16: pa.int16(),
    PhysicalType.INT32: pa.int32(),
    PhysicalType.INT64: pa.int64(),
    PhysicalType.FLOAT32: pa.float32(),
    PhysicalType.FLOAT64: pa.float64(),
    PhysicalType.BYTES: pa.binary(),
}
INTEGERS = [physical for physical in PhysicalType if physical.is_integer]

# Zero bytes, bytes at the ends of the range, and long shared prefixes: what breaks an order.
byte_strings = st.one_of(
    st.binary(max_size=4),
    st.lists(st.sampled_from([0, 1, 97, 255]), max_size=40).map(bytes),
    st.binary(max_size=12).map(lambda tail: b"shared/prefix/" + tail),
)


def bounds(physical: PhysicalType) -> tuple[int, int]:
    """Return the smallest and largest integer of a type."""
    half = 1 << (physical.width * 8 - 1)
    return -half, half - 1


def integers(physical: PhysicalType) -> st.SearchStrategy[int]:
    """Return integers of a type, often at its ends."""
    smallest, largest = bounds(physical)
    return st.one_of(st.integers(smallest, largest), st.sampled_from([smallest, -1, 0, largest]))


def integer_vector(physical: PhysicalType, values: list[int]) -> FixedVector:
    """Return a vector of integers, of 128 bits too."""
    if physical is not PhysicalType.INT128:
        return FixedVector(np.array(values, physical.dtype))
    cells = np.empty(len(values), INT128_DTYPE)
    cells["lo"] = [value & (2**64 - 1) for value in values]
    cells["hi"] = [value >> 64 for value in values]
    return FixedVector(cells)


def bytes_vector(values: list[bytes | None]) -> BytesVector:
    """Return a vector of byte strings, its own memory beginning at 0."""
    vector = from_arrow(pa.array(values, pa.binary()), PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    return vector


def bytes_keys(values: list[bytes]) -> BytesKeys:
    """Return keys that are the given strings."""
    vector = bytes_vector(list(values))
    return BytesKeys(vector.offsets, vector.data)


def dictionary_vector(values: list[bytes | None]) -> DictionaryVector:
    """Return the strings as codes into a dictionary."""
    array = pa.array(values, pa.binary()).dictionary_encode()
    vector = from_arrow(array, PhysicalType.BYTES)
    assert isinstance(vector, DictionaryVector)
    return vector


def cells_of(vector: Vector, arrow_type: pa.DataType | None = None) -> list:
    """Return the cells as Python values, None for NULL."""
    if arrow_type is None:
        assert not isinstance(vector, FixedVector), "a fixed vector needs its type"
        arrow_type = pa.binary()
    array = to_arrow(vector, arrow_type)
    array.validate(full=True)
    return array.to_pylist()
