"""Moments as users give them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from nyala.schemas.cells.timestamp import datetime_of, parse_moment, read_moment
from nyala.schemas.errors import InvalidArgumentError

UTC = dt.UTC


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        ("5m", 300),
        ("0s", 0),
        ("90s", 90),
        ("2h", 7_200),
        (" 7d ", 604_800),
        ("1 w", 604_800),
        (dt.timedelta(minutes=5), 300),
        (dt.timedelta(milliseconds=1), 0.001),
        (np.timedelta64(5, "m").item(), 300),
    ],
)
def test_an_age_counts_back_from_now(age: Any, seconds: float) -> None:
    before = dt.datetime.now(UTC)
    moment = datetime_of(read_moment(age))
    after = dt.datetime.now(UTC)
    assert before - dt.timedelta(seconds=seconds) <= moment <= after - dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "moment",
    [12345, "2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, tzinfo=UTC), np.int64(7), "2026-01-31 12:00+02:00"],
)
def test_other_moments_are_as_ever(moment: Any) -> None:
    assert read_moment(moment) == parse_moment(int(moment) if isinstance(moment, np.integer) else moment)


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        ("5x", "as_of '5x' is not an ISO 8601 date and time .*; an age such as 2h is also allowed"),
        ("-5m", "an age such as 2h"),
        ("5", "an age such as 2h"),
        (dt.timedelta(-1), "is negative: an age counts back from now"),
        ("999999999w", "before 1970"),
        ("30000d", "before 1970"),
        ("3000-01-01T00:00:00Z", "is in the future: give an earlier moment"),
        (dt.datetime(2026, 1, 1), "needs a time zone"),
        (1.5, "must be a timestamp"),
        (True, "not a bool"),
    ],
)
def test_what_is_no_moment_is_refused(moment: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        read_moment(moment)
