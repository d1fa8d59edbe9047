"""Cell values as JSON and back: for defaults, filters, partition bounds and keys."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
import struct
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgumentError
from .exact import WrittenFloat, at_scale, exact_decimal, power_of_ten
from .json_text import is_json
from .moment import (
    DAY_MICROSECONDS,
    NANOSECONDS,
    date_of,
    is_finer,
    moment_of,
    moment_text,
    parse_moment_text,
    python_cell,
    utc,
)
from .types import DURATIONS, INTEGERS, TIMES, LogicalType


def plain_value(value: Any) -> Any:
    """Return the value of a cell, a scalar of numpy or pyarrow, as the Python value that means the same, and anything
    else as it is. A moment outside the years 1 to 9999 is its microseconds since 1970, or its days.

    Raises:
        InvalidArgumentError: a moment of numpy, or a time, has parts of a microsecond.
    """
    if isinstance(value, pa.Scalar):
        if _is_nanoseconds(value) and value.is_valid and value.value % 1_000:
            raise InvalidArgumentError(
                f"the time {_time_text(value)} is finer than a microsecond: round it to microseconds"
            )
        return python_cell(value)
    if getattr(value, "shape", None) != () or not hasattr(value, "dtype"):
        return value
    if value.dtype.kind != "M":
        plain = {"f": float, "c": complex}.get(value.dtype.kind)  # item() leaves a long double what it is
        return plain(value) if plain else value.item()
    if value != value:  # NaT
        return None
    coarse = value.astype("datetime64[us]")
    if coarse != value:
        raise InvalidArgumentError(f"the time {value} is finer than a microsecond: round it to microseconds")
    microseconds = int(coarse.astype("int64"))
    if value.dtype.str.endswith(("[D]", "[W]", "[M]", "[Y]")):
        return date_of(microseconds // DAY_MICROSECONDS)
    return moment_of(microseconds)


def _is_nanoseconds(value: Any) -> bool:
    """Whether a value is a scalar of pyarrow that may be a time which Python lacks."""
    return isinstance(value, pa.Scalar) and value.type == pa.time64("ns")


def _time_text(value: pa.Scalar) -> str:
    return value.cast(pa.string()).as_py()


def to_json(value: Any) -> Any:
    """Return a Python cell value as JSON.

    Dates, times and timestamps become ISO text, decimals their digits, bytes ``{"base64": ...}``, spans of time
    ``{"interval": microseconds}`` or ``{"nanoseconds": number}``, and floats that JSON cannot represent
    ``{"float": "nan" | "inf" | "-inf"}``. A timestamp whose UTC is outside the years 1 to 9999 becomes its microseconds
    since 1970. ``NaT`` is how pandas shows the least span of nanoseconds.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, WrittenFloat) and not value.is_exact:
        return value.text
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dt.datetime):
        return moment_text(utc(value)) if value == value else {"nanoseconds": -(1 << 63)}
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        if getattr(value, "nanoseconds", 0):  # of pandas, as Arrow returns what Python lacks
            return {"nanoseconds": int(value.value)}  # pyright: ignore[reportAttributeAccessIssue]
        return {"interval": value // dt.timedelta(microseconds=1)}
    if isinstance(value, decimal.Decimal):
        return str(value)
    if (plain := plain_value(value)) is not value:
        return to_json(plain)
    raise InvalidArgumentError(f"a value of the type {type(value).__name__} cannot be a literal: {value!r}")


def literal_json(value: Any) -> Any:
    """Return a Python value as a literal of a filter: like ``to_json``, but with explicit types that JSON lacks, so
    that a date is not mistaken for text: ``{"date": ...}``, ``{"timestamp": ...}``, ``{"decimal": ...}``. Outside the
    years 1 to 9999 the first two have a number: days, and microseconds.

    Raises:
        InvalidArgumentError: no column can have this value.
    """
    if isinstance(value, dt.datetime):
        return {"timestamp": moment_text(utc(value))}
    if isinstance(value, dt.date):
        return {"date": value.isoformat()}
    if isinstance(value, dt.time):
        return {"time": value.isoformat()}
    if _is_nanoseconds(value) and value.is_valid:
        return {"time": _time_text(value)}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}  # without an exponent, that of 1E-999999999 has a billion digits
    if (plain := plain_value(value)) is not value:
        return literal_json(plain)
    if isinstance(value, list | tuple):
        raise InvalidArgumentError(f"a list cannot be a literal: {_shown(value)}")
    return value if isinstance(value, dict) else to_json(value)


def from_json(value: Any, kind: LogicalType, what: str = "the value") -> Any:
    """Return the Python cell value of a JSON literal in a column of ``kind``.

    Accepts what ``to_json`` returns and, if unambiguous, looser forms as in SQL: a number for a decimal, an integer of
    microseconds for a timestamp, of days for a date.

    Raises:
        InvalidArgumentError: the literal does not fit the type.
    """
    value = plain_value(value)
    if value is None:
        return None
    try:
        return (_nested if kind.is_nested else _READERS[kind.name])(value, kind)
    except (ValueError, TypeError, ArithmeticError, binascii.Error, KeyError):
        raise InvalidArgumentError(f"{what} {_shown(value)} is not a valid {kind}") from None


def _shown(value: Any) -> str:
    """Return a value as an error message shows it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _bool(value: Any, _: LogicalType) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _integer(value: Any, kind: LogicalType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    least, end = kind.bounds
    if not least <= value < end:
        raise ValueError
    return value


def _float(value: Any, kind: LogicalType) -> float:
    if isinstance(value, dict):
        return float(value["float"])
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if isinstance(value, WrittenFloat) and math.isinf(number):
        raise ValueError  # its digits are those of a finite one
    if kind.name == "float" and math.isfinite(number):
        struct.pack("<f", number)  # raises OverflowError if the number would become infinite
    if kind.name == "float16" and math.isfinite(number):
        struct.pack("<e", number)
    return number


def _date(value: Any, _: LogicalType) -> dt.date:
    if isinstance(value, dt.datetime):
        raise ValueError
    if isinstance(value, dt.date):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return dt.date.fromisoformat(_text(value, _).strip())


def _timestamp(value: Any, _: LogicalType) -> dt.datetime | int:
    """Return a datetime; outside the years 1 to 9999, which Python lacks, the microseconds."""
    if isinstance(value, dt.datetime):
        if getattr(value, "nanosecond", 0):  # of pandas
            raise ValueError
        return utc(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return moment_of(_integer(value, LogicalType("int64")))
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    return parse_moment_text(_text(value, _))


def _time(value: Any, kind: LogicalType) -> dt.time:
    """Return a time from one of Python or ISO text, which has no digit that the column has not, nor Python."""
    if not isinstance(value, dt.time):
        text = _text(value, kind).strip()
        value = dt.time.fromisoformat(text)
        if is_finer(text):
            raise ValueError
    if value.tzinfo is not None or value.microsecond * 1_000 % NANOSECONDS[kind.arrow.unit]:
        raise ValueError
    return value


def _duration(value: Any, kind: LogicalType) -> dt.timedelta | int:
    """Return a span from one of Python, from microseconds as ``to_json`` has them, or from a number of units; one that
    Python lacks is its number of units."""
    if isinstance(value, dict):
        if "nanoseconds" in value and kind.arrow.unit == "ns":
            return _span(value["nanoseconds"], kind)
        return _duration(dt.timedelta(microseconds=value["interval"]), kind)
    if isinstance(value, int) and not isinstance(value, bool):
        return _span(value, kind)
    if not isinstance(value, dt.timedelta):
        return _duration(int(_text(value, kind)), kind)
    if value // dt.timedelta(microseconds=1) * 1_000 % NANOSECONDS[kind.arrow.unit]:
        raise ValueError
    return value


def _span(number: int, kind: LogicalType) -> dt.timedelta | int:
    """Return a span of so many units; the number itself if Python lacks it, or pandas takes it for no span."""
    span = python_cell(pa.scalar(number, kind.arrow))
    return span if span == span else number


def _interval(value: Any, _: LogicalType) -> pa.MonthDayNano:
    """Return an interval from its months, days and nanoseconds."""
    months, days, nanoseconds = value
    return pa.MonthDayNano([months, days, nanoseconds])


def _key(key: Any, kind: LogicalType) -> Any:
    """Return the key of a map; those of an object of JSON are text."""
    return int(key) if isinstance(key, str) and kind.is_integer else key


def _nested(value: Any, kind: LogicalType) -> Any:
    """Return a list, the dict of a struct, or a map as pairs."""
    kinds = dict(kind.fields)
    if kind.name == "struct":
        if not isinstance(value, dict) or not value.keys() <= kinds.keys():
            raise ValueError
        return {name: from_json(value.get(name), inner, f"the value of {name!r}") for name, inner in kind.fields}
    if kind.name == "map":
        given = value.items() if isinstance(value, dict) else value
        pairs = [
            (from_json(_key(key, kinds["key"]), kinds["key"]), from_json(item, kinds["value"])) for key, item in given
        ]
        if any(key is None for key, _ in pairs):
            raise ValueError
        return pairs
    if not isinstance(value, list | tuple) or len(value) != (kind.length or len(value)):
        raise ValueError
    return [from_json(item, kinds["item"], "the item") for item in value]


def _decimal(value: Any, kind: LogicalType) -> decimal.Decimal:
    if isinstance(value, bool | float):
        value = repr(value)  # the digits of a WrittenFloat
    fitted = at_scale(exact_decimal(value), kind.scale)
    if not fitted.is_finite() or fitted.copy_abs() >= power_of_ten(kind.precision - kind.scale):
        raise ValueError
    return fitted


def _text(value: Any, _: LogicalType) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # raises a ValueError for half of a surrogate pair
    return value


def _json(value: Any, kind: LogicalType) -> str:
    if not is_json(text := _text(value, kind)):
        raise ValueError
    return text


def _binary(value: Any, _: LogicalType) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError
    return bytes(value)


_READERS = {
    "bool": _bool,
    **dict.fromkeys(INTEGERS, _integer),
    "date": _date,
    "timestamp[us]": _timestamp,
    **dict.fromkeys(TIMES, _time),
    **dict.fromkeys(DURATIONS, _duration),
    "month_day_nano_interval": _interval,
    "float16": _float,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "string": _text,
    "varchar": _text,
    "json": _json,
    "binary": _binary,
}
