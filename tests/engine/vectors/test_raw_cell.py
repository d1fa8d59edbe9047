"""Raw cells of Python values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from nyala.engine.vectors import raw_cell
from nyala.schemas.cells.types import LogicalType


def test_decimals_beyond_all_types_are_left_alone_before_they_become_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = raw_cell.raw_value(LogicalType.parse("decimal(38,2)"))
    assert convert(Decimal("12.34")) == 1234
    assert convert(Decimal(f"{'9' * 36}.99")) == 10**38 - 1
    assert convert(Decimal("1E+36")) is None
    # An integer of a million digits takes tens of seconds to make.
    monkeypatch.setattr(raw_cell, "int", _never_long, raising=False)
    assert convert(Decimal("1E+900000")) is None


@pytest.mark.parametrize("digits", [f"1.{'0' * 80}1", f"{'0' * 9}1.{'0' * 80}1", "1E-999999999", "-1E-1000077"])
def test_decimals_with_more_digits_than_can_be_told_apart_are_not_rounded(digits: str) -> None:
    assert raw_cell.raw_value(LogicalType.parse("decimal(9,2)"))(Decimal(digits)) is None


def _never_long(value: Decimal) -> int:
    raise AssertionError("made an integer")
