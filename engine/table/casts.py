"""Casts: cells as sent become cells of a column's type where nothing is lost; reports which do not fit.

An Arrow type that never fits is an error of the whole batch. Where the type fits and single values do not (300 for an
int8, 1.234 for a decimal of two digits), the cast leaves them out and reports them. Misfits are computed with arrays,
and only after Arrow has rejected a cast.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import is_castable, nested_misfit
from ...schemas.cells.exact import exact_decimal, power_of_ten
from ...schemas.cells.types import LogicalType
from ...schemas.cells.wrapped import unwrapped
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnSchema
from .nested_casts import Misfits, cast_nested

FIRST_DATE, LAST_DATE = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MILLISECONDS_A_DAY = 86_400_000
_SAFE_DIGITS = 38
"""So many digits a decimal has in 16 bytes; of more, Arrow loses the first ones without a word."""
_LARGEST_DAY = (2**63 - 1) // (86_400 * 1_000_000)
"""The last day, counted from 1970, that has microseconds in 64 bits."""


def cast(array: pa.Array, column: ColumnSchema) -> tuple[pa.Array, np.ndarray | None]:
    """Return the cells of a received batch in the type of a column which is not nested, NULL where a value does not
    fit, and a bool mask of misfits; None for none.

    Dictionaries are decoded: the caller has checked that they are not too large.

    Raises:
        InvalidArgumentError: the Arrow type never fits.
    """
    array = unwrapped(array)
    target = column.logical.arrow
    if array.type != target:
        if not is_castable(array.type, target):
            raise InvalidArgumentError(f"column {column.name!r} is {column.type}; the data has {array.type}")
        if pa.types.is_dictionary(array.type):
            array = array.dictionary.take(array.indices)
    return _cast(array, target, column)


def cast_to_nested(array: pa.Array, column: ColumnSchema) -> tuple[pa.Array, Misfits | None]:
    """Return the cells of a received batch in the type of a nested column, and what in them does not fit; None for
    nothing.

    Raises:
        InvalidArgumentError: the Arrow type never fits.
    """
    target = column.logical.arrow
    if array.type == target and not _has_dates(column.logical):
        return array, None
    if misfit := nested_misfit(array.type, target, is_castable):
        path, given, there = misfit
        here = f"the column takes {there}" if there else "the column has no such field"
        where = f" at {path}, where {here}" if path else ""
        raise InvalidArgumentError(f"column {column.name!r} is {column.type}; the data has {given}{where}")

    def leaf(values: pa.Array, kind: LogicalType) -> tuple[pa.Array, np.ndarray | None]:
        cells, misfits = _cast(values, kind.arrow, column)
        if kind.name == "date" and (outside := beyond_calendar(cells)) is not None:
            misfits = outside if misfits is None else misfits | outside
        return cells, misfits

    return cast_nested(array, column.logical, leaf)


def _has_dates(kind: LogicalType) -> bool:
    return kind.name == "date" or any(_has_dates(inner) for _, inner in kind.fields)


def beyond_calendar(dates: pa.Array) -> np.ndarray | None:
    """Return where the cells of a batch are dates outside the years 1 to 9999; None for nowhere."""
    days = dates.view(pa.int32())
    outside = bools(pc.or_(pc.less(days, FIRST_DATE), pc.greater(days, LAST_DATE)))
    return outside if outside.any() else None


def _cast(array: pa.Array, target: pa.DataType, column: ColumnSchema) -> tuple[pa.Array, np.ndarray | None]:
    if array.type == target:
        return array, None
    try:
        misfits = _altered(array, target)
        return (_by_way_of(array, target), None) if misfits is None else _without(array, target, misfits)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        try:
            return _without(array, target, _misfits(array, target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InvalidArgumentError(
                f"column {column.name!r} is {column.type}; the data has {array.type} and does not fit: {error}"
            ) from None


def range_of(target: pa.DataType) -> str:
    """Describe in words which values a column takes of a batch, by its type."""
    is_ = pa.types
    if is_.is_integer(target):
        least, end = _bounds(target)
        return f"whole numbers from {least:,} to {end - 1:,}"
    if is_.is_floating(target):
        digits = np.finfo(target.to_pandas_dtype()).nmant + 1
        return f"numbers within its range, whole ones up to 2**{digits} exactly"
    if is_.is_decimal(target):
        return f"{target.precision - target.scale} digits before the point and {target.scale} after it"
    if is_.is_time(target):
        return f"times of one day in whole {_UNITS[target.unit]}"
    if is_.is_duration(target):
        return f"whole {_UNITS[target.unit]} in 64 bits"
    return "whole days" if is_.is_date(target) else "whole microseconds in 64 bits"


def _bounds(target: pa.DataType) -> tuple[int, int]:
    """Return the least integer of a type, and the first one past the greatest."""
    bits = target.bit_width
    return (0, 2**bits) if pa.types.is_unsigned_integer(target) else (-(2 ** (bits - 1)), 2 ** (bits - 1))


def _without(array: pa.Array, target: pa.DataType, misfits: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    return _by_way_of(pc.if_else(pa.array(misfits), pa.scalar(None, array.type), array), target), misfits


def _by_way_of(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast; an integer fails only if its own value does not fit in the decimal, not if its type could exceed it. Short
    decimals fail as integers of 64 bits, unless they are made longer."""
    is_ = pa.types
    if is_.is_decimal(target) and is_.is_integer(array.type):
        return _as_decimal(array, target.scale).cast(target)
    if is_.is_integer(target) and is_.is_decimal(array.type) and array.type.byte_width < 16:
        array = array.cast(pa.decimal128(38, array.type.scale))
    return array.cast(target)


def _as_decimal(array: pa.Array, scale: int) -> pa.Array:
    """Return integers as decimals wide enough for any of them."""
    return array.cast(pa.decimal128(38, scale) if scale <= 18 else pa.decimal256(58, scale))


def _altered(array: pa.Array, target: pa.DataType) -> np.ndarray | None:
    """Return where Arrow makes something else of values that do not fit: infinities of doubles, whatever is left of
    decimals that get more digits after the point, days of dates with a time; None for none."""
    is_ = pa.types
    if is_.is_floating(target) and is_.is_floating(array.type) and target.bit_width < array.type.bit_width:
        beyond = bools(pc.and_(pc.is_finite(array), pc.is_inf(array.cast(target))))
    elif is_.is_float16(target) and is_.is_integer(array.type):  # which Arrow rounds
        beyond = _misfits(array, target)
    elif is_.is_decimal(target) and is_.is_decimal(array.type) and _digits_as(array.type, target) > _SAFE_DIGITS:
        beyond = _beyond_decimal(array, target)
    elif is_.is_date64(array.type) and is_.is_date32(target):
        beyond = _numbers(array) % _MILLISECONDS_A_DAY != 0
    else:
        return None
    return beyond if beyond.any() else None


def _digits_as(source: pa.DataType, target: pa.DataType) -> int:
    """Return the digits that decimals of one type may have at the scale of another."""
    return source.precision + target.scale - source.scale


def _misfits(array: pa.Array, target: pa.DataType) -> np.ndarray:
    """Return where values do not fit in ``target``, to which their type is castable."""
    is_ = pa.types
    if is_.is_decimal(target):
        return _beyond_decimal(array, target)
    if is_.is_decimal(array.type):
        return _beyond_integer(array, target)
    values = _numbers(array)
    if is_.is_integer(target):
        outside = _outside(values, *_bounds(target))
        return outside | (values != np.trunc(values)) if values.dtype.kind == "f" else outside
    if is_.is_floating(target):
        largest = 2 ** (np.finfo(target.to_pandas_dtype()).nmant + 1)
        return _outside(values, -largest, largest + 1)
    if is_.is_date(array.type) and not is_.is_date(target):
        day = _MILLISECONDS_A_DAY if is_.is_date64(array.type) else 1
        return _outside(values, -_LARGEST_DAY * day, _LARGEST_DAY * day + 1)
    if is_.is_timestamp(array.type) or is_.is_duration(array.type) or is_.is_time(array.type):
        finer = _PER_SECOND[array.type.unit] // _PER_SECOND[target.unit]
        if finer:
            return values % finer != 0
        coarser = _PER_SECOND[target.unit] // _PER_SECOND[array.type.unit]
        if is_.is_time(array.type):
            return np.zeros(len(array), np.bool_)
        return _outside(values, -(2**63) // coarser + 1, (2**63 - 1) // coarser + 1)
    return np.zeros(len(array), np.bool_)


def _outside(values: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return where values are outside [first, end). NaN is outside."""
    if values.dtype.kind == "f":
        return ~((values >= float(first)) & (values < float(end)))
    known = np.iinfo(values.dtype)
    below = values < first if first > known.min else np.zeros(len(values), np.bool_)
    return below | (values >= end) if end <= known.max else below


def _numbers(array: pa.Array) -> np.ndarray:
    """Return cells as numbers, 0 for NULL."""
    is_ = pa.types
    if is_.is_float16(array.type):
        array = array.cast(pa.float32())
    elif is_.is_date32(array.type) or is_.is_time32(array.type):
        array = array.view(pa.int32())
    elif is_.is_temporal(array.type):
        array = array.view(pa.int64())
    return pc.fill_null(array, pa.scalar(0, array.type)).to_numpy(zero_copy_only=False)


def _beyond_decimal(array: pa.Array, target: pa.DataType) -> np.ndarray:
    """Return where numbers have more digits than a decimal, before or after the point."""
    if pa.types.is_integer(array.type):
        array = _as_decimal(array, 0)
    scale = array.type.scale
    wide = array.cast(pa.decimal256(76, scale))
    misfits = pa.repeat(False, len(wide))
    if scale > target.scale:
        cut = wide.cast(pa.decimal256(76, target.scale), safe=False).cast(wide.type, safe=False)
        misfits = pc.not_equal(cut, wide)
    before_point = target.precision - target.scale
    if before_point + scale < 76:
        misfits = pc.or_(misfits, pc.greater_equal(pc.abs(wide), pa.scalar(power_of_ten(before_point), wide.type)))
    return bools(misfits)


def _beyond_integer(array: pa.Array, target: pa.DataType) -> np.ndarray:
    """Return where decimals are no whole numbers, or outside the integers of a type."""
    least, end = _bounds(target)
    wide = array.cast(pa.decimal256(76, max(array.type.scale, 0)))
    whole = wide.cast(pa.decimal256(76, 0), safe=False)
    first, last = (pa.scalar(exact_decimal(bound), whole.type) for bound in (least, end - 1))
    outside = pc.or_(pc.less(whole, first), pc.greater(whole, last))
    return bools(pc.or_(outside, pc.not_equal(whole.cast(wide.type, safe=False), wide)))


def bools(mask: pa.Array) -> np.ndarray:
    """Return an Arrow bool array, such as the misfits in a batch, as a numpy array, NULL as false."""
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), np.bool_)
