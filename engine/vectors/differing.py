"""Which cells of two vectors differ, of every type: also of those that Arrow does not compare."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from .arrow import from_arrow, to_arrow
from .physical import PhysicalType
from .vector import BytesVector, FixedVector, Vector, as_bytes


def differing(one: Vector, other: Vector) -> np.ndarray:
    """Return in which rows (bool) two vectors of one physical type differ as they are stored: a NULL equals a NULL, and
    floats are compared by their bits, so that a NaN equals itself, and -0.0 is not 0.0."""
    if isinstance(one, FixedVector) or isinstance(other, FixedVector):
        assert isinstance(one, FixedVector) and isinstance(other, FixedVector), "of one type"
        differ = _numbers_differ(one.values, other.values)
    else:
        differ = _bytes_differ(as_bytes(one), as_bytes(other))
    if one.valid is None and other.valid is None:
        return differ
    known, known_other = (np.ones(len(differ), np.bool_) if each.valid is None else each.valid for each in (one, other))
    return np.where(known & known_other, differ, known != known_other)


def _numbers_differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    assert one.dtype == other.dtype, "of one type"
    if one.dtype.kind == "f":
        bits = np.dtype(f"<i{one.dtype.itemsize}")
        one, other = (np.ascontiguousarray(each).view(bits) for each in (one, other))
    return np.not_equal(one, other) if one.dtype.names is None else one != other


def _bytes_differ(one: BytesVector, other: BytesVector) -> np.ndarray:
    cells = [to_arrow(BytesVector(each.offsets, each.data), pa.binary()) for each in (one, other)]
    answers = from_arrow(pc.call_function("not_equal", cells), PhysicalType.BOOL)
    assert isinstance(answers, FixedVector), "bools"
    return answers.values.view(np.bool_)
