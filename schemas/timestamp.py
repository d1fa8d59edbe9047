"""Hybrid timestamps: ``microseconds since 1970 << 12 | logical``, one per commit, strictly increasing in a store."""

import datetime as dt

from .errors import InvalidArgumentError

LOGICAL_BITS = 12
LOGICAL_MAX = (1 << LOGICAL_BITS) - 1
TIMESTAMP_BITS = 64
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def last_of(microseconds: int) -> int:
    """Return the last timestamp in a microsecond: a scan as of it sees everything committed up to then."""
    return microseconds << LOGICAL_BITS | LOGICAL_MAX


def microseconds_of(timestamp: int) -> int:
    """Return the wall-clock part."""
    return timestamp >> LOGICAL_BITS


def datetime_of(timestamp: int) -> dt.datetime:
    """Return the wall-clock part as a datetime in UTC."""
    return _EPOCH + dt.timedelta(microseconds=microseconds_of(timestamp))


def check_timestamp(timestamp: int, what: str) -> int:
    """Return a timestamp from outside. ``what`` names it in errors.

    Raises:
        InvalidArgumentError: it has more bits than any has.
    """
    if timestamp.bit_length() > TIMESTAMP_BITS:
        raise InvalidArgumentError(
            f"{what} has {timestamp.bit_length():,} bits, and a timestamp at most {TIMESTAMP_BITS}: it is microseconds "
            "since 1970 << 12"
        )
    return timestamp


def parse_moment(moment: int | str | dt.datetime, what: str = "as_of") -> int:
    """Return the timestamp of a moment: an integer is one already; for an aware datetime or ISO text, the last
    timestamp in its microsecond. ``what`` names it in errors.

    Raises:
        InvalidArgumentError: a datetime lacks a time zone, text is not a datetime, or an integer is no timestamp.
    """
    if isinstance(moment, bool):
        raise InvalidArgumentError(f"{what} must be a timestamp, a datetime with a time zone or ISO text, not a bool")
    if isinstance(moment, int):
        if moment < 0:
            raise InvalidArgumentError(f"{what} {moment} is negative; timestamps count microseconds since 1970 << 12")
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
    return last_of(microseconds)
