"""The physical types: the layout of a column's cells in memory and on disk.

Many logical types share a physical one: a date is an INT32 of days, a timestamp an INT64 of microseconds, a decimal the
narrowest integer for its precision, an unsigned integer the next wider one that has a sign, a list BYTES. All integers
are little-endian.
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
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit != "us":
        raise TypeError(f"no physical type for {arrow_type}")
    if pa.types.is_nested(arrow_type):
        return PhysicalType.BYTES
    if arrow_type.id in _BY_ARROW:
        return _BY_ARROW[arrow_type.id]
    raise TypeError(f"no physical type for {arrow_type}")


def decimal_physical(precision: int) -> PhysicalType:
    """Return the narrowest integer that holds ``precision`` decimal digits (at most 38)."""
    if precision <= 9:
        return PhysicalType.INT32
    return PhysicalType.INT64 if precision <= 18 else PhysicalType.INT128


_ARROW_TYPES: dict[PhysicalType, tuple[pa.DataType, ...]] = {
    PhysicalType.BOOL: (pa.bool_(),),
    PhysicalType.INT8: (pa.int8(),),
    PhysicalType.INT16: (pa.int16(), pa.uint8()),
    PhysicalType.INT32: (pa.int32(), pa.uint16(), pa.date32(), pa.time32("s")),
    PhysicalType.INT64: (pa.int64(), pa.uint32(), pa.timestamp("us"), pa.time64("us"), pa.duration("us")),
    PhysicalType.INT128: (pa.uint64(), pa.month_day_nano_interval()),
    PhysicalType.FLOAT32: (pa.float32(), pa.float16()),
    PhysicalType.FLOAT64: (pa.float64(),),
    PhysicalType.BYTES: (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}
"""Each stands for all units of its kind."""
_BY_ARROW = {kind.id: physical for physical, kinds in _ARROW_TYPES.items() for kind in kinds}

NARROWER: dict[int, np.dtype] = {
    pa.uint8().id: np.dtype("<u1"),
    pa.uint16().id: np.dtype("<u2"),
    pa.uint32().id: np.dtype("<u4"),
    pa.uint64().id: np.dtype("<u8"),
    pa.float16().id: np.dtype("<f2"),
}
"""Arrow's cells, by the number of its type, of types that are stored as a wider one."""


def resized(cells: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the numbers of a vector as integers or floats of another width; unchanged if the width is the same."""
    if cells.dtype == dtype:
        return cells
    if dtype == INT128_DTYPE:
        wide = allocate(len(cells), INT128_DTYPE)
        if cells.dtype.kind == "u":
            wide["lo"], wide["hi"] = cells, 0
        else:
            wide["lo"] = cells.astype(np.int64).view(np.uint64)
            wide["hi"] = cells >> (cells.dtype.itemsize * 8 - 1)
        return wide
    if cells.dtype == INT128_DTYPE:
        return cells["lo"].view(np.int64).astype(dtype)
    result = allocate(len(cells), dtype)
    result[:] = cells
    return result
