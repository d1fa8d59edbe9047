"""SQL arithmetic over Arrow values: exact if both sides are exact, an error if the result does not fit.

Integers are computed in 64 bits, decimals in up to 76 digits; a float on either side makes both doubles. A NULL on
either side gives NULL. Integer division truncates towards zero. Overflow and division by zero are errors.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from .sizes import bytes_of, check_size

Value: TypeAlias = pa.Array | pa.Scalar
"""One value per row, or one for all rows."""

_SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}
_DIGITS_MAX = 76
_DAY_SECONDS = 86_400


def arithmetic(op: str, left: Value, right: Value) -> Value:
    """Return ``left op right`` for one of add, subtract, multiply, divide and modulo.

    Raises:
        InvalidArgumentError: the types do not match.
        pa.ArrowInvalid: overflow, or a division by zero.
    """
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, left.type if pa.types.is_null(right.type) else right.type)
    if any(pa.types.is_temporal(value.type) for value in (left, right)):
        return _of_moments(op, left, right)
    for value in (left, right):
        if not is_number(value.type):
            raise InvalidArgumentError(
                f"{_SYMBOLS[op]} takes numbers, not {word(value.type)}; CAST(... AS ...) converts"
            )
    left, right = alike(left, right)
    if op == "modulo":
        return _modulo(left, right)
    if pa.types.is_decimal(left.type):
        return getattr(pc, op)(_narrowed(left), _narrowed(right))
    return getattr(pc, f"{op}_checked")(left, right)


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Return two numbers as the same kind: int64, decimal or double."""
    kind = number_kind([left.type, right.type])
    if kind is not None:
        return as_kind(left, kind), as_kind(right, kind)
    return as_decimal(left), as_decimal(right)


def number_kind(kinds: list[pa.DataType]) -> pa.DataType | None:
    """Return the type in which numbers of several types are computed; None for decimals, which keep their digits."""
    if any(pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    return None if any(pa.types.is_decimal(kind) for kind in kinds) else pa.int64()


def as_kind(value: Value, kind: pa.DataType) -> Value:
    """Return a number as another type: a decimal as the nearest double, where Arrow's own cast may return the one
    beside it."""
    if pa.types.is_floating(kind) and pa.types.is_decimal(value.type):
        value = value.cast(pa.string())
    return value.cast(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is numeric; bools are not."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def as_decimal(value: Value) -> Value:
    """Return a whole or decimal number with room for the digits of a result."""
    if pa.types.is_decimal(value.type):
        return value.cast(pa.decimal256(value.type.precision, value.type.scale))
    return value.cast(pa.decimal256(19, 0))


def _narrowed(value: Value) -> Value:
    """Return a decimal whose type has only the digits that its values need, so that the result's type has room."""
    precision, scale = value.type.precision, value.type.scale
    if precision <= _DIGITS_MAX // 4:
        return value
    largest = value if isinstance(value, pa.Scalar) else pc.max(pc.abs(value))
    if not largest.is_valid:
        return value.cast(pa.decimal256(max(scale, 1), scale))
    digits = len(str(int(abs(largest.as_py()).scaleb(scale))))
    return value.cast(pa.decimal256(max(digits, scale, 1), scale))


def _modulo(left: Value, right: Value) -> Value:
    """The remainder of a truncating division, with the sign of the dividend."""
    if pa.types.is_floating(left.type):
        quotient = pc.trunc(pc.divide_checked(left, right))
        return pc.subtract(left, pc.multiply(quotient, right))
    if pa.types.is_decimal(left.type):
        raise InvalidArgumentError("% takes integers and floats, not decimals; CAST(... AS BIGINT) converts")
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _of_moments(op: str, left: Value, right: Value) -> Value:
    """Dates take whole days, timestamps intervals; the difference of two dates is in days."""
    is_ = pa.types
    if op == "add" and not is_.is_date(left.type) and not is_.is_timestamp(left.type):
        left, right = right, left
    if is_.is_date(left.type) and is_.is_date(right.type) and op == "subtract":
        return pc.subtract_checked(days(left), days(right))
    if op in ("add", "subtract") and is_.is_date(left.type) and is_.is_integer(right.type):
        return _as_date(getattr(pc, f"{op}_checked")(days(left), right.cast(pa.int64())))
    if op in ("add", "subtract") and is_.is_duration(right.type) and not is_.is_duration(left.type):
        seconds = right.as_py().total_seconds()
        if is_.is_date(left.type) and seconds % _DAY_SECONDS == 0:
            return _of_moments(op, left, pa.scalar(int(seconds // _DAY_SECONDS)))
        return getattr(pc, f"{op}_checked")(left.cast(pa.timestamp("us")), right)
    raise InvalidArgumentError(
        f"{_SYMBOLS[op]} cannot combine {word(left.type)} and {word(right.type)}; possible are DATE + days, "
        "DATE - DATE and TIMESTAMP + INTERVAL '...' DAY"
    )


def days(value: Value) -> Value:
    """Return dates as days since 1970."""
    return value.cast(pa.int32()).cast(pa.int64())


def _as_date(value: Value) -> Value:
    return value.cast(pa.int32()).cast(pa.date32())


def rounded(value: Value, digits: int) -> Value:
    """Round half away from zero to digits after the point; integers are unchanged."""
    if pa.types.is_integer(value.type):
        return value if digits >= 0 else pc.round(value, ndigits=digits, round_mode="half_towards_infinity")
    if pa.types.is_decimal(value.type) and digits >= value.type.scale:
        return value
    return pc.round(value, ndigits=digits, round_mode="half_towards_infinity")


def word(kind: pa.DataType) -> str:
    """Return a type's name as in SQL and the documentation."""
    is_ = pa.types
    names = {"text": is_.is_string(kind), "a decimal": is_.is_decimal(kind), "a bool": is_.is_boolean(kind)}
    names |= {"an integer": is_.is_integer(kind), "a float": is_.is_floating(kind), "a date": is_.is_date(kind)}
    names |= {"a timestamp": is_.is_timestamp(kind), "an interval": is_.is_duration(kind), "NULL": is_.is_null(kind)}
    return next((name for name, holds in names.items() if holds), str(kind))


def spread(value: Value, count: int) -> pa.Array:
    """Return one value for each of ``count`` rows. Raises InvalidArgumentError: these are too large."""
    if not isinstance(value, pa.Scalar):
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    check_size(bytes_of(value, count))
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)


def mask(value: Value, count: int) -> np.ndarray:
    """Return where a condition is true; NULL is not."""
    if not (pa.types.is_boolean(value.type) or pa.types.is_null(value.type)):
        raise InvalidArgumentError(f"a condition must be true or false, not {word(value.type)}")
    known = pc.fill_null(spread(value.cast(pa.bool_()), count), False)
    return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)
