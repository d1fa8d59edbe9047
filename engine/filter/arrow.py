"""Cells as Arrow arrays, for comparisons that Arrow makes faster than numpy: bytes, and 128-bit integers.

Validity is not passed in or out: the caller masks the NULLs, whose cells are zero or empty, afterwards.
"""

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.protocol.request import check
from ..expression.literal import Cell
from ..expression.narrowing import LITERALS_AT_ONCE
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector

_ARROW_TYPES: dict[PhysicalType, pa.DataType] = {
    PhysicalType.BOOL: pa.uint8(),
    PhysicalType.INT8: pa.int8(),
    PhysicalType.INT16: pa.int16(),
    PhysicalType.INT32: pa.int32(),
    PhysicalType.INT64: pa.int64(),
    PhysicalType.INT128: pa.decimal128(38, 0),  # the one Arrow type with that layout; no precision is checked
    PhysicalType.FLOAT32: pa.float32(),
    PhysicalType.FLOAT64: pa.float64(),
    PhysicalType.BYTES: pa.binary(),  # bytes compare as memcmp does, which is also the order of UTF-8 text
}


def array_of(vector: FixedVector | BytesVector, physical: PhysicalType) -> pa.Array:
    """Return the cells of ``vector`` as an Arrow array for a filter, including those under NULL, without copying
    them."""
    if isinstance(vector, BytesVector):
        return to_arrow(BytesVector(vector.offsets, vector.data), _ARROW_TYPES[physical])
    if physical is PhysicalType.INT128:
        return to_arrow(FixedVector(vector.values), _ARROW_TYPES[physical])
    return pa.Array.from_buffers(_ARROW_TYPES[physical], len(vector), [None, pa.py_buffer(vector.values)], 0)


def text_of(vector: BytesVector) -> pa.Array:
    """Return the cells of ``vector``, which are UTF-8, as Arrow strings for a filter, without copying them."""
    return to_arrow(BytesVector(vector.offsets, vector.data), pa.string())


def scalar_of(cell: Cell, physical: PhysicalType) -> pa.Scalar:
    return pa.scalar(_arrow_value(cell, physical), _ARROW_TYPES[physical])


def constants_of(cells: tuple[Cell, ...], physical: PhysicalType) -> pa.Array:
    """Return the cells of a filter's literals."""
    pieces = []
    for first in range(0, len(cells), LITERALS_AT_ONCE):
        check()
        values: Sequence[Any] = cells[first : first + LITERALS_AT_ONCE]
        if physical is PhysicalType.INT128:
            values = [_arrow_value(cell, physical) for cell in values]
        pieces.append(pa.array(values, _ARROW_TYPES[physical]))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def mask_of(answers: pa.BooleanArray) -> np.ndarray:
    """Return the bits of Arrow's answer to a filter as one bool per row."""
    mask = from_arrow(answers, PhysicalType.BOOL)
    assert isinstance(mask, FixedVector)
    return mask.values.view(np.bool_)


def _arrow_value(cell: Cell, physical: PhysicalType) -> Cell | decimal.Decimal:
    return decimal.Decimal(cell) if physical is PhysicalType.INT128 and not isinstance(cell, bytes) else cell
