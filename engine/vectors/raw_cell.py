"""Single cells: as they are stored, and as the Python values that users give and get.

A *raw* cell is what the physical type stores: an int (0 or 1 for BOOL, of days for a date), a float, bytes, or None for
NULL. The Python value is what Arrow's ``as_py`` returns for it; a date or timestamp outside the years 1 to 9999, which
Python lacks, is its days or microseconds.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.cells.exact import DIGITS_MAX, EXACT
from ...schemas.cells.json_text import is_json
from ...schemas.cells.moment import date_of, is_beyond, moment_of, python_cell
from ...schemas.cells.types import LogicalType
from .arrow import to_arrow
from .physical import PhysicalType, physical_of
from .vector import BytesVector, DictionaryVector, FixedVector, Vector, nulls

RawCell = int | float | bytes | None

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal()
_SINGLE = Struct("<f")


def raw_number(item: Any) -> Any:
    """Return a number of a vector that numpy's ``item`` returned; one of 128 bits comes in halves."""
    return item[0] | item[1] << 64 if type(item) is tuple else item


def raw_cell(vector: Vector, row: int) -> RawCell:
    """Return one cell of a vector."""
    if vector.valid is not None and not vector.valid.item(row):
        return None
    if isinstance(vector, DictionaryVector):
        vector, row = vector.dictionary, vector.codes.item(row)
    if isinstance(vector, BytesVector):
        return vector.data[vector.offsets.item(row) : vector.offsets.item(row + 1)].tobytes()
    return raw_number(vector.values.item(row))


def vector_of(cell: RawCell, physical: PhysicalType) -> Vector:
    """Return one raw cell, not NULL, as a vector."""
    if isinstance(cell, bytes):
        return BytesVector(np.array([0, len(cell)], np.int32), np.frombuffer(cell or b"\0", np.uint8))
    if physical is PhysicalType.INT128:
        assert isinstance(cell, int), "an integer column"
        return FixedVector(np.array([(cell & (1 << 64) - 1, cell >> 64)], physical.dtype))
    return FixedVector(np.array([cell], physical.dtype))


def vector_of_cells(cells: Sequence[Any], physical: PhysicalType, valid: np.ndarray | None = None) -> Vector:
    """Return raw cells as a vector; those that are not ``valid`` are 0 or empty.

    Raises OverflowError for an integer that the type does not hold.
    """
    if physical is PhysicalType.BYTES:
        offsets = np.array([0, *accumulate(map(len, cells))], np.int32)
        return BytesVector(offsets, np.frombuffer(b"".join(cells) or b"\0", np.uint8), valid)
    if physical is PhysicalType.INT128:
        cells = [(cell & (1 << 64) - 1, cell >> 64) for cell in cells]
    return FixedVector(np.array(cells, physical.dtype), valid)


def one_cell(cell: RawCell, physical: PhysicalType) -> Vector:
    """Return one raw cell, perhaps NULL, as a vector."""
    return nulls(physical, 1) if cell is None else vector_of(cell, physical)


def python_value(kind: LogicalType) -> Callable[[Any], Any] | None:
    """Return a function from the raw cells of a vector, other than NULL, to Python values; None if they are the
    same."""
    if kind.name == "decimal":
        scale = -kind.scale
        return lambda cell: decimal.Decimal(cell).scaleb(scale, EXACT)
    if kind.is_nested or kind.arrow.id in _BY_ARROW:
        return partial(_by_arrow, kind.arrow)
    return _PYTHON_VALUES.get(kind.name)


def raw_key(kind: LogicalType) -> Callable[[Any], Any]:
    """Return a function that stores a key as vectors do: from the value that a user gave for a key column to its raw
    cell.

    It takes a value of the column's own Python type; for any other, or one that does not fit, it returns None.
    """
    if kind.name == "decimal":
        return lambda value: _raw_decimal(value, kind)
    if kind.is_text:
        return partial(_raw_text, kind.length or (1 << 62))
    if kind.is_integer:
        least, end = kind.bounds
        return lambda value: value if type(value) is int and least <= value < end else None
    return _RAW_KEYS[kind.name]


def plain_type(kind: LogicalType) -> tuple[type | None, int]:
    """Return the Python type whose values are, as they are, raw cells of vectors of a logical type, if there is one;
    integers only in [-bound, bound)."""
    if kind.is_integer and (bounds := kind.bounds)[0]:
        return int, bounds[1]
    return {"double": float, "binary": bytes}.get(kind.name), 0


def raw_value(kind: LogicalType) -> Callable[[Any], Any]:
    """Return a function that stores a value as vectors do, like ``raw_key``, for columns that may have any type."""
    if kind.is_nested or not (kind.name in _RAW_VALUES or kind.is_integer or kind.may_be_key):
        return _undecided
    return _RAW_VALUES.get(kind.name) or raw_key(kind)


_PYTHON_VALUES: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "date": date_of,
    "timestamp[us]": moment_of,
    "string": bytes.decode,
    "varchar": bytes.decode,
    "json": bytes.decode,
}


_BY_ARROW = {kind.id for kind in (pa.time32("s"), pa.time64("us"), pa.duration("us"), pa.month_day_nano_interval())}


def _by_arrow(kind: pa.DataType, cell: Any) -> Any:
    return python_cell(to_arrow(vector_of(cell, physical_of(kind)), kind)[0])


def _undecided(_: Any) -> None:
    """Leave a value to the batch lane."""


def _raw_text(length: int, value: Any) -> bytes | None:
    if type(value) is not str or len(value) > length:
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


def _raw_json(value: Any) -> bytes | None:
    text = _raw_text(1 << 62, value)
    return text if text is not None and is_json(value) else None


def _raw_decimal(value: Any, kind: LogicalType) -> int | None:
    if type(value) is not decimal.Decimal or not value.is_finite():
        return None
    if value.adjusted() > DIGITS_MAX:  # integers of so many digits would take long to make
        return None
    try:
        shifted = value.scaleb(kind.scale, EXACT)
        cell = int(shifted)
    except (ArithmeticError, ValueError):
        return None
    return cell if cell == shifted and abs(cell) < 10**kind.precision else None


def _raw_date(value: Any) -> int | None:
    return value.toordinal() - _EPOCH_DAY if type(value) is dt.date else None


def _raw_timestamp(value: Any) -> int | None:
    if type(value) is not dt.datetime or value.tzinfo is not None:
        return value if is_beyond(value) else None
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _raw_binary(value: Any) -> bytes | None:
    return value if type(value) is bytes else None


def _raw_bool(value: Any) -> int | None:
    return int(value) if type(value) is bool else None


def _raw_double(value: Any) -> float | None:
    return value if type(value) is float else None


def _raw_single(value: Any) -> float | None:
    """Return a float that a single holds exactly: what becomes of others is judged elsewhere."""
    try:
        return value if type(value) is float and _SINGLE.unpack(_SINGLE.pack(value))[0] == value else None
    except OverflowError:
        return None


_RAW_VALUES: dict[str, Callable[[Any], Any]] = {
    "bool": _raw_bool,
    "double": _raw_double,
    "float": _raw_single,
    "json": _raw_json,
}
_RAW_KEYS: dict[str, Callable[[Any], Any]] = {"date": _raw_date, "timestamp[us]": _raw_timestamp, "binary": _raw_binary}
