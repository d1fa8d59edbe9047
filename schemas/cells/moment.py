"""Dates and timestamps as Python values, exact over all that a column holds.

Python's calendar has the years 1 to 9999. Outside of them a timestamp is its microseconds since 1970, in UTC, and a
date its days. Cells never pass through ``datetime`` to be compared or written.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, TypeGuard

import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_FINER = re.compile(r"[.,][0-9]{6}0*[1-9]")
DAY_MICROSECONDS = 86_400_000_000
NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds of each of Arrow's units of time."""
FIRST_MICROSECOND = (dt.datetime.min - _EPOCH) // _MICROSECOND
LAST_MICROSECOND = (dt.datetime.max - _EPOCH) // _MICROSECOND
"""The ends of Python's calendar."""


def date_of(days: int) -> dt.date | int:
    """Return the date so many days after 1970-01-01; the number itself outside Python's calendar.

    >>> date_of(-719_162), date_of(-719_163)
    (datetime.date(1, 1, 1), -719163)
    """
    day = days + _EPOCH_DAY
    return dt.date.fromordinal(day) if 0 < day <= _LAST_DAY else days


def moment_of(microseconds: int) -> dt.datetime | int:
    """Return the time so many microseconds after the beginning of 1970, without a zone; the number itself outside
    Python's calendar.

    >>> moment_of(253_402_300_799_999_999), moment_of(253_402_300_800_000_000)
    (datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), 253402300800000000)
    """
    try:
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return microseconds


def is_beyond(value: object) -> TypeGuard[int]:
    """Whether the value of a cell is what ``moment_of`` returns outside Python's calendar."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63 and not FIRST_MICROSECOND <= value <= LAST_MICROSECOND


def microseconds_of(value: dt.date | int) -> int:
    """Return the microseconds since 1970, in UTC, of a datetime with or without a zone, or of the start of a date; a
    number is taken as it is."""
    if isinstance(value, int):
        return value
    if not isinstance(value, dt.datetime):
        return (value.toordinal() - _EPOCH_DAY) * DAY_MICROSECONDS
    since = value.replace(tzinfo=None) - _EPOCH
    offset = value.utcoffset()
    return (since // _MICROSECOND) - (offset // _MICROSECOND if offset else 0)


def utc(value: dt.datetime) -> dt.datetime | int:
    """Return a time with or without a zone as UTC without one; its microseconds where that leaves Python's calendar."""
    return value if value.tzinfo is None else moment_of(microseconds_of(value))


def is_finer(text: str) -> bool:
    """Whether ISO text has a fraction of a microsecond, which Python would drop."""
    return _FINER.search(text) is not None


def parse_moment_text(text: str) -> dt.datetime | int:
    """Return the time that ISO text means, in UTC; outside Python's calendar that of a number, as ``moment_text`` has
    it.

    Raises:
        ValueError: it means none, or one with a fraction of a microsecond.
    """
    bare = text.strip()
    if _NUMBER.fullmatch(bare) and is_beyond(int(bare)):
        return int(bare)
    if is_finer(bare):
        raise ValueError
    return utc(dt.datetime.fromisoformat(bare))


def python_cell(cell: pa.Scalar) -> Any:
    """Return a cell as a Python value, like ``date_of`` and ``moment_of`` if it is a date or a timestamp; a span that
    Python lacks is its number of units."""
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        if isinstance(cell, pa.MapScalar):
            return [(python_cell(pair["key"]), python_cell(pair["value"])) for pair in cell.values]
        if isinstance(cell, pa.StructScalar):
            return {name: python_cell(cell[name]) for name in cell}
        if pa.types.is_nested(cell.type):
            return [python_cell(item) for item in cell.values]  # pyright: ignore[reportAttributeAccessIssue]
        return cell.value  # pyright: ignore[reportAttributeAccessIssue] - dates, timestamps and durations have it


def moment_text(value: dt.date | int) -> str | int:
    """Return a date or time as ISO text, in UTC; a number as it is."""
    return value if isinstance(value, int) else value.isoformat()
