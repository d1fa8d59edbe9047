"""Comparisons with a literal, narrowed to the cells of a type: to a comparison with a cell, or one outcome for all.

If the literal falls in a gap between two cells, the comparison becomes one with the same result for every cell::

    int32    x > 2.5           x > 2                     x = 2.5            never
             x <> 2.5          always                    x < 10000000000    always
    date     d <= TIMESTAMP '2024-05-31 12:00:00'        d <= 2024-05-31

NULL is no cell: "always" does not include it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schemas.cells.types import LogicalType
from ...schemas.protocol.request import check
from .literal import Cell, Place, bounds, place
from .tree import ComparisonOp

INVERSE: dict[ComparisonOp, ComparisonOp] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""The negation of each comparison, for cells that are neither NULL nor NaN."""
LITERALS_AT_ONCE = 4096
"""The most literals to convert at once, so that other threads can use the interpreter."""


@dataclass(frozen=True, slots=True)
class CellComparison:
    """A comparison of an expression, narrowed to the cells of a type: those for which ``op`` holds with ``cell``; with
    ``takes_nan`` also NaN."""

    op: ComparisonOp
    cell: Cell
    takes_nan: bool = False


def narrowed(op: ComparisonOp, value: Any, kind: LogicalType, negated: bool = False) -> CellComparison | bool:
    """Return the comparison ``op`` with a literal, or its negation, for cells of ``kind``; a bool if it is the same for
    every cell.

    Raises:
        ValueError: the literal cannot be compared with the type.
    """
    where = place(value, kind)
    takes_nan = (op == "<>") != negated  # of all comparisons with a NaN only <> is true
    if where.is_nan:
        return takes_nan
    effective = INVERSE[op] if negated else op
    if not where.is_exact:
        return _in_gap(effective, where, kind, takes_nan)
    assert where.cell is not None
    constant = _at_an_end(effective, where.cell, kind)
    return CellComparison(effective, where.cell, takes_nan and kind.is_floating) if constant is None else constant


def _in_gap(op: ComparisonOp, where: Place, kind: LogicalType, takes_nan: bool) -> CellComparison | bool:
    """Compare with a literal between ``where.cell`` and the next cell."""
    if op in ("=", "<>"):
        return op == "<>"
    is_below = op in ("<", "<=")
    if where.cell is None:
        return not is_below
    ends = bounds(kind)
    if ends and where.cell == ends[1]:
        return is_below
    return CellComparison("<=" if is_below else ">", where.cell, takes_nan and kind.is_floating)


def _at_an_end(op: ComparisonOp, cell: Cell, kind: LogicalType) -> bool | None:
    """Return the result of a comparison with the least or greatest cell if it need not read cells; else None."""
    ends = bounds(kind)
    if ends is None:
        return None
    least, greatest = ends
    if (op == "<" and cell == least) or (op == ">" and cell == greatest):
        return False
    if (op == ">=" and cell == least) or (op == "<=" and cell == greatest):
        return True
    return None


def listed_cells(values: Sequence[Any], kind: LogicalType) -> list[Cell]:
    """Return the cells of ``kind`` that the literals of an IN name: ascending, distinct, none of them NaN.

    Raises:
        ValueError: one cannot be compared with the type; the second argument is that literal.
    """
    cells = _integers(values, kind) if kind.is_integer else None
    if cells is not None:
        return cells
    places: list[Place] = []
    for number, value in enumerate(values):
        if number % LITERALS_AT_ONCE == 0:
            check()
        try:
            places.append(place(value, kind))
        except ValueError as error:
            raise ValueError(str(error), value) from None
    return sorted({each.cell for each in places if each.is_exact and not each.is_nan and each.cell is not None})


def _integers(values: Sequence[Any], kind: LogicalType) -> list[Any] | None:
    """Return the cells that a list of integers names, at once; None if each literal has to be placed by itself."""
    pieces: list[np.ndarray] = []
    for first in range(0, len(values), LITERALS_AT_ONCE):
        check()
        piece = values[first : first + LITERALS_AT_ONCE]
        if {*map(type, piece)} != {int}:
            return None
        try:
            pieces.append(np.array(piece, np.int64))
        except OverflowError:
            return None
    cells = np.sort(np.concatenate(pieces))
    ends = bounds(kind)
    assert ends is not None
    is_new = np.diff(cells, prepend=cells[0] ^ 1) != 0
    return cells[is_new & (cells >= ends[0]) & (cells <= ends[1])].tolist()
