"""Whether two engines gave the same answer."""

from decimal import Decimal
from math import isclose
from typing import Any

Rows = list[tuple[Any, ...]]


def is_same(found: Rows, expected: Rows) -> bool:
    """Whether rows are the same but for the last places after the point, of which each engine keeps its own number."""
    return len(found) == len(expected) and all(
        _is_near(cell, other)
        for row, others in zip(found, expected, strict=True)
        for cell, other in zip(row, others, strict=True)
    )


def _is_near(cell: Any, other: Any) -> bool:
    if not isinstance(cell, int | float | Decimal) or other is None:
        return cell == other
    return isclose(cell, other, rel_tol=1e-4, abs_tol=1e-6)
