"""The position of a literal among the cells of a column: the step that keeps comparisons true to mathematics.

A literal need not be a cell. ``x > 2.5`` makes sense for an int32, and so do ``x < 10000000000`` and, for a date,
``d < TIMESTAMP '2024-05-31 12:00:00'``. Cells are ordered, so every literal either is one or falls into a gap between
two neighbours, and the cell below that gap says all about it::

    exact      the literal is ``cell``
    not exact  ``cell`` < literal < the next cell; ``cell`` is None when the literal is below every cell, and the
               greatest cell when it is above them all

Floats are the exception, as in any SQL: a literal is rounded to the nearest cell, so that ``x = 0.1`` finds what was
written as 0.1. Only a number too large for the type is placed in the gap before infinity.
"""

import base64
import datetime as dt
import decimal
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schemas.cells.exact import exact_decimal
from ...schemas.cells.literal import to_json
from ...schemas.cells.moment import DAY_MICROSECONDS, NANOSECONDS, microseconds_of, parse_moment_text
from ...schemas.cells.types import DURATIONS, INTEGERS, TIMES, LogicalType

Cell = int | float | bytes
"""A cell as a Python value of its physical type: a bool is 0 or 1, a decimal its unscaled integer."""
_FINER_THAN_MICROSECONDS = re.compile(r"([.,]\d{6})(\d+)")
_GREATEST_POWER = 64
"""No cell reaches 10 ** 64: what does need not be written out to be placed."""
_MOST_DIGITS = 1_000
"""Far more than any type holds; what is longer would only cost time."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a literal of an expression stands among the cells of a column; see above. ``cell`` is NaN, and exact, for
    the float that has no place."""

    cell: Cell | None
    is_exact: bool = True

    @property
    def is_nan(self) -> bool:
        return isinstance(self.cell, float) and math.isnan(self.cell)


def place(value: Any, kind: LogicalType) -> Place:
    """Return where a literal of an expression, JSON as ``schemas.literal.to_json`` makes it, stands among the cells of
    ``kind``.

    Beside that JSON it takes what SQL text tells apart: ``{"decimal": digits}``, ``{"date": ISO text}``,
    ``{"timestamp": ISO text}``, the last two also with a number, of days or microseconds since 1970; and the Python
    values of all these.

    Raises:
        ValueError: for a literal that cannot be compared with the type.
    """
    try:
        return _PLACERS[kind.name](value, kind)
    except (TypeError, ArithmeticError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from None


def bounds(kind: LogicalType) -> tuple[int, int] | None:
    """Return the least and the greatest cell, among which a literal is placed; None for the types whose cells have no
    such ends."""
    if kind.name == "decimal":
        greatest = 10**kind.precision - 1
        return -greatest, greatest
    if kind.is_integer:
        least, end = kind.bounds
        return least, end - 1
    bits = _BITS.get(kind.name)
    if bits is None:
        return None
    return (0, 1) if bits == 1 else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def expected(kind: LogicalType) -> str:
    """Return in words the literals that an expression can compare with a column of ``kind``."""
    if kind.is_integer or kind.is_floating or kind.name == "decimal":
        return "a number"
    if kind.is_nested:
        return "IS NULL"
    return _EXPECTED[kind.name.partition("[")[0]]


def shown(value: Any) -> str:
    """Return a literal of an expression as an error message shows it."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, value),) = value.items()
        text = str(value) if kind in ("decimal", "float") else repr(value)
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_BITS = {
    "bool": 1,
    "date": 32,
    "timestamp[us]": 64,
    **{name: kind.bit_width for name, kind in (TIMES | DURATIONS).items()},
}
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
_EXPECTED = {
    "bool": "TRUE or FALSE",
    "date": "a date such as '2024-05-31', or a timestamp",
    "duration": "an interval such as INTERVAL '90' MINUTE",
    "month_day_nano_interval": "IS NULL",
    "time32": "a time such as '23:59:59'",
    "time64": "a time such as '23:59:59.5'",
    "timestamp": "a timestamp such as '2024-05-31 23:59:59', or a date",
    "string": "a string",
    "varchar": "a string",
    "json": "a string",
    "binary": "X'...' or a string",
}


def _bool(value: Any, _: LogicalType) -> Place:
    if not isinstance(value, bool):
        raise ValueError
    return Place(int(value))


def _integer(value: Any, kind: LogicalType) -> Place:
    if isinstance(value, str):
        raise ValueError
    return _on_grid(_number(value), 0, kind)


def _decimal(value: Any, kind: LogicalType) -> Place:
    return _on_grid(_number(value), kind.scale, kind)


def _number(value: Any) -> int | decimal.Decimal:
    """Return a number exactly as it was written; not a number is Decimal's NaN."""
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, int | decimal.Decimal):
        return value
    if isinstance(value, float):
        return exact_decimal(repr(value))  # the digits that the caller saw
    if isinstance(value, dict):
        (value,) = (value[key] for key in ("decimal", "float") if key in value)
    if not isinstance(value, str):
        raise ValueError
    return exact_decimal(value)


def _on_grid(number: int | decimal.Decimal, scale: int, kind: LogicalType) -> Place:
    """Place a number on the grid of multiples of 10 ** -scale."""
    if isinstance(number, int):
        return _within(number * 10**scale, True, kind)
    if number.is_nan():
        return Place(math.nan)
    if not number:
        return _within(0, True, kind)
    if number.is_infinite() or number.adjusted() > _GREATEST_POWER:
        far = 10 ** (2 * _GREATEST_POWER)
        return _within(-far if number.is_signed() else far, False, kind)
    sign, digits, exponent = number.as_tuple()
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    unscaled = int(decimal.Decimal((sign, digits, 0)))
    shift = int(exponent) + scale
    if shift >= 0:
        return _within(unscaled * 10**shift, True, kind)
    below, rest = divmod(unscaled, 10 ** min(-shift, len(digits) + 1))
    return _within(below, rest == 0, kind)


def _within(below: int, is_exact: bool, kind: LogicalType) -> Place:
    ends = bounds(kind)
    assert ends is not None
    least, greatest = ends
    if below < least:
        return Place(None, False)
    if below > greatest:
        return Place(greatest, False)
    return Place(below, is_exact)


def _float(value: Any, kind: LogicalType) -> Place:
    if isinstance(value, float):
        exact, number = value, value
    else:
        exact = _number(value)
        number = float(decimal.Decimal(exact))
    greatest = sys.float_info.max
    if kind.name == "float":
        greatest = float(np.finfo(np.float32).max)
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    elif kind.name == "float16":
        greatest = float(np.finfo(np.float16).max)
        with np.errstate(over="ignore"):
            number = float(np.float16(number))
    if math.isinf(number) and exact not in (math.inf, -math.inf):
        return Place(greatest if number > 0 else -math.inf, False)
    return Place(number)


def _date(value: Any, kind: LogicalType) -> Place:
    if isinstance(value, int) and not isinstance(value, bool):
        return _within(value, True, kind)
    microseconds, is_exact = moment(value)
    days, rest = divmod(microseconds, DAY_MICROSECONDS)
    return _within(days, is_exact and rest == 0, kind)


def _timestamp(value: Any, kind: LogicalType) -> Place:
    if isinstance(value, int) and not isinstance(value, bool):
        return _within(value, True, kind)
    return _within(*moment(value), kind)


def _time(value: Any, kind: LogicalType) -> Place:
    if isinstance(value, dict):
        value = value["time"]
    if isinstance(value, dt.time):
        value = value.isoformat()
    if not isinstance(value, str) or not (match := _TIME.fullmatch(value.strip())):
        raise ValueError
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    return _in_units(
        (hours * 3600 + minutes * 60 + seconds) * 1_000_000_000 + int((match[4] or "0").ljust(9, "0")), kind
    )


def _duration(value: Any, kind: LogicalType) -> Place:
    """Place a span of microseconds, as an expression has it, or of nanoseconds."""
    if isinstance(value, dt.timedelta):
        value = to_json(value)
    if not isinstance(value, dict):
        raise ValueError
    return _in_units(value["nanoseconds"] if "nanoseconds" in value else value["interval"] * 1_000, kind)


def _in_units(nanoseconds: int, kind: LogicalType) -> Place:
    below, rest = divmod(nanoseconds, NANOSECONDS[kind.arrow.unit])
    return _within(below, rest == 0, kind)


def moment(value: Any) -> tuple[int, bool]:
    """Return a literal's moment as microseconds since 1970 in UTC, rounded down, and whether nothing was lost by
    that."""
    if isinstance(value, dict):
        value = _date_of(value["date"]) if "date" in value else value["timestamp"]
        if type(value) is int:
            return value, True
    if isinstance(value, dt.date):
        return microseconds_of(value), True
    if not isinstance(value, str):
        raise ValueError
    text, finer = value.strip(), ""
    if match := _FINER_THAN_MICROSECONDS.search(text):
        finer = match[2]
        text = text[: match.start(2)] + text[match.end(2) :]
    return microseconds_of(parse_moment_text(text)), not finer.strip("0")


def _date_of(value: Any) -> dt.date | int:
    """Return a date from ISO text, or from days the microseconds of its start."""
    return value * DAY_MICROSECONDS if type(value) is int else dt.date.fromisoformat(value.strip())


def _text(value: Any, _: LogicalType) -> Place:
    if not isinstance(value, str):
        raise ValueError
    return Place(value.encode())


def _binary(value: Any, _: LogicalType) -> Place:
    if isinstance(value, dict):
        return Place(base64.b64decode(value["base64"], validate=True))
    return Place(value.encode() if isinstance(value, str) else bytes(memoryview(value)))


_PLACERS: dict[str, Callable[[Any, LogicalType], Place]] = {
    "bool": _bool,
    **dict.fromkeys(INTEGERS, _integer),
    "date": _date,
    "timestamp[us]": _timestamp,
    **dict.fromkeys(TIMES, _time),
    **dict.fromkeys(DURATIONS, _duration),
    "float16": _float,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "string": _text,
    "varchar": _text,
    "json": _text,
    "binary": _binary,
}
