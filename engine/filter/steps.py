"""A filter as the steps of a kernel (`kernels.morsel_filter`), which tests columns of numbers and of codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..kernels.reads import morsel_filter as kernels
from ..vectors.memory.memory import address_of
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector
from .bound import INVERSE, And, BoundFilter, Compare, Leaf, Node, NullTest, OneOf, Op, Or, Test
from .evaluate import answers_of_values
from .lookup import FEW_CELLS

Step = tuple[int, int, int, int, int, int]

_CELLS = {
    PhysicalType.BOOL: kernels.INT8,
    PhysicalType.INT8: kernels.INT8,
    PhysicalType.INT16: kernels.INT16,
    PhysicalType.INT32: kernels.INT32,
    PhysicalType.INT64: kernels.INT64,
    PhysicalType.FLOAT32: kernels.FLOAT32,
    PhysicalType.FLOAT64: kernels.FLOAT64,
}
_NONE = 1, 0
"""Bounds that no cell is between."""


class NoStepsError(Exception):
    """A filter cannot be steps of a kernel: it has to be evaluated over vectors."""


def has_steps(bound: BoundFilter) -> bool:
    """Whether the kernel can test a filter, as far as that does not depend on its columns' pages."""
    return bound.root not in (And(()), Or(())) and _has_steps(bound.root, 1)


def _has_steps(node: Node, depth: int) -> bool:
    if isinstance(node, And | Or):
        return depth < kernels.DEPTH_MAX and all(_has_steps(part, depth + 1) for part in node.parts)
    if isinstance(node, NullTest):
        return True
    if isinstance(node, Test):
        return False
    physical = getattr(node, "physical", PhysicalType.BYTES)
    if physical is PhysicalType.BYTES:
        return True
    return physical in _CELLS and (isinstance(node, Compare) or len(node.cells) <= FEW_CELLS)  # pyright: ignore[reportAttributeAccessIssue]


class Steps:
    """The steps of a filter, and what they refer to."""

    def __init__(
        self,
        bound: BoundFilter,
        places: Mapping[int, int],
        dictionary_of: Callable[[int], BytesVector | None],
        rows: int,
    ) -> None:
        """``places`` has the number of each column of the filter among those of the kernel's call, ``dictionary_of``
        the dictionary of a column of codes, by column id; the filter `has_steps`.

        Raises NoStepsError, such as for a dictionary that is large beside ``rows``.
        """
        self._bound, self._places, self._dictionary_of, self._rows = bound, places, dictionary_of, rows
        self._held: list[np.ndarray] = []
        self._steps: list[Step] = []
        self._add_parts(bound)
        self._table = np.array(self._steps, np.int64)

    @property
    def addresses(self) -> tuple[int, int]:
        """The steps, and how many."""
        return address_of(self._table), len(self._table)

    def _add_parts(self, bound: BoundFilter) -> None:
        """Add the parts of a filter, which end with the first that leaves no row."""
        for number, part in enumerate(bound.conjuncts):
            if number:
                self._steps.append(_of_flags(kernels.CUT))
            self._add(part.root)
            if number:
                self._steps.append(_of_flags(kernels.ALL))

    def _add(self, node: Node) -> None:
        if isinstance(node, Test):
            raise NoStepsError
        if not isinstance(node, And | Or):
            self._steps.append(self._test(node))
            return
        if not node.parts:
            raise NoStepsError
        for number, part in enumerate(node.parts):
            self._add(part)
            if number:
                self._steps.append(_of_flags(kernels.ALL if isinstance(node, And) else kernels.ANY))

    def _test(self, leaf: Leaf) -> Step:
        column = self._places[leaf.column_id]
        if isinstance(leaf, NullTest):
            return kernels.UNKNOWN if leaf.is_null else kernels.KNOWN, column, 0, 0, 0, 0
        if not isinstance(leaf, Compare | OneOf) or leaf.physical is PhysicalType.BYTES:
            return self._test_codes(leaf, column)
        if isinstance(leaf, OneOf):
            return self._test_list(leaf, column)
        op, is_negated = leaf.op, leaf.op == "<>"
        if leaf.matches_nan and not is_negated:  # the negated comparison is false for a NaN, so this is true
            op, is_negated = INVERSE[op], True
        ends = _float_ends if _is_float(leaf.physical) else _integer_ends
        return kernels.BETWEEN, column, _CELLS[leaf.physical], int(is_negated), *ends(op, leaf.cell, leaf.physical)

    def _test_list(self, leaf: OneOf, column: int) -> Step:
        dtype = np.dtype(np.float64 if _is_float(leaf.physical) else np.int64)
        cells = np.array(leaf.cells, leaf.physical.dtype).astype(dtype)
        self._held.append(cells)
        listed = address_of(cells), len(cells)
        return kernels.LISTED, column, _CELLS[leaf.physical], int(leaf.negated), *listed

    def _test_codes(self, leaf: Leaf, column: int) -> Step:
        dictionary = self._dictionary_of(leaf.column_id)
        found = None if dictionary is None else answers_of_values(leaf, dictionary, self._rows, self._bound.answers)
        if found is None:
            raise NoStepsError
        matching = np.flatnonzero(found)
        low, high = (int(matching[0]), int(matching[-1])) if len(matching) else _NONE
        if len(matching) in (0, high - low + 1):
            return kernels.BETWEEN, column, kernels.INT32, 0, low, high
        self._held.append(found)
        return kernels.CODED, column, kernels.INT32, 0, address_of(found), 0


def _of_flags(what: int) -> Step:
    return what, 0, 0, 0, 0, 0


def _is_float(physical: PhysicalType) -> bool:
    return physical in (PhysicalType.FLOAT32, PhysicalType.FLOAT64)


def _integer_ends(op: Op, cell: Any, physical: PhysicalType) -> tuple[int, int]:
    """Return the least and the greatest integer for which a comparison holds; for ``<>``, does not hold."""
    bits = 8 * physical.width - 1
    least, greatest, number = -(1 << bits), (1 << bits) - 1, int(cell)
    low = {"=": number, "<>": number, ">": number + 1, ">=": number}.get(op, least)
    high = {"=": number, "<>": number, "<": number - 1, "<=": number}.get(op, greatest)
    low, high = max(low, least), min(high, greatest)
    return (low, high) if low <= high else _NONE


def _float_ends(op: Op, cell: Any, physical: PhysicalType) -> tuple[int, int]:
    """Return the same for floats, as the bits of float64."""
    number = physical.dtype.type(cell)
    infinity = physical.dtype.type(np.inf)
    if (op == "<" and number == -infinity) or (op == ">" and number == infinity):
        low, high = infinity, -infinity
    else:
        with np.errstate(all="ignore"):  # beyond the greatest number is infinity, as it should be
            above, below = np.nextafter(number, infinity), np.nextafter(number, -infinity)
        low = {"=": number, "<>": number, ">": above, ">=": number}.get(op, -infinity)
        high = {"=": number, "<>": number, "<": below, "<=": number}.get(op, infinity)
    low, high = np.array([low, high], np.float64).view(np.int64).tolist()
    return low, high
