"""Converts a value to the cells of a column, by SQL's rules for CAST, or the stricter ones for an assignment."""

from __future__ import annotations

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import times_of_text
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from . import moments
from .comparing import compared
from .numbers import Value, as_decimal, as_kind, holds_somewhere, is_number, rounded, spread, word

_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")
_WIDEST = pa.decimal256(76, 38)
"""Every decimal of a column fits, with digits to round."""
_ZONE = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"
_INFINITE = r"^[+-]?inf(inity)?$"


def convert(value: Value, target: LogicalType, is_cast: bool) -> Value:
    """Return the value of an expression as a column's type.

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
    elif pa.types.is_string(given) and not pa.types.is_binary(kind):
        value = _parsed(value, kind)
    elif pa.types.is_string(kind) and (pa.types.is_date(given) or pa.types.is_timestamp(given)):
        value = moments.text(value)
    elif pa.types.is_boolean(kind):
        value = compared("<>", value, pa.scalar(0, pa.int64()))
    else:
        value = value.cast(kind, safe=not pa.types.is_date(kind))
    if target.name == "varchar" and is_cast:
        return pc.utf8_slice_codeunits(value, 0, target.length)
    return value


def _number(value: Value, kind: pa.DataType, is_cast: bool) -> Value:
    if pa.types.is_decimal(kind):
        if pa.types.is_integer(value.type):
            value = as_decimal(value)
        elif pa.types.is_floating(value.type):
            value = rounded(as_kind(value, pa.float64()), kind.scale)
        else:
            value = rounded(value, kind.scale)
        return value.cast(kind)
    if pa.types.is_integer(kind):
        if is_cast and pa.types.is_floating(value.type):
            value = pc.round(value, round_mode="half_to_even")  # as in PostgreSQL and DuckDB
        return (rounded(value, 0) if is_cast else value).cast(kind)
    return _single(as_kind(value, pa.float64()), kind)


def _single(value: Value, kind: pa.DataType) -> Value:
    """Return doubles as doubles or floats, to which they are rounded.

    Raises:
        pa.ArrowInvalid: one is beyond the range of float.
    """
    rounded_value = value.cast(kind)
    beyond = pc.and_(pc.is_finite(value), pc.is_inf(rounded_value))
    if holds_somewhere(beyond):
        raise pa.ArrowInvalid("a number is beyond the range of float")
    return rounded_value


def _parsed(value: Value, kind: pa.DataType) -> Value:
    """Return what text says, without the blanks around it.

    Raises:
        pa.ArrowInvalid: it says nothing of the kind.
    """
    text = pc.utf8_trim_whitespace(value)
    if pa.types.is_boolean(kind):
        return _truth(text)
    if pa.types.is_decimal(kind):
        return rounded(text.cast(_WIDEST), kind.scale).cast(kind)
    if pa.types.is_timestamp(kind):
        return _moment(text, kind)
    if pa.types.is_time(kind):
        times = times_of_text(spread(text, 1)).cast(kind)
        return times[0] if isinstance(text, pa.Scalar) else times
    if not pa.types.is_floating(kind):
        return text.cast(kind)
    numbers = text.cast(pa.float64())
    beyond = pc.and_not(pc.is_inf(numbers), pc.match_substring_regex(text, pattern=_INFINITE, ignore_case=True))
    if holds_somewhere(beyond):
        raise pa.ArrowInvalid("a number is beyond the range of double")
    return _single(numbers, kind)


def _moment(text: Value, kind: pa.DataType) -> Value:
    """Return ISO text as timestamps, converted to UTC where it has a zone."""
    has_zone = pc.match_substring_regex(text, pattern=_ZONE)
    if not holds_somewhere(has_zone):
        return text.cast(kind)
    none = pa.scalar(None, pa.string())
    zoned = pc.if_else(has_zone, text, none).cast(pa.timestamp("us", "UTC")).cast(kind)
    return pc.coalesce(zoned, pc.if_else(has_zone, none, text).cast(kind))


def _truth(text: Value) -> Value:
    lower = pc.utf8_lower(text)
    is_true, is_false = (pc.is_in(lower, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
    valid = pc.is_valid(text)
    unclear = pc.and_not(valid, pc.or_(is_true, is_false))
    if holds_somewhere(unclear):
        raise pa.ArrowInvalid("text is neither true nor false")
    return pc.if_else(valid, is_true, pa.scalar(None, pa.bool_()))


def _goes(given: pa.DataType, kind: pa.DataType, is_cast: bool) -> bool:
    is_ = pa.types
    if is_.is_nested(kind) or is_.is_nested(given) or is_.is_interval(kind) or is_.is_interval(given):
        return False
    if is_.is_duration(kind) or is_.is_duration(given):
        return is_.is_duration(kind) and is_.is_duration(given)
    if is_.is_time(kind):
        return is_.is_time(given) or is_.is_string(given)
    if is_.is_time(given):
        return is_cast and is_.is_string(kind)
    if is_.is_temporal(kind):
        return is_.is_date(given) or is_.is_timestamp(given) or is_.is_string(given)
    if is_cast and (is_.is_string(kind) or is_.is_string(given)):
        return True
    if is_cast and is_.is_boolean(given):
        return is_.is_integer(kind)
    if is_cast and is_.is_boolean(kind):
        return is_number(given)
    return is_.is_binary(kind) and is_.is_string(given)
