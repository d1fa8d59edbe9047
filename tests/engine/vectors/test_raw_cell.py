"""Raw cells of Python values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from nyala.engine.vectors import raw_cell
from nyala.schemas.types import LogicalType


def test_decimals_beyond_all_types_are_left_alone_before_they_become_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = raw_cell.raw_value(LogicalType.parse("decimal(38,2)"))
    assert convert(Decimal("12.34")) == 1234
    assert convert(Decimal(f"{'9' * 36}.99")) == 10**38 - 1
    assert convert(Decimal("1E+36")) is None
    # An integer of a million digits takes tens of seconds to make.
    monkeypatch.setattr(raw_cell, "int", _never_long, raising=False)
    assert convert(Decimal("1E+900000")) is None


def _never_long(value: Decimal) -> int:
    raise AssertionError("made an integer")
