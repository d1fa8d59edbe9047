"""SQL arithmetic over Arrow values: exact if both sides are exact, an error if the result does not fit.

Integers are computed in 64 bits, decimals in up to 76 digits; a float on either side makes both doubles. A NULL on
either side gives NULL. Integer division truncates towards zero. Overflow and division by zero are errors.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.exact import DIGITS_MAX, power_of_ten
from ...schemas.errors import InvalidArgumentError
from .sizes import bytes_of, check_size

Value: TypeAlias = pa.Array | pa.Scalar
"""One value per row, or one for all rows."""

_FUNCTIONS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_QUOTIENT_DIGITS = 16
"""After the point of a decimal quotient, at least, if they fit."""
_DAY_SECONDS = 86_400


def arithmetic(op: str, left: Value, right: Value) -> Value:
    """Return ``left op right`` by SQL's arithmetic, for one of + - * / and %.

    Raises:
        InvalidArgumentError: the types do not match.
        pa.ArrowInvalid: overflow, or a division by zero.
    """
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, left.type if pa.types.is_null(right.type) else right.type)
    if any(is_moment(value.type) for value in (left, right)):
        return _of_moments(op, left, right)
    for value in (left, right):
        if not is_number(value.type):
            raise InvalidArgumentError(f"{op} takes numbers, not {word(value.type)}; CAST(... AS ...) converts")
    left, right = alike(left, right)
    if op == "%":
        return _remainder(left, right)
    if pa.types.is_decimal(left.type):
        return _of_decimals(op, left, right)
    result = getattr(pc, f"{_FUNCTIONS[op]}_checked")(left, right)
    if pa.types.is_floating(left.type):
        check_finite(result, left, right)
    return result


def check_finite(result: Value, *arguments: Value) -> None:
    """Raise pa.ArrowInvalid if an expression makes an infinite double of finite ones: it is beyond the range."""
    beyond = pc.is_inf(result)
    if not holds_somewhere(beyond):
        return
    for each in arguments:
        beyond = pc.and_kleene(beyond, pc.is_finite(each))
    if holds_somewhere(beyond):
        raise pa.ArrowInvalid("overflow: a number is beyond the range of double")


def holds_somewhere(flags: Value) -> bool:
    """Whether a condition of an expression is true for a row."""
    return bool(flags.as_py() if isinstance(flags, pa.Scalar) else pc.any(flags).as_py())


def negative(value: Value) -> Value:
    """Return ``-value`` by SQL's arithmetic. Raises as `arithmetic`."""
    if pa.types.is_duration(value.type):
        return pc.subtract_checked(pa.scalar(0, value.type), value)
    value = _computed(value, "-")
    return pc.negate(value) if pa.types.is_decimal(value.type) else pc.negate_checked(value)


def _computed(value: Value, what: str) -> Value:
    """Return a number in the type in which it is computed: int64, double or a decimal."""
    if pa.types.is_null(value.type):
        return value.cast(pa.int64())
    if not is_number(value.type):
        raise InvalidArgumentError(f"{what} takes numbers, not {word(value.type)}; CAST(... AS ...) converts")
    kind = number_kind([value.type])
    return as_decimal(value) if kind is None else value.cast(kind)


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Return two numbers of an expression as the same kind: int64, decimal or double."""
    kind = number_kind([left.type, right.type])
    if kind is not None:
        return as_kind(left, kind), as_kind(right, kind)
    return as_decimal(left), as_decimal(right)


def number_kind(kinds: list[pa.DataType]) -> pa.DataType | None:
    """Return the type in which SQL's arithmetic computes numbers of several types; None for decimals, which keep their
    digits."""
    if any(pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    return None if any(pa.types.is_decimal(kind) or pa.types.is_uint64(kind) for kind in kinds) else pa.int64()


def as_kind(value: Value, kind: pa.DataType) -> Value:
    """Return a number of an expression as another type. As a double it is rounded to the nearest one: where Arrow casts
    a decimal to the one beside it, and refuses large integers."""
    if pa.types.is_floating(kind) and pa.types.is_decimal(value.type):
        value = value.cast(pa.string())
    return value.cast(kind, safe=not pa.types.is_floating(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether the type of an expression is numeric; bools are not."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_moment(kind: pa.DataType) -> bool:
    """Whether the type of an expression is a date, a timestamp or an interval."""
    return pa.types.is_temporal(kind)


def as_decimal(value: Value) -> Value:
    """Return a whole or decimal number of an expression with room for the digits of a result."""
    if pa.types.is_decimal(value.type):
        return value.cast(pa.decimal256(value.type.precision, value.type.scale))
    if pa.types.is_uint64(value.type):
        return value.cast(pa.decimal256(20, 0))
    return value.cast(pa.int64()).cast(pa.decimal256(19, 0))


def _of_decimals(op: str, left: Value, right: Value) -> Value:
    left, right = _narrowed(left), _narrowed(right)
    if op == "/":
        more = _QUOTIENT_DIGITS - (left.type.scale + right.type.precision - right.type.scale + 1)
        room = DIGITS_MAX - (left.type.precision + right.type.precision + 1)
        if (more := min(more, room)) > 0:
            left = left.cast(pa.decimal256(left.type.precision + more, left.type.scale + more))
    return getattr(pc, _FUNCTIONS[op])(left, right)


def _narrowed(value: Value) -> Value:
    """Return a decimal whose type has only the digits that its values need, so that the result's type has room."""
    precision, scale = value.type.precision, value.type.scale
    if precision <= DIGITS_MAX // 4:
        return value
    largest = value if isinstance(value, pa.Scalar) else pc.max(pc.abs(value))
    if not largest.is_valid:
        return value.cast(pa.decimal256(max(scale, 1), scale))
    digits = len(largest.as_py().as_tuple().digits)
    return value.cast(pa.decimal256(max(digits, scale, 1), scale))


def _remainder(left: Value, right: Value) -> Value:
    """The remainder of a truncating division, with the sign of the dividend."""
    if pa.types.is_floating(left.type):
        return _remainder_of_doubles(left, right)
    if not pa.types.is_decimal(left.type):
        return _remainder_of_integers(left, right)
    scale = max(left.type.scale, right.type.scale)
    rest = _remainder_of_integers(_unscaled(left, scale), _unscaled(right, scale))
    unit = pa.scalar(power_of_ten(-scale), pa.decimal256(scale + 1, scale))
    return pc.multiply(rest.cast(pa.decimal256(19, 0)), unit)


def _unscaled(value: Value, scale: int) -> Value:
    """Return decimals as int64, multiplied by ten to the power of ``scale``."""
    try:
        return pc.multiply(_narrowed(value), _power(scale)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidArgumentError("% takes decimals of up to 18 digits; CAST(... AS DOUBLE) converts others") from None


def _power(scale: int) -> pa.Scalar:
    return pa.scalar(10**scale, pa.decimal256(scale + 1, 0))


def _remainder_of_integers(left: Value, right: Value) -> Value:
    if holds_somewhere(pc.equal(right, -1)):  # the quotient of the least integer does not fit; its remainder is zero
        right = pc.if_else(pc.equal(right, -1), pa.scalar(1, pa.int64()), right)
    return pc.subtract_checked(left, pc.multiply_checked(pc.divide_checked(left, right), right))


def _remainder_of_doubles(left: Value, right: Value) -> Value:
    """C's fmod, which is exact."""
    if holds_somewhere(pc.equal(right, 0.0)):
        raise pa.ArrowInvalid("divide by zero")
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return _remainder_of_doubles(spread(left, 1), right)[0]  # pyright: ignore[reportReturnType]
    count = max(len(value) for value in (left, right) if not isinstance(value, pa.Scalar))
    cells = [spread(value, count) for value in (left, right)]
    numbers = [pc.fill_null(value, 1.0).to_numpy(zero_copy_only=False) for value in cells]
    with np.errstate(invalid="ignore"):  # an infinite dividend has no remainder: it is NaN
        rest = pa.array(np.fmod(*numbers))
    return pc.if_else(pc.and_(*(value.is_valid() for value in cells)), rest, None)


def _of_moments(op: str, left: Value, right: Value) -> Value:
    """Dates take whole days, timestamps intervals; the difference of two dates is in days, else it is an interval."""
    is_ = pa.types
    if op == "+" and not is_.is_date(left.type) and not is_.is_timestamp(left.type):
        left, right = right, left
    has_moment = not is_.is_duration(left.type) and is_moment(left.type)
    if op == "-" and is_.is_date(left.type) and is_.is_date(right.type):
        return pc.subtract_checked(days(left), days(right))
    if op == "-" and has_moment and is_moment(right.type) and not is_.is_duration(right.type):
        return pc.subtract_checked(left.cast(pa.timestamp("us")), right.cast(pa.timestamp("us")))
    if op in ("+", "-") and is_.is_date(left.type) and is_.is_integer(right.type):
        return _as_date(getattr(pc, f"{_FUNCTIONS[op]}_checked")(days(left), right.cast(pa.int64())))
    if op in ("+", "-") and is_.is_duration(right.type) and (has_moment or is_.is_duration(left.type)):
        if is_.is_date(left.type) and (whole := _whole_days(right)) is not None:
            return _of_moments(op, left, pa.scalar(whole))
        left = left if is_.is_duration(left.type) else left.cast(pa.timestamp("us"))
        return getattr(pc, f"{_FUNCTIONS[op]}_checked")(left, right)
    raise InvalidArgumentError(
        f"{op} cannot combine {word(left.type)} and {word(right.type)}; possible are DATE + days, DATE - DATE, "
        "TIMESTAMP - TIMESTAMP and TIMESTAMP + INTERVAL '...' DAY"
    )


def _whole_days(interval: Value) -> int | None:
    """Return an interval as days; None if it is not the same for all rows, or has parts of days."""
    if not isinstance(interval, pa.Scalar) or not interval.is_valid:
        return None
    number, rest = divmod(interval.cast(pa.int64()).as_py(), _DAY_SECONDS * 1_000_000)
    return None if rest else number


def days(value: Value) -> Value:
    """Return dates of an expression as days since 1970."""
    return value.cast(pa.int32()).cast(pa.int64())


def _as_date(value: Value) -> Value:
    return value.cast(pa.int32()).cast(pa.date32())


def rounded(value: Value, digits: int) -> Value:
    """Round a number of an expression half away from zero to digits after the point; integers are unchanged."""
    if pa.types.is_integer(value.type):
        return value if digits >= 0 else pc.round(value, ndigits=digits, round_mode="half_towards_infinity")
    if pa.types.is_decimal(value.type) and digits >= value.type.scale:
        return value
    return pc.round(roomy(value), ndigits=digits, round_mode="half_towards_infinity")


def roomy(value: Value) -> Value:
    """Return a decimal of an expression with room for one more digit, which rounding may need; others as they are."""
    if not pa.types.is_decimal(value.type):
        return value
    return value.cast(pa.decimal256(min(value.type.precision + 1, DIGITS_MAX), value.type.scale))


def word(kind: pa.DataType) -> str:
    """Return the name of an expression's type as in SQL and the documentation."""
    is_ = pa.types
    names = {"text": is_.is_string(kind), "a decimal": is_.is_decimal(kind), "a bool": is_.is_boolean(kind)}
    names |= {"an integer": is_.is_integer(kind), "a float": is_.is_floating(kind), "a date": is_.is_date(kind)}
    names |= {"a timestamp": is_.is_timestamp(kind), "an interval": is_.is_duration(kind), "NULL": is_.is_null(kind)}
    names |= {"a time": is_.is_time(kind), "a list": is_list(kind), "a struct": is_.is_struct(kind)}
    return next((name for name, holds in names.items() if holds), str(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether the type of an expression is a list of any kind; a map is none."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def spread(value: Value, count: int) -> pa.Array:
    """Return the value of an expression for each of ``count`` rows. Raises TooLargeError: these are too large."""
    if not isinstance(value, pa.Scalar):
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    check_size(bytes_of(value, count))
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)


def mask(value: Value, count: int) -> np.ndarray:
    """Return where a condition of an expression is true; NULL is not."""
    if not (pa.types.is_boolean(value.type) or pa.types.is_null(value.type)):
        raise InvalidArgumentError(f"a condition must be true or false, not {word(value.type)}")
    known = pc.fill_null(spread(value.cast(pa.bool_()), count), False)
    return np.asarray(known.to_numpy(zero_copy_only=False), np.bool_)
