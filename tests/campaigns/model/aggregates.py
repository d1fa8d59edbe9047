"""What an aggregate must give, from the model's rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from .oracle import Row

Measure = tuple[str, str]
"""Column, or "*", and function."""


def functions_of(field: pa.Field) -> tuple[str, ...]:
    """Return the functions whose answer for ``field`` the model knows; wide decimals may leave their type."""
    is_decimal = pa.types.is_decimal(field.type) and field.type.precision < 38
    is_number = pa.types.is_integer(field.type) or is_decimal
    return ("count", "min", "max", "sum", "avg") if is_number else ("count", "min", "max")


def aggregated(rows: Sequence[Row], measures: Mapping[str, Measure], group_by: Sequence[str]) -> list[tuple]:
    """Return the groups' cells, then the measures: one row for each combination of cells, or one of all rows."""
    groups: dict[tuple, list[Row]] = {} if group_by else {(): []}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in group_by), []).append(row)
    return [(*group, *(_measure(found, *each) for each in measures.values())) for group, found in groups.items()]


def _measure(rows: Sequence[Row], column: str, function: str) -> Any:
    if column == "*":
        return len(rows)
    cells = [row[column] for row in rows if row[column] is not None]
    if function == "count":
        return len(cells)
    if not cells:
        return None
    if function == "avg":
        return float(sum(map(Fraction, cells)) / len(cells))
    return {"min": min, "max": max, "sum": sum}[function](cells)


def agree(found: list[tuple], expected: list[tuple]) -> bool:
    """Tell whether two answers have the same rows in some order; the last digits of means are not compared."""
    pairs = list(zip(sorted(found, key=_place), sorted(expected, key=_place), strict=False))
    return len(found) == len(expected) and all(
        _equal(one, other) for left, right in pairs for one, other in zip(left, right, strict=True)
    )


def _place(row: tuple) -> str:
    return repr([cell if not isinstance(cell, float | Decimal) else f"{cell:.9g}" for cell in row])


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other
