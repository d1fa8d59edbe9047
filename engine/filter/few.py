"""The few primary keys that a filter selects, when it is about nothing else: equality, lists and short ranges."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ...schemas.table.table import TableSchema
from ..expression.literal import Cell
from ..vectors.keys.keys import KeyEncoder, KeyVector
from .bound import And, BoundFilter, Compare, Node, OneOf
from .points import keys_of_cells

FEW = 256
"""The most keys: the rows of so many are read in less time than a scan takes to begin."""
_PARTS_MAX = 16
"""The most comparisons of a column, since each is tried with each key."""

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def few_keys(bound: BoundFilter, schema: TableSchema, encoder: KeyEncoder) -> KeyVector | None:
    """Return the encoded keys, ascending, of which exactly those in the table are the rows that the filter selects;
    None if there are none, more than ``FEW``, or if the filter reads other columns."""
    parts = bound.root.parts if isinstance(bound.root, And) else (bound.root,)
    known: dict[int, list[Compare | OneOf]] = {column.id: [] for column in schema.key}
    for part in parts:
        if not isinstance(part, Compare | OneOf) or part.column_id not in known:
            return None
        known[part.column_id].append(part)
    listed = [_cells(known[column.id]) for column in schema.key]
    if not 0 < math.prod(map(len, listed)) <= FEW:
        return None
    physicals = [known[column.id][0].physical for column in schema.key]
    return keys_of_cells(list(zip(physicals, listed, strict=True)), encoder)


def _cells(parts: Sequence[Compare | OneOf]) -> tuple[Cell, ...]:
    """Return the cells, ascending, for which all parts hold; none if they may be many."""
    if len(parts) > _PARTS_MAX or any(isinstance(part, OneOf) and len(part.cells) > FEW for part in parts):
        return ()
    lists = [cells for part in parts if (cells := _listed(part)) is not None] or [_range(parts)]
    return tuple(cell for cell in min(lists, key=len) if all(_holds(part, cell) for part in parts))


def _listed(part: Compare | OneOf) -> tuple[Cell, ...] | None:
    if isinstance(part, OneOf):
        return None if part.negated else part.cells
    return (part.cell,) if part.op == "=" else None


def _range(parts: Sequence[Compare | OneOf]) -> tuple[Cell, ...]:
    """Return the integers of a range with two ends, if they are few."""
    ends = [part for part in parts if isinstance(part, Compare) and isinstance(part.cell, int)]
    lowest = [part.cell for part in ends if part.op in (">", ">=")]
    highest = [part.cell for part in ends if part.op in ("<", "<=")]
    if not lowest or not highest:
        return ()
    first, last = int(max(lowest)), int(min(highest))
    return tuple(range(first, last + 1)) if last - first < 2 * FEW else ()


def _holds(part: Node, cell: Cell) -> bool:
    if isinstance(part, OneOf):
        return (cell in part.cells) != part.negated
    assert isinstance(part, Compare), "no other part is about a key alone"
    return _HOLDS[part.op](cell, part.cell)
