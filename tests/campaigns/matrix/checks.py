"""Filters for each column, with what pyarrow.compute says of the same cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.campaigns.matrix.kinds import Kind
from tests.campaigns.matrix.table import Variant

Mask = Callable[[pa.Array], pa.Array]
Check = tuple[dict[str, Any], Mask]
_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_PATTERNS = ("a%", "%\0%", "_", "%b", "a_%", "\u00e9%", "__", "%")


def checks_of(variant: Variant) -> Iterator[Check]:
    """Yield filters on a column as trees, each with the function that makes its mask of the column's cells."""
    name, kind = variant.name, variant.kind
    cells = [*kind.cells, *kind.seldom[:1]]
    for cell in cells:
        for op, compare in _COMPARE.items():
            tree = {"op": op, "column": name, "value": kind.literal(cell)}
            yield tree, _compared(compare, kind, cell)
    for low, high in ((0, -1), (1, len(cells) // 2), (-1, 0)):
        tree = {
            "op": "between",
            "column": name,
            "lower": kind.literal(cells[low]),
            "upper": kind.literal(cells[high]),
        }
        yield from _and_not(tree, _between(kind, cells[low], cells[high]))
    for chosen in (cells[:1], cells[::2], cells, []):
        for op in ("in", "not_in"):
            values = [kind.literal(cell) for cell in chosen]
            yield {"op": op, "column": name, "values": values}, _among(kind, chosen, op == "not_in")
    for op, test in (("is_null", pc.is_null), ("is_not_null", pc.is_valid)):
        yield {"op": op, "column": name}, test
    if kind.logical.is_text:
        for pattern in _PATTERNS:
            yield from _and_not({"op": "like", "column": name, "pattern": pattern}, _like(pattern))


def selected(mask: pa.Array) -> np.ndarray:
    """Return the positions of the rows that a filter selects: NULL is not true."""
    return np.flatnonzero(np.asarray(pc.fill_null(mask, False)))


def _scalar(kind: Kind, cell: Any) -> pa.Scalar:
    """Return a literal as Arrow has it; of a varchar it is not cut."""
    if kind.logical.is_text:
        return pa.scalar(cell, pa.string())
    return kind.array([cell])[0]


def _compared(compare: Callable[[pa.Array, pa.Scalar], pa.Array], kind: Kind, cell: Any) -> Mask:
    return lambda cells: compare(cells, _scalar(kind, cell))


def _between(kind: Kind, low: Any, high: Any) -> Mask:
    return lambda cells: pc.and_kleene(
        pc.greater_equal(cells, _scalar(kind, low)), pc.less_equal(cells, _scalar(kind, high))
    )


def _among(kind: Kind, chosen: list[Any], negated: bool) -> Mask:
    """One comparison after the other: pyarrow's ``is_in`` takes a NaN for itself and tells zeros apart."""

    def mask(cells: pa.Array) -> pa.Array:
        nothing = pa.array(np.zeros(len(cells), np.bool_))
        found = reduce(pc.or_kleene, (pc.equal(cells, _scalar(kind, cell)) for cell in chosen), nothing)
        return pc.invert(found) if negated else found

    return mask


def _like(pattern: str) -> Mask:
    return lambda cells: pc.match_like(cells, pattern)


def _and_not(tree: dict[str, Any], mask: Mask) -> Iterator[Check]:
    yield tree, mask
    yield {"op": "not", "arg": tree}, lambda cells: pc.invert(mask(cells))
