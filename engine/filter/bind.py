"""Binds a filter to a table: names become column ids, literals cells, and every NOT moves into the leaves.

``bound.py`` defines the tree, ``expression/narrowing.py`` the meaning of a comparison with a literal. What compares one
column with literals becomes a leaf that pages can be skipped by; what computes becomes a ``Test``, which is evaluated
on rows. A column that cannot be NULL makes IS NOT NULL true and IS NULL false.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..expression import tree
from ..expression.folding import folded
from ..expression.literal import expected, shown
from ..expression.names import check_columns
from ..expression.narrowing import CellComparison, listed_cells, narrowed
from ..expression.rows import Rows
from ..expression.tree import (
    FLIPPED,
    Among,
    Between,
    ColumnName,
    Compared,
    ComparisonOp,
    Constant,
    Expr,
    IsNull,
    Junction,
    Matches,
    Not,
)
from ..vectors.physical import PhysicalType, physical_of
from .bound import FALSE, TRUE, BoundFilter, Compare, Node, NullTest, OneOf, Test, all_of, any_of
from .like import bind_like

__all__ = ["BoundFilter", "bind"]


def bind(where: Expr | None, schema: TableSchema, now: int = 0) -> BoundFilter:
    """Return a filter over the columns of ``schema``; None selects every row. ``now`` is the moment of NOW(), in
    microseconds since 1970.

    Raises:
        InvalidArgumentError: a column does not exist, a literal is NULL or cannot be compared with its column, or an
            expression has types that do not match.
    """
    if where is None:
        return BoundFilter(TRUE)
    check_columns(where, schema)
    return BoundFilter(_Binder(schema).bind(folded(where, now), False))


class _Column:
    """A column of the table, for the leaves."""

    def __init__(self, schema: ColumnSchema) -> None:
        self.id = schema.id
        self.name = schema.name
        self.kind: LogicalType = schema.logical
        self.physical: PhysicalType = physical_of(self.kind.arrow)
        self.not_null: Node = NullTest(schema.id, is_null=False) if schema.nullable else TRUE
        self.null: Node = NullTest(schema.id, is_null=True) if schema.nullable else FALSE

    def refusal(self, value: Any) -> InvalidArgumentError:
        """Return the error for a literal that cannot be compared with the column."""
        return InvalidArgumentError(
            f"column {self.name!r} has the type {self.kind} and cannot be compared with {shown(value)}; "
            f"expected {expected(self.kind)}"
        )

    def check_not_null(self, values: Sequence[Any]) -> None:
        """Raise InvalidArgumentError if one of some literals is NULL."""
        if None in values:
            raise InvalidArgumentError(
                f"column {self.name!r} is compared with NULL, which is never true; write IS NULL or IS NOT NULL"
            )


class _Binder:
    """Binds one filter; looks every column up once."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._columns: dict[str, _Column] = {}

    def bind(self, node: Expr, negated: bool) -> Node:
        check()
        match node:
            case Not(arg=arg):
                return self.bind(arg, not negated)
            case Junction(op=op, args=args):
                parts = [self.bind(part, negated) for part in args]
                return all_of(parts) if (op == "and") != negated else any_of(parts)
            case Constant(value=bool() as value):
                return TRUE if value != negated else FALSE
            case ColumnName(name=name):
                return _comparison(self._column(name), "=", True, negated)
            case Compared(op=op, left=ColumnName(name=name), right=Constant(value=value)):
                return _comparison(self._column(name), op, value, negated)
            case Compared(op=op, left=Constant(value=value), right=ColumnName(name=name)):
                return _comparison(self._column(name), FLIPPED[op], value, negated)
            case Between(arg=ColumnName(name=name), low=Constant(value=low), high=Constant(value=high)):
                return _between(self._column(name), low, high, negated)
            case Among(arg=ColumnName(name=name), values=values, others=()):
                return _in_list(self._column(name), values, negated)
            case Matches(arg=ColumnName(name=name)):
                return _like(self._column(name), node, negated)
            case IsNull(arg=ColumnName(name=name)):
                column = self._column(name)
                return column.not_null if negated else column.null
            case _:
                return self._test(node, negated)

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            self._columns[name] = _Column(self._schema.column(name))
        return self._columns[name]

    def _test(self, node: Expr, negated: bool) -> Node:
        from ..expression.evaluate import Expression, truth  # needed by few stores
        from ..expression.written import sql_of

        names = tree.columns_of(node)
        columns = [column for column in self._schema.columns if column.name in names]
        expression = Expression(sql_of(node), node, names)
        empty = {column.name: pa.array([], column.logical.arrow) for column in columns}
        truth(expression, Rows(0, empty.__getitem__))  # finds types that do not match
        return Test(expression, tuple((column.id, column.name, column.logical.arrow) for column in columns), negated)


def _comparison(column: _Column, op: ComparisonOp, value: Any, negated: bool) -> Node:
    column.check_not_null([value])
    try:
        meaning = narrowed(op, value, column.kind, negated)
    except ValueError:
        raise column.refusal(value) from None
    if isinstance(meaning, CellComparison):
        return Compare(column.id, column.physical, meaning.op, meaning.cell, meaning.takes_nan)
    return column.not_null if meaning else FALSE


def _between(column: _Column, low: Any, high: Any, negated: bool) -> Node:
    ends = (_comparison(column, ">=", low, negated), _comparison(column, "<=", high, negated))
    return any_of(ends) if negated else all_of(ends)


def _in_list(column: _Column, values: Sequence[Any], negated: bool) -> Node:
    if not values:  # an OR without parts, which is false even for NULL; NOT IN is an AND without parts
        return TRUE if negated else FALSE
    try:
        cells = listed_cells(values, column.kind)
    except ValueError as error:
        column.check_not_null(values)
        raise column.refusal(error.args[-1]) from None
    if not cells:
        return column.not_null if negated else FALSE
    if len(cells) > 1:
        return OneOf(column.id, column.physical, tuple(cells), negated)
    takes_nan = negated and column.kind.is_floating
    return Compare(column.id, column.physical, "<>" if negated else "=", cells[0], takes_nan)


def _like(column: _Column, node: Matches, negated: bool) -> Node:
    if not column.kind.is_text:
        word = "ILIKE" if node.ignores_case else "LIKE"
        raise InvalidArgumentError(f"column {column.name!r} has the type {column.kind}; {word} needs a string column")
    leaf = bind_like(column.id, node.pattern, negated, node.ignores_case)
    return column.not_null if isinstance(leaf, NullTest) else leaf
