"""Casts of decimals, beside Python's own."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nyala.engine.table.casts import cast
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.table.column import ColumnSchema

_EXACT = Context(prec=160)
_DIGITS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}


@st.composite
def given_decimals(draw: st.DrawFn) -> tuple[pa.DataType, list[int]]:
    """A type, and unscaled cells of it."""
    make = draw(st.sampled_from(list(_DIGITS)))
    precision = draw(st.integers(1, _DIGITS[make]))
    most = 10**precision - 1
    cells = draw(st.lists(st.integers(-most, most), min_size=1, max_size=4))
    return make(precision, draw(st.integers(0, _DIGITS[make]))), cells


def array_of(kind: pa.DataType, cells: list[int]) -> pa.Array:
    data = b"".join(cell.to_bytes(kind.byte_width, "little", signed=True) for cell in cells)
    return pa.Array.from_buffers(kind, len(cells), [None, pa.py_buffer(data)])


def column_of(precision: int, scale: int) -> ColumnSchema:
    kind = f"decimal({precision},{scale})"
    return ColumnSchema(id=1, name="c", type=kind, nullable=True, encoding="auto", compression="none")


@given(given_decimals(), st.integers(1, 38), st.data())
@example((pa.decimal128(38, 0), [12345]), 38, None)
def test_decimals_keep_their_values_or_are_misfits(
    sent: tuple[pa.DataType, list[int]], precision: int, data: st.DataObject | None
) -> None:
    scale = 36 if data is None else data.draw(st.integers(0, precision))
    column = column_of(precision, scale)
    kind, cells = sent
    got, misfits = cast(array_of(kind, cells), column)
    for place, cell in enumerate(cells):
        value = Decimal(cell).scaleb(-kind.scale, _EXACT)
        unscaled = value.scaleb(scale, _EXACT)
        fits = unscaled == unscaled.to_integral_value(context=_EXACT) and abs(unscaled) < 10**precision
        assert fits == (misfits is None or not misfits[place])
        assert got[place].as_py() == (value if fits else None)


@pytest.mark.parametrize("scale", [93, 39, -90])
def test_a_decimal_type_of_a_wild_scale_is_refused(scale: int) -> None:
    with pytest.raises(InvalidArgumentError, match="column 'c' is"):
        cast(array_of(pa.decimal128(10, scale), [1]), column_of(10, 2))
