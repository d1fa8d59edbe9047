"""Hybrid timestamps: ``microseconds since 1970 << 12 | logical``, one per commit, strictly increasing in a store."""

import datetime as dt
import re
from typing import TypeAlias

from ..errors import InvalidArgumentError
from .literal import plain_value

LOGICAL_BITS = 12
LOGICAL_MAX = (1 << LOGICAL_BITS) - 1
TIMESTAMP_BITS = 64
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""The seconds of the units of an age."""
Moment: TypeAlias = int | str | dt.datetime | dt.timedelta
"""A moment as users give it: see ``read_moment``."""
SPAN = re.compile(r"(\d{1,9}) ?([smhdw])", re.ASCII)
"""The text of a span of time: a number and its unit."""
LONGEST_SECONDS = 100 * 366 * UNITS["d"]
"""The longest span that is told apart from a longer one."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def last_of(microseconds: int) -> int:
    """Return the last hybrid timestamp in a microsecond: a scan as of it sees everything committed up to then."""
    return microseconds << LOGICAL_BITS | LOGICAL_MAX


def microseconds_of(timestamp: int) -> int:
    """Return the wall-clock part of a hybrid timestamp, in microseconds since 1970."""
    return timestamp >> LOGICAL_BITS


def datetime_of(timestamp: int) -> dt.datetime:
    """Return the wall-clock part of a hybrid timestamp as a datetime in UTC."""
    return _EPOCH + dt.timedelta(microseconds=microseconds_of(timestamp))


def check_timestamp(timestamp: int, what: str) -> int:
    """Return a hybrid timestamp from outside. ``what`` names it in errors.

    Raises:
        InvalidArgumentError: it has more bits than any has.
    """
    if timestamp.bit_length() > TIMESTAMP_BITS:
        raise InvalidArgumentError(
            f"{what} has {timestamp.bit_length():,} bits, but a timestamp has at most {TIMESTAMP_BITS}: it is the "
            "microseconds since 1970, shifted left by 12 bits"
        )
    return timestamp


def read_moment(moment: Moment, what: str = "as_of") -> int:
    """Return the hybrid timestamp of a moment as users give it: as ``parse_moment`` takes it, or an age, which counts
    back from this machine's clock: a timedelta, or text such as "90s", "5m", "2h" or "7d".

    Raises:
        InvalidArgumentError: as ``parse_moment``; or an age is negative, or reaches back to before 1970.
    """
    age = _age(moment) if isinstance(moment, str) else moment
    if not isinstance(age, dt.timedelta):
        try:
            return parse_moment(plain_value(moment), what)
        except InvalidArgumentError as error:
            if not isinstance(moment, str):
                raise
            raise InvalidArgumentError(f"{error.message}; an age such as 2h is also allowed") from None
    if age < dt.timedelta():
        raise InvalidArgumentError(f"{what} {age} is negative: an age counts back from now")
    try:
        return parse_moment(dt.datetime.now(dt.UTC) - age, what)
    except OverflowError:
        raise InvalidArgumentError(f"{what} {moment!r} goes back to before 1970") from None


def is_age(moment: object) -> bool:
    """Return whether a moment that a user gave counts back from now."""
    return isinstance(_age(moment) if isinstance(moment, str) else moment, dt.timedelta)


def _age(text: str) -> str | dt.timedelta:
    """Return the age that a text means; the text, if it means none."""
    match = SPAN.fullmatch(text.strip())
    seconds = int(match[1]) * UNITS[match[2]] if match else 0
    return dt.timedelta(seconds=min(seconds, LONGEST_SECONDS)) if match else text


def parse_moment(moment: int | str | dt.datetime, what: str = "as_of") -> int:
    """Return the hybrid timestamp of a moment: an integer is one already; for an aware datetime or ISO text, the last
    timestamp in its microsecond. ``what`` names it in errors.

    Raises:
        InvalidArgumentError: a datetime lacks a time zone, or is later than any timestamp; text is no datetime; an
            integer is no timestamp.
    """
    if isinstance(moment, bool):
        raise InvalidArgumentError(f"{what} must be a timestamp, a datetime with a time zone or ISO text, not a bool")
    if isinstance(moment, int):
        if moment < 0:
            raise InvalidArgumentError(f"{what} {moment} is negative; a timestamp is (microseconds since 1970) << 12")
        return check_timestamp(moment, what)
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment.strip())
        except ValueError:
            raise InvalidArgumentError(
                f"{what} {moment!r} is not an ISO 8601 date and time such as 2026-01-31T12:00:00Z"
            ) from None
    if not isinstance(moment, dt.datetime):
        kind = type(moment).__name__
        raise InvalidArgumentError(f"{what} must be a timestamp, a datetime with a time zone or ISO text, not a {kind}")
    if moment.tzinfo is None:
        raise InvalidArgumentError(f"{what} {moment.isoformat()} needs a time zone, as in 2026-01-31T12:00:00Z")
    microseconds = (moment - _EPOCH) // _MICROSECOND
    if microseconds < 0:
        raise InvalidArgumentError(f"{what} {moment.isoformat()} lies before 1970")
    if last_of(microseconds).bit_length() > TIMESTAMP_BITS:
        raise InvalidArgumentError(f"{what} {moment.isoformat()} is in the future: give an earlier moment")
    return last_of(microseconds)
