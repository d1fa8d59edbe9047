"""Converts a value to the cells of a column, by SQL's rules for CAST, or the stricter ones for an assignment."""

from __future__ import annotations

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.types import LogicalType
from .numbers import Value, as_kind, is_number, rounded, word


def convert(value: Value, target: LogicalType, is_cast: bool) -> Value:
    """Return a value as a column's type.

    An assignment rounds to the digits of a decimal, and parses text as a date or a timestamp; it does not truncate a
    fraction to an integer, nor convert numbers to text. A cast rounds to integers, and converts between text and
    everything. A cast cuts text to the length of a varchar; what an assignment makes is a row to be written, whose
    check does that.

    Raises:
        InvalidArgumentError: the types do not match.
        pa.ArrowInvalid: a value does not fit.
    """
    kind, given = target.arrow, value.type
    if pa.types.is_null(given) or given == kind:
        value = value.cast(kind)
    elif is_number(given) and is_number(kind):
        value = _number(value, kind, is_cast)
    elif not _goes(given, kind, is_cast):
        raise InvalidArgumentError(
            f"{word(given)} cannot be stored as {target}; use CAST(... AS ...) if that makes sense"
        )
    else:
        value = value.cast(kind, safe=not pa.types.is_date(kind))
    if target.name == "varchar" and is_cast:
        return pc.utf8_slice_codeunits(value, 0, target.length)
    return value


def _number(value: Value, kind: pa.DataType, is_cast: bool) -> Value:
    if pa.types.is_decimal(kind):
        if pa.types.is_integer(value.type):
            value = value.cast(pa.int64()).cast(pa.decimal256(19, 0))
        elif pa.types.is_decimal(value.type):
            value = rounded(value, kind.scale)
        return value.cast(kind)
    if pa.types.is_integer(kind):
        return (rounded(value, 0) if is_cast else value).cast(kind)
    if pa.types.is_decimal(value.type):
        value = as_kind(value, pa.float64())
    if pa.types.is_floating(value.type) and pa.types.is_float32(kind):
        single = value.cast(kind)
        if pc.any(pc.and_(pc.is_finite(value), pc.is_inf(single))).as_py() if isinstance(value, pa.Array) else False:
            raise pa.ArrowInvalid("a number is beyond the range of float")
        return single
    return value.cast(kind)


def _goes(given: pa.DataType, kind: pa.DataType, is_cast: bool) -> bool:
    is_ = pa.types
    if is_.is_temporal(kind) and not is_.is_duration(given):
        return is_.is_temporal(given) or is_.is_string(given)
    if is_cast and (is_.is_string(kind) or is_.is_string(given)):
        return not is_.is_duration(given)
    if is_cast and is_.is_boolean(given):
        return is_.is_integer(kind)
    return is_.is_binary(kind) and is_.is_string(given)
