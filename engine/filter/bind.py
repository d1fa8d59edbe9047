"""Binds a predicate to a table: names become column ids, literals cells, and every NOT moves into the leaves.

``bound.py`` defines the tree, ``literal.py`` the place of a literal among the cells. If it falls in a gap, the
comparison becomes one with the same result for every cell, or a constant::

    int32    x > 2.5           x > 2                     x = 2.5            FALSE
             x <> 2.5          x IS NOT NULL             x < 10000000000    x IS NOT NULL
    date     d <= TIMESTAMP '2024-05-31 12:00:00'        d <= 2024-05-31

A column that cannot be NULL makes IS NOT NULL true and IS NULL false.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...schemas.column import ColumnSchema
from ...schemas.errors import InvalidArgumentError
from ...schemas.predicate import Between, Comparison, InList, Junction, Like, Not, Predicate
from ...schemas.request import check
from ...schemas.table import TableSchema
from ...schemas.types import LogicalType
from ..vectors.physical import PhysicalType, physical_of
from .arrow import LITERALS_AT_ONCE
from .bound import FALSE, INVERSE, TRUE, BoundFilter, Compare, Node, NullTest, OneOf, Op, all_of, any_of
from .like import bind_like
from .literal import Place, bounds, expected, place, shown

__all__ = ["BoundFilter", "bind"]

MAX_DEPTH = 100
"""Levels of AND, OR and NOT inside each other; an AND of ANDs is one level."""


def bind(predicate: Predicate | None, schema: TableSchema) -> BoundFilter:
    """Return ``predicate`` as a filter over the columns of ``schema``; None selects every row.

    Raises:
        InvalidArgumentError: a column does not exist, a literal is NULL or cannot be compared with its column, or the
            tree is too deep.
    """
    if predicate is None:
        return BoundFilter(TRUE)
    return BoundFilter(_Binder(schema).bind(predicate, False, 0))


class _Column:
    """A column of the table, for the leaves."""

    def __init__(self, schema: ColumnSchema) -> None:
        self.id = schema.id
        self.name = schema.name
        self.kind: LogicalType = schema.logical
        self.physical: PhysicalType = physical_of(self.kind.arrow)
        self.known: Node = NullTest(schema.id, is_null=False) if schema.nullable else TRUE
        self.null: Node = NullTest(schema.id, is_null=True) if schema.nullable else FALSE

    def place(self, value: Any) -> Place:
        """Return the place of a literal among the cells.

        Raises:
            InvalidArgumentError: with the column, its type and the literal.
        """
        if value is None:
            raise InvalidArgumentError(
                f"column {self.name!r} is compared with NULL, which is never true; write IS NULL or IS NOT NULL"
            )
        try:
            return place(value, self.kind)
        except ValueError:
            raise InvalidArgumentError(
                f"column {self.name!r} has the type {self.kind} and cannot be compared with {shown(value)}; "
                f"expected {expected(self.kind)}"
            ) from None


class _Binder:
    """Binds one predicate; looks every column up once."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._columns: dict[str, _Column] = {}

    def bind(self, node: Predicate, negated: bool, depth: int) -> Node:
        check()
        if depth > MAX_DEPTH:
            raise InvalidArgumentError(f"the filter is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, Not):
            return self.bind(node.arg, not negated, depth + 1)
        if isinstance(node, Junction):
            parts = (self.bind(part, negated, depth + 1) for part in _operands(node))
            return all_of(parts) if (node.op == "and") != negated else any_of(parts)
        column = self._column(node.column)
        if isinstance(node, Comparison):
            return _comparison(column, node.op, node.value, negated)
        if isinstance(node, Between):
            ends = (_comparison(column, ">=", node.lower, negated), _comparison(column, "<=", node.upper, negated))
            return any_of(ends) if negated else all_of(ends)
        if isinstance(node, InList):
            return _in_list(column, node.values, (node.op == "not_in") != negated)
        if isinstance(node, Like):
            return _like(column, node.pattern, negated)
        return column.null if (node.op == "is_null") != negated else column.known

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = _Column(self._schema.column(name))
        return self._columns[name]


def _operands(junction: Junction) -> Iterator[Predicate]:
    """Yield the operands in order, with those of nested ANDs in the place of the ANDs, at any depth."""
    waiting: list[Predicate] = list(reversed(junction.args))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Junction) and node.op == junction.op:
            waiting.extend(reversed(node.args))
        else:
            yield node


def _comparison(column: _Column, op: Op, value: Any, negated: bool) -> Node:
    where = column.place(value)
    takes_nan = (op == "<>") != negated  # of all comparisons with a NaN only <> is true
    if where.is_nan:
        return column.known if takes_nan else FALSE
    effective = INVERSE[op] if negated else op
    if not where.is_exact:
        return _gap(column, effective, where, takes_nan)
    assert where.cell is not None
    if (constant := _at_an_end(column, effective, where)) is not None:
        return constant
    return Compare(column.id, column.physical, effective, where.cell, takes_nan and column.kind.is_floating)


def _gap(column: _Column, op: Op, where: Place, takes_nan: bool) -> Node:
    """Compare with a literal between ``where.cell`` and the next cell."""
    if op in ("=", "<>"):
        return FALSE if op == "=" else column.known
    is_below = op in ("<", "<=")
    if where.cell is None:
        return FALSE if is_below else column.known
    ends = bounds(column.kind)
    if ends and where.cell == ends[1]:
        return column.known if is_below else FALSE
    is_float = column.kind.is_floating
    return Compare(column.id, column.physical, "<=" if is_below else ">", where.cell, takes_nan and is_float)


def _at_an_end(column: _Column, op: Op, where: Place) -> Node | None:
    """Return a comparison with the least or greatest cell as a simpler node; None if it must read the cells."""
    ends = bounds(column.kind)
    if ends is None:
        return None
    least, greatest = ends
    if (op == "<" and where.cell == least) or (op == ">" and where.cell == greatest):
        return FALSE
    if (op == ">=" and where.cell == least) or (op == "<=" and where.cell == greatest):
        return column.known
    return None


def _in_list(column: _Column, values: Sequence[Any], negated: bool) -> Node:
    if not values:  # an OR without parts, which is false even for NULL; NOT IN is an AND without parts
        return TRUE if negated else FALSE
    cells = _integers(column, values) if column.kind.is_integer else None
    if cells is None:
        places = (column.place(value) for value in values)
        cells = sorted(
            {where.cell for where in places if where.is_exact and not where.is_nan and where.cell is not None}
        )
    if not cells:
        return column.known if negated else FALSE
    if len(cells) > 1:
        return OneOf(column.id, column.physical, tuple(cells), negated)
    takes_nan = negated and column.kind.is_floating
    return Compare(column.id, column.physical, "<>" if negated else "=", cells[0], takes_nan)


def _integers(column: _Column, values: Sequence[Any]) -> list[Any] | None:
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
    ends = bounds(column.kind)
    assert ends is not None
    is_new = np.diff(cells, prepend=cells[0] ^ 1) != 0
    return cells[is_new & (cells >= ends[0]) & (cells <= ends[1])].tolist()


def _like(column: _Column, pattern: str, negated: bool) -> Node:
    if not column.kind.is_text:
        raise InvalidArgumentError(f"column {column.name!r} has the type {column.kind}; LIKE needs a string column")
    leaf = bind_like(column.id, pattern, negated)
    return column.known if isinstance(leaf, NullTest) else leaf
