"""Merges of single rows: what the words of merge rules make of raw cells, as their expressions do for columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from ....schemas.cells.types import LogicalType
from ...vectors.raw_cell import RawCell
from ..formulas import Formula
from ..table_version import TableVersion

Combine = Callable[[Any, Any], RawCell]
"""Combines the raw cells of the row that is there and of the one that comes, neither NULL. Raises OverflowError: only
the batch lane can tell."""
_ORDERED = ("date", "timestamp[us]", "string", "varchar")


def combines_of(version: TableVersion, names: Collection[str]) -> dict[int, Combine] | None:
    """Return what merges the cells of rows with the columns ``names``, by column id, by the rules of the table; None if
    only the batch lane can."""
    combines: dict[int, Combine] = {}
    for number, rule in version.rules.items():
        if rule.new.issubset(names):
            if (combine := _combine(rule)) is None:
                return None
            combines[number] = combine
        elif rule.column.name in names:
            return None
    return combines


def merged(before: RawCell, cell: RawCell, combine: Combine) -> RawCell:
    """Merge two raw cells by a rule of the plan lane; a NULL leaves the other."""
    return cell if before is None else before if cell is None else combine(before, cell)


def _combine(rule: Formula) -> Combine | None:
    kind, text = rule.column.logical, rule.expression.text
    is_signed = kind.is_integer and kind.bounds[0] < 0
    if text in ("min", "max"):
        pick: Callable[[Any, Any], Any] = min if text == "min" else max
        return pick if is_signed or kind.name in _ORDERED else None
    if text == "sum" and is_signed:
        return _sum_within(kind)
    return _sum if text == "sum" and kind.name == "double" else None


def _sum_within(kind: LogicalType) -> Combine:
    least, end = kind.bounds

    def added(before: int, cell: int) -> int:
        if not least <= (result := before + cell) < end:
            raise OverflowError
        return result

    return added


def _sum(before: float, cell: float) -> float:
    if not math.isfinite(result := before + cell):
        raise OverflowError
    return result
