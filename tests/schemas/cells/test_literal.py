"""Cell values as JSON: what goes out comes back, and what does not fit a type is refused."""

import datetime as dt
import decimal
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.schemas.cells.literal import from_json, literal_json, to_json
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError

CELLS = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "date": st.dates(),
    "timestamp[us]": st.datetimes(),
    "double": st.floats(allow_nan=False),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "string": st.text(),
    "binary": st.binary(),
}


@pytest.mark.parametrize("word", CELLS)
@given(data=st.data())
def test_a_cell_survives_json(word, data):
    cell = data.draw(st.none() | CELLS[word])
    assert from_json(json.loads(json.dumps(to_json(cell))), LogicalType.parse(word)) == cell


def test_nan_survives_json():
    assert math.isnan(from_json(json.loads(json.dumps(to_json(math.nan))), LogicalType("double")))


def test_aware_times_become_utc():
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert from_json(to_json(moment), LogicalType("timestamp[us]")) == dt.datetime(2026, 1, 31, 10)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("int8", 128), ("int8", True), ("int32", "7"), ("int64", 1.5), ("bool", 1), ("date", "soon"), ("date", True),
        ("timestamp[us]", "yesterday"), ("timestamp[us]", 1.5), ("double", "x"), ("decimal(4,2)", "123.4"),
        ("decimal(4,2)", "1.234"), ("decimal(4,2)", "NaN"), ("string", 5), ("binary", {"base64": "?"}),
        ("binary", 5), ("double", {"float": "x"}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(word, value):
    with pytest.raises(InvalidArgumentError, match="is not a valid"):
        from_json(value, LogicalType.parse(word))


def test_a_value_without_a_literal_is_refused():
    with pytest.raises(InvalidArgumentError, match="cannot be a literal"):
        to_json(decimal)


@pytest.mark.parametrize("digits", ["1E-999999", "-1E+999999", "0E+999999", "1.50"])
def test_a_literal_of_a_decimal_is_no_longer_than_its_digits(digits):
    value = decimal.Decimal(digits)
    said = literal_json(value)
    assert len(json.dumps(said)) < 40
    assert decimal.Decimal(said["decimal"]).as_tuple() == value.as_tuple()


@pytest.mark.parametrize("microseconds", [-(2**63), 2**63 - 1, -62_135_596_800_000_001, 253_402_300_800_000_000])
def test_timestamps_that_python_has_no_datetime_for_are_their_microseconds(microseconds):
    assert from_json(microseconds, LogicalType("timestamp[us]")) == microseconds
    with pytest.raises(InvalidArgumentError):
        from_json(2**63, LogicalType("timestamp[us]"))
