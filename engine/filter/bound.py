"""A filter bound to a table: column ids instead of names, physical cells instead of literals, and no NOT.

SQL's logic has three values: a comparison with NULL is unknown, NOT unknown is unknown, and a row is selected only
where the whole is true. ``bind`` pushes every NOT down to the leaves (De Morgan's laws hold in three values), where it
turns the comparison round. What is left is AND and OR over leaves, and those are monotone: a row where AND is true
has all parts true, a row where OR is true has one. So "false" and "unknown" never need to be told apart again: every
leaf says in which rows it is TRUE, AND is the intersection, OR the union, and one mask a node is enough.

Leaves select no NULL, save ``NullTest``. Floats compare as IEEE 754 says: NaN equals nothing and is neither below nor
above anything, -0.0 equals 0.0. So ``x < 5`` is false, not unknown, for a NaN, and NOT (x < 5) is TRUE for it, although
``x >= 5`` is not: ``matches_nan`` on a leaf says whether it takes the NaNs beside the numbers that it names.

Cells are Python values of the physical type: int (a bool is 0 or 1, a decimal its unscaled integer), float, or bytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from ..expression.literal import Cell
from ..expression.narrowing import INVERSE
from ..expression.pattern import Matcher
from ..expression.tree import ComparisonOp
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector
from .lookup import Lookup, make_lookup

if TYPE_CHECKING:
    from ..expression.evaluate import Expression

__all__ = ["INVERSE", "Op"]

Op: TypeAlias = ComparisonOp


@dataclass(frozen=True, slots=True)
class Compare:
    """In a bound filter: cells for which ``op`` holds with ``cell``; with ``matches_nan`` also NaN cells.

    ``matches_nan`` of ``<>`` on a float column is always true, of ``=`` always false.
    """

    column_id: int
    physical: PhysicalType
    op: Op
    cell: Cell
    matches_nan: bool = False


@dataclass(frozen=True)
class OneOf:
    """In a bound filter: cells that are among ``cells``: at least two, ascending, distinct, none of them NaN.

    ``negated``: cells, NaNs included, that are not among them.
    """

    column_id: int
    physical: PhysicalType
    cells: tuple[Cell, ...]
    negated: bool = False

    @cached_property
    def lookup(self) -> Lookup:
        """The cells in the form that is searched fastest, made once for all pages."""
        return make_lookup(self.cells, self.physical)


@dataclass(frozen=True, slots=True)
class LikeMatch:
    """In a bound filter: strings that ``matcher`` finds; all of them begin with ``prefix``. ``negated``: the other
    strings."""

    column_id: int
    matcher: Matcher
    prefix: bytes
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NullTest:
    """In a bound filter: rows where the cell is NULL, or where it is not."""

    column_id: int
    is_null: bool


@dataclass(frozen=True, slots=True)
class StructLeaf:
    """What a `Test` in a bound filter compares, if that is a field of a struct column, at any depth of structs."""

    column_id: int
    path: tuple[int, ...]
    """The numbers of the fields from the column down."""
    condition: "Node"
    """True of the same rows as the test, if the field were the column of that id: for zone maps."""


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """In a bound filter: rows for which an expression is true; ``negated``: those for which it is false.

    Zone maps say nothing about it unless it has a ``leaf``, and no kernel knows it. It is evaluated only on rows that
    are alive and that nothing else has ruled out, so that ``b <> 0 AND a / b > 3`` divides by no zero.
    """

    expression: "Expression"
    columns: tuple[tuple[int, str, pa.DataType], ...]
    """The id, name and Arrow type of each column that it reads."""
    negated: bool = False
    leaf: StructLeaf | None = None


@dataclass(frozen=True, slots=True)
class And:
    """In a bound filter: rows where every part is true; without parts, every row."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """In a bound filter: rows where one part is true; without parts, no row."""

    parts: tuple["Node", ...]


Leaf = Compare | OneOf | LikeMatch | NullTest
"""What looks at one column."""
Node = Leaf | Test | And | Or

TRUE = And(())
FALSE = Or(())


@dataclass(frozen=True)
class BoundFilter:
    """A filter as a scan uses it; immutable and thread safe."""

    root: Node

    @cached_property
    def column_ids(self) -> list[int]:
        """The ids of the columns that the filter reads, each once, those of the cheapest leaves first."""
        return list(dict.fromkeys(column_id for leaf in leaves(self.root) for column_id in _ids(leaf)))

    @cached_property
    def has_test(self) -> bool:
        """Whether a part of it has to be evaluated as an expression."""
        return has_test(self.root)

    @cached_property
    def struct_leaves(self) -> tuple[StructLeaf, ...]:
        """The fields of structs that its tests compare."""
        tests = (leaf for leaf in leaves(self.root) if isinstance(leaf, Test)) if self.has_test else ()
        return tuple(test.leaf for test in tests if test.leaf)

    @cached_property
    def conjuncts(self) -> tuple["BoundFilter", ...]:
        """Filters that are all true where this one is, cheapest first; comparisons of the same numbers are one."""
        parts = self.root.parts if isinstance(self.root, And) else (self.root,)
        if len(parts) == 1:
            return (self,)
        alike: dict[object, list[Node]] = {}
        for part in parts:
            alike.setdefault(part.column_id if _compares_numbers(part) else id(part), []).append(part)
        return tuple(BoundFilter(some[0] if len(some) == 1 else And(tuple(some))) for some in alike.values())

    @cached_property
    def answers(self) -> dict[tuple[int, int], tuple[BytesVector, np.ndarray]]:
        """The result of a leaf for each value of a dictionary, by the identities of both, which are kept alive."""
        return {}

    @property
    def is_trivially_true(self) -> bool:
        """Whether every row is selected, whatever its cells."""
        return self.root == TRUE

    @property
    def is_trivially_false(self) -> bool:
        """Whether no row can be selected, whatever its cells."""
        return self.root == FALSE


def all_of(parts: Iterable[Node]) -> Node:
    """Return the AND of ``parts`` of a bound filter: flat, without constants, the cheapest parts first."""
    flat: list[Node] = []
    for part in parts:
        if part == FALSE:
            return FALSE
        flat.extend(part.parts if isinstance(part, And) else (part,))
    return flat[0] if len(flat) == 1 else And(tuple(sorted(flat, key=_cost)))


def any_of(parts: Iterable[Node]) -> Node:
    """Return the OR of ``parts`` of a bound filter: flat, without constants, the cheapest parts first."""
    flat: list[Node] = []
    for part in parts:
        if part == TRUE:
            return TRUE
        flat.extend(part.parts if isinstance(part, Or) else (part,))
    return flat[0] if len(flat) == 1 else Or(tuple(sorted(flat, key=_cost)))


def has_test(node: Node) -> bool:
    """Whether a node of a bound filter is, or ends with, a `Test`: the costliest part of an AND or OR comes last."""
    while isinstance(node, And | Or) and node.parts:
        node = node.parts[-1]
    return isinstance(node, Test)


def leaves(node: Node) -> Iterator[Leaf | Test]:
    """Yield the leaves of a bound filter from left to right."""
    if isinstance(node, And | Or):
        for part in node.parts:
            yield from leaves(part)
    else:
        yield node


def _ids(leaf: Leaf | Test) -> list[int]:
    if isinstance(leaf, Test):
        return [column_id for column_id, _, _ in leaf.columns]
    return [leaf.column_id]


def _compares_numbers(node: Node) -> TypeGuard[Compare]:
    return isinstance(node, Compare) and node.physical is not PhysicalType.BYTES


def _cost(node: Node) -> int:
    """Return a rank: cheap and selective nodes come first, so that an AND is often decided early."""
    if isinstance(node, And | Or):
        return max((_cost(part) for part in node.parts), default=0)
    if isinstance(node, NullTest):
        return 0
    if isinstance(node, Test):
        return 10
    if isinstance(node, LikeMatch):
        return 8
    on_bytes = 4 if node.physical is PhysicalType.BYTES else 0
    if isinstance(node, OneOf):
        return on_bytes + 2
    return on_bytes + (1 if node.op == "=" else 3)
