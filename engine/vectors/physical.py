"""The physical types: the layout of a column's cells in memory and on disk.

Many logical types share a physical one: a date is an INT32 of days, a timestamp an INT64 of microseconds, a decimal the
narrowest integer for its precision. All integers are little-endian.
"""

from enum import StrEnum
from functools import lru_cache

import numpy as np
import pyarrow as pa

from .memory.memory import allocate

INT128_DTYPE = np.dtype([("lo", "<u8"), ("hi", "<i8")])
"""A 128-bit two's complement integer: 16 bytes, little-endian, as Arrow's decimal128 lays it out."""


class PhysicalType(StrEnum):
    """How vectors store the cells of one column."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    INT128 = "int128"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BYTES = "bytes"

    @property
    def width(self) -> int:
        """Bytes of one cell; 0 for BYTES, whose cells have their own lengths."""
        return _WIDTHS[self]

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of an array of cells; for BYTES, of the bytes themselves."""
        return _DTYPES[self]

    @property
    def is_integer(self) -> bool:
        """Whether cells are signed integers and so may be part of a primary key."""
        return self in _INTEGERS


_DTYPES = {
    PhysicalType.BOOL: np.dtype("<u1"),
    PhysicalType.INT8: np.dtype("<i1"),
    PhysicalType.INT16: np.dtype("<i2"),
    PhysicalType.INT32: np.dtype("<i4"),
    PhysicalType.INT64: np.dtype("<i8"),
    PhysicalType.INT128: INT128_DTYPE,
    PhysicalType.FLOAT32: np.dtype("<f4"),
    PhysicalType.FLOAT64: np.dtype("<f8"),
    PhysicalType.BYTES: np.dtype("<u1"),
}
_WIDTHS = {physical: dtype.itemsize for physical, dtype in _DTYPES.items()} | {PhysicalType.BYTES: 0}
_INTEGERS = frozenset(physical for physical in PhysicalType if physical.startswith("int"))


@lru_cache(maxsize=256)
def physical_of(arrow_type: pa.DataType) -> PhysicalType:
    """Return the physical type that stores ``arrow_type``.

    A dictionary type is stored as its value type. Raises TypeError for an unsupported type; timestamps must be in
    microseconds (callers cast before).
    """
    if pa.types.is_dictionary(arrow_type):
        return physical_of(arrow_type.value_type)
    if pa.types.is_decimal128(arrow_type):
        return decimal_physical(arrow_type.precision)
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us":
        return PhysicalType.INT64
    for matches, physical in _ARROW_TYPES:
        if matches(arrow_type):
            return physical
    raise TypeError(f"no physical type for {arrow_type}")


def decimal_physical(precision: int) -> PhysicalType:
    """Return the narrowest integer that holds ``precision`` decimal digits (at most 38)."""
    if precision <= 9:
        return PhysicalType.INT32
    return PhysicalType.INT64 if precision <= 18 else PhysicalType.INT128


_ARROW_TYPES = (
    (pa.types.is_boolean, PhysicalType.BOOL),
    (pa.types.is_int8, PhysicalType.INT8),
    (pa.types.is_int16, PhysicalType.INT16),
    (pa.types.is_int32, PhysicalType.INT32),
    (pa.types.is_int64, PhysicalType.INT64),
    (pa.types.is_date32, PhysicalType.INT32),
    (pa.types.is_float32, PhysicalType.FLOAT32),
    (pa.types.is_float64, PhysicalType.FLOAT64),
    (pa.types.is_string, PhysicalType.BYTES),
    (pa.types.is_large_string, PhysicalType.BYTES),
    (pa.types.is_binary, PhysicalType.BYTES),
    (pa.types.is_large_binary, PhysicalType.BYTES),
)


def resized(cells: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the numbers of a vector as integers or floats of another width; unchanged if the width is the same."""
    if cells.dtype == dtype:
        return cells
    if dtype == INT128_DTYPE:
        wide = allocate(len(cells), INT128_DTYPE)
        wide["lo"] = cells.astype(np.int64).view(np.uint64)
        wide["hi"] = cells >> (cells.dtype.itemsize * 8 - 1)
        return wide
    if cells.dtype == INT128_DTYPE:
        return cells["lo"].view(np.int64).astype(dtype)
    result = allocate(len(cells), dtype)
    result[:] = cells
    return result
