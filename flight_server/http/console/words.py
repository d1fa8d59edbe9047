"""Shares, times and moments as people read them."""

from __future__ import annotations

import datetime as dt
import time

from ....schemas.cells.timestamp import datetime_of

_LATELY_SECONDS = 12 * 3600
_MOMENT = "%Y-%m-%d %H:%M:%S UTC"


def duration(seconds: float) -> str:
    """Return a duration as the pages of the console write it."""
    if seconds >= 1 or not seconds:
        return f"{seconds:,.2f} s" if seconds else "0"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def moment(timestamp: int) -> str:
    """Return the time of a commit as the pages of the console write it; empty for 0."""
    return datetime_of(timestamp).strftime(_MOMENT) if timestamp else ""


def clock(seconds: float) -> str:
    """Return a time in seconds since 1970 as the pages of the console write it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime(_MOMENT)


def clock_lately(seconds: float) -> str:
    """Return, for a page of the console, the time of day, in UTC, of what happened within some hours, and the date of
    what is older."""
    return clock_time(seconds) if abs(time.time() - seconds) < _LATELY_SECONDS else clock(seconds)


def clock_time(seconds: float) -> str:
    """Return the time of day of a time in seconds since 1970, in UTC, as the pages of the console write it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%H:%M:%S")


def share(part: float, whole: float) -> str:
    """Return a part in percent, as the pages of the console write it."""
    return f"{100 * part / whole:.0f} %" if whole else ""
