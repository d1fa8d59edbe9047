"""Dates and timestamps as Python values: the same cell comes back, also where Python has no date."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nyala.schemas.cells.literal import from_json, literal_json, to_json
from nyala.schemas.cells.moment import (
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    date_of,
    is_beyond,
    microseconds_of,
    moment_of,
    moment_text,
    parse_moment_text,
    python_cell,
)
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError

TIMESTAMP, DATE = LogicalType("timestamp[us]"), LogicalType("date")
ENDS = (-(1 << 63), FIRST_MICROSECOND - 1, FIRST_MICROSECOND, -1, 0, LAST_MICROSECOND, LAST_MICROSECOND + 1)
CELLS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([*ENDS, (1 << 63) - 1])


@given(CELLS)
@example(FIRST_MICROSECOND)
@example(LAST_MICROSECOND + 1)
def test_every_timestamp_survives_python_text_and_json(cell: int) -> None:
    value = moment_of(cell)
    assert isinstance(value, dt.datetime) is (FIRST_MICROSECOND <= cell <= LAST_MICROSECOND)
    assert is_beyond(value) is isinstance(value, int) and microseconds_of(value) == cell
    assert parse_moment_text(str(moment_text(value))) == value
    assert from_json(to_json(value), TIMESTAMP) == from_json(cell, TIMESTAMP) == value
    assert python_cell(pa.scalar(cell, pa.timestamp("us"))) == value


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_every_date_is_a_date_or_its_days(days: int) -> None:
    value = date_of(days)
    assert python_cell(pa.array([days], pa.int32()).cast(pa.date32())[0]) == value
    assert microseconds_of(value) // 86_400_000_000 == days if isinstance(value, dt.date) else value == days


@pytest.mark.parametrize(("hours", "moment"), [(-2, dt.datetime.max), (2, dt.datetime.min)])
def test_times_whose_utc_python_lacks_are_their_microseconds(hours: int, moment: dt.datetime) -> None:
    aware = moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=hours)))
    cell = microseconds_of(moment) - hours * 3_600_000_000
    assert to_json(aware) == from_json(aware, TIMESTAMP) == from_json(aware.isoformat(), TIMESTAMP) == cell
    assert literal_json(aware) == {"timestamp": cell}


@pytest.mark.parametrize(
    "text", ["", "20240131x", "4611686018427387904.5", "9" * 19, "-" + "9" * 19, "12", "\u0663" * 18]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a valid timestamp"):
        from_json(text, TIMESTAMP)


@pytest.mark.parametrize("value", [2_932_897, -719_163, 1 << 40, "2932897"])
def test_a_date_outside_the_calendar_is_no_cell(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a valid date"):
        from_json(value, DATE)
