"""Converts timestamps without a zone to moments, and back, like Spark's ``CAST``.

A table holds moments. A TIMESTAMP_NTZ, or a date, is what a wall clock shows, and means the moment at which a clock in
the session's time zone shows it. When the clock is set forward, skipped times are read with the offset before; when it
is set back, a time that occurs twice means the first.

Arrow has kernels for this, but they ignore summer time after 2037.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ...schemas.errors import InvalidArgumentError

SETTING = "spark.sql.session.timeZone"
_NAIVE = pa.timestamp("us")
_FIXED = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?")
_EPOCH = dt.datetime(1970, 1, 1)
_SECOND, _DAY = 1_000_000, 86_400 * 1_000_000
# The days on which Python can compute the next day in every zone; outside, use the offset of the first or last.
_FIRST_DAY, _LAST_DAY = ((dt.datetime(*day) - _EPOCH).days for day in ((1, 1, 3), (9999, 12, 28)))


def session_zone(told: pa.Schema | None = None) -> str:
    """Return the time zone of a Spark task's session; ``told`` is the schema of rows from Spark, whose timestamps name
    it.

    Raises:
        InvalidArgumentError: the zone is unknown.
    """
    context = TaskContext.get()
    zones = (zone for field in told or () for zone in _zones(field.type))
    zone = next(zones, None) or (context and context.getLocalProperty(SETTING))
    if not zone:
        raise InvalidArgumentError(
            f"timestamps without a zone depend on the session's time zone, which is unknown: set "
            f"{SETTING}, or cast them to timestamp in Spark"
        )
    return zone


def _zones(kind: pa.DataType) -> Iterator[str]:
    """Yield the time zones of the timestamps in a type."""
    if pa.types.is_timestamp(kind):
        yield from [kind.tz] if kind.tz else []
    for place in range(kind.num_fields):
        yield from _zones(kind.field(place).type)


def moments(walls: pa.Array, zone: str) -> pa.Array:
    """Return wall-clock times in Spark's session ``zone``, or dates, as microseconds in UTC.

    Raises:
        InvalidArgumentError: there is no such zone.
    """
    clock = _zone(zone)
    return _shifted(walls, lambda wall: -_offset(wall.replace(tzinfo=clock)))


def walls(moments: pa.Array, zone: str) -> pa.Array:
    """Return the wall-clock times that Spark shows, those in Spark's session ``zone`` of moments in UTC.

    Raises:
        InvalidArgumentError: there is no such zone.
    """
    clock = _zone(zone)
    return _shifted(moments, lambda moment: _offset(moment.replace(tzinfo=dt.UTC).astimezone(clock)))


def _zone(name: str) -> dt.tzinfo:
    if fixed := _FIXED.fullmatch(name):
        sign = -1 if fixed[1] == "-" else 1
        return dt.timezone(sign * dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3] or 0)))
    try:
        return ZoneInfo("UTC" if name == "Z" else name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgumentError(f"unknown session time zone {name!r}; use Area/City or +HH:MM") from None


def _offset(moment: dt.datetime) -> int:
    """Return the offset from UTC in microseconds."""
    offset = moment.utcoffset()
    assert offset is not None
    return offset // dt.timedelta(microseconds=1)


def _shifted(cells: pa.Array, shift: Callable[[dt.datetime], int]) -> pa.Array:
    """Return the times, each moved by ``shift``, which is called a few times for each day that occurs."""
    times = cells.cast(_NAIVE).cast(pa.int64())
    numbers = times.fill_null(0).to_numpy()
    days, of_day = np.unique(np.clip(numbers // _DAY, _FIRST_DAY, _LAST_DAY), return_inverse=True)
    spans = [_span(int(day) * _DAY, shift) for day in days]
    early, change, late = (np.array([span[part] for span in spans], np.int64)[of_day] for part in range(3))
    moved = numbers + np.where(numbers < change, early, late)
    return pa.array(moved, pa.int64(), mask=times.is_null().to_numpy(zero_copy_only=False)).cast(_NAIVE)


def _span(day: int, shift: Callable[[dt.datetime], int]) -> tuple[int, int, int]:
    """Return the shift at the start of a day, when it changes, and the shift after that."""

    def at(time: int) -> int:
        return shift(_EPOCH + dt.timedelta(microseconds=time))

    low, high = day, day + _DAY
    early, late = at(low), at(high)
    if early == late:
        return early, high, late
    while high - low > _SECOND:  # `early` at `low`, not at `high`; offsets change at whole seconds
        middle = (low + high) // 2 // _SECOND * _SECOND
        low, high = (middle, high) if at(middle) == early else (low, middle)
    return early, high, late
