"""Comparisons of values: with literals, which keep their mathematical value, and with each other.

A literal is compared as in ``narrowing``: so a comparison of a column means the same in a filter that skips pages, and
inside an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import comparable_type
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from .literal import Cell, expected, shown
from .moments import halves_of_days
from .narrowing import CellComparison, listed_cells, narrowed
from .numbers import Value, alike, is_number, spread, word
from .tree import ARROW_COMPARISONS, ComparisonOp

_DIGITS_MAX = 60
"""Of decimals that are compared with literals as cells are."""


def compared(op: ComparisonOp, left: Value, right: Value) -> Value:
    """Return ``left op right`` for values of an expression, NULL where one is.

    Raises:
        InvalidArgumentError: the types cannot be compared.
    """
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return _unknown()
    return pc.call_function(ARROW_COMPARISONS[op], [*comparable(left, right)])


def compared_with(op: ComparisonOp, value: Value, literal: Any) -> Value | None:
    """Return ``value op literal`` for a value of an expression; None if its type is none that a column can have.

    Raises:
        InvalidArgumentError: the literal cannot be compared with the type.
    """
    kind = _kind_of(value.type)
    if kind is None:
        return None
    try:
        meaning = narrowed(op, literal, kind)
    except ValueError:
        raise _not_comparable(value.type, literal, kind) from None
    value = value.cast(comparable_type(value.type))
    if isinstance(meaning, CellComparison):
        return pc.call_function(ARROW_COMPARISONS[meaning.op], [value, _scalar(meaning.cell, value.type)])
    if isinstance(value, pa.Scalar):
        return pa.scalar(meaning) if value.is_valid else _unknown()
    return pc.if_else(value.is_valid(), pa.scalar(meaning), _unknown())


def cells_listed(kind: pa.DataType, literals: Sequence[Any]) -> pa.Array | None:
    """Return the values of an Arrow type that a list of literals in an expression names, for `listed`; None if no
    column can have the type.

    Raises:
        InvalidArgumentError: a literal cannot be compared with the type.
    """
    logical = _kind_of(kind)
    if logical is None:
        return None
    try:
        return _array(listed_cells(literals, logical), comparable_type(kind))
    except ValueError as error:
        raise _not_comparable(kind, error.args[-1], logical) from None


def listed(value: Value, cells: pa.Array) -> Value:
    """Return where a value of an expression is among the values of a list, of its type; NULL where it is NULL."""
    value = value.cast(comparable_type(value.type))
    if isinstance(value, pa.Scalar):
        return listed(spread(value, 1), cells)[0]  # pyright: ignore[reportReturnType]
    if pa.types.is_floating(value.type):  # Arrow takes 0.0 and -0.0 for two numbers
        numbers = pc.fill_null(value, 0.0).to_numpy(zero_copy_only=False)
        is_listed: pa.Array = pa.array(np.isin(numbers, cells.to_numpy()))
    else:
        is_listed = pc.is_in(value, value_set=cells)
    return pc.if_else(value.is_valid(), is_listed, _unknown())


def comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Return the two sides of a comparison in an expression as one type; text is parsed if the other side is a date or
    a timestamp.

    Raises:
        InvalidArgumentError: there is none.
    """
    if is_number(left.type) and is_number(right.type):
        return alike(left, right)
    if left.type == right.type and not pa.types.is_nested(left.type):
        return left, right
    if pa.types.is_time(left.type) and pa.types.is_time(right.type):
        return left.cast(pa.time64("ns")), right.cast(pa.time64("ns"))
    if pa.types.is_string(left.type) and _is_moment(right.type):
        left = left.cast(right.type)
    elif pa.types.is_string(right.type) and _is_moment(left.type):
        right = right.cast(left.type)
    elif all(_is_moment(value.type) and not pa.types.is_time(value.type) for value in (left, right)):
        return halves_of_days(left), halves_of_days(right)
    elif {pa.string(), pa.binary()} == {left.type, right.type}:
        return left.cast(pa.binary()), right.cast(pa.binary())
    if left.type == right.type and not pa.types.is_nested(left.type):
        return left, right
    raise InvalidArgumentError(
        f"{word(left.type)} and {word(right.type)} cannot be compared; use CAST(... AS ...) if that makes sense"
    )


def _unknown() -> pa.Scalar:
    return pa.scalar(None, pa.bool_())


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)


def _kind_of(kind: pa.DataType) -> LogicalType | None:
    """Return the type of the column that could have values of an Arrow type; decimals may have more digits."""
    if pa.types.is_decimal(kind):
        return LogicalType("decimal", kind.precision, kind.scale) if kind.precision <= _DIGITS_MAX else None
    return LogicalType.of(kind)


def _not_comparable(given: pa.DataType, literal: Any, kind: LogicalType) -> InvalidArgumentError:
    return InvalidArgumentError(f"{word(given)} cannot be compared with {shown(literal)}; expected {expected(kind)}")


def _scalar(cell: Cell, kind: pa.DataType) -> pa.Scalar:
    """Return a cell as a value of an Arrow type."""
    return _array([cell], kind)[0]


def _array(cells: Sequence[Cell], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        numbers = map(int, cells)
        values = [Decimal((int(each < 0), tuple(map(int, str(abs(each)))), -kind.scale)) for each in numbers]
        return pa.array(values, kind)
    if pa.types.is_date32(kind):
        return pa.array(cells, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(cells, pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array([bool(cell) for cell in cells], kind)
    if pa.types.is_string(kind):
        return pa.array(cells, pa.binary()).cast(kind)
    return pa.array(cells, kind)
