"""Binds a filter to a table: names become column ids, literals cells, and every NOT moves into the leaves.

``bound.py`` defines the tree, ``expression/narrowing.py`` the meaning of a comparison with a literal. What compares one
column with literals becomes a leaf that pages can be skipped by; what computes becomes a ``Test``, which is evaluated
on rows. A column that cannot be NULL makes IS NOT NULL true and IS NULL false.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.request import check
from ...schemas.table.table import TableSchema
from ..expression import tree
from ..expression.folding import folded
from ..expression.literal import expected, shown
from ..expression.names import check_columns
from ..expression.narrowing import CellComparison, listed_cells, narrowed
from ..expression.rows import Rows
from ..expression.tree import (
    FIELD,
    FLIPPED,
    Among,
    Between,
    Call,
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
from .bound import FALSE, TRUE, BoundFilter, Compare, Node, NullTest, OneOf, StructLeaf, Test, all_of, any_of
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
    """A column of the table, for the leaves; or the field of structs of one, to which a ``path`` leads."""

    def __init__(
        self, column_id: int, name: str, kind: LogicalType, nullable: bool, path: tuple[int, ...] = ()
    ) -> None:
        self.id = column_id
        self.name = name
        self.kind = kind
        self.path = path
        self.physical: PhysicalType = physical_of(kind.arrow)
        self.not_null: Node = NullTest(column_id, is_null=False) if nullable else TRUE
        self.null: Node = NullTest(column_id, is_null=True) if nullable else FALSE

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
            case _:
                leaf = _of_one(node, self._column, negated)
                return self._test(node, negated) if leaf is None else leaf

    def _column(self, node: Expr) -> _Column | None:
        """Return the column that an expression is."""
        if not isinstance(node, ColumnName):
            return None
        if node.name not in self._columns:
            column = self._schema.column(node.name)
            self._columns[node.name] = _Column(column.id, column.name, column.logical, column.nullable)
        return self._columns[node.name]

    def _leaf(self, node: Expr) -> _Column | None:
        """Return the field of structs of a column that an expression is, as a column."""
        names: list[str] = []
        arg = node
        while isinstance(arg, Call) and arg.name == FIELD and isinstance(arg.args[1], Constant):
            names.append(arg.args[1].value)
            arg = arg.args[0]
        column = self._column(arg) if names else None
        if column is None:
            return None
        kind, path = column.kind, column.path
        for name in reversed(names):
            fields = [field for field, _ in kind.fields] if kind.name == "struct" else []
            if name not in fields:
                return None
            path = (*path, fields.index(name))
            kind = kind.fields[path[-1]][1]
        return None if kind.is_nested else _Column(column.id, ".".join(names), kind, True, path)

    def _struct_leaf(self, node: Expr, negated: bool) -> StructLeaf | None:
        """Return what zone maps need to know of a test of one field of structs."""
        leaves: list[_Column] = []

        def find(arg: Expr) -> _Column | None:
            leaf = self._leaf(arg)
            leaves.extend([leaf] if leaf else [])
            return leaf

        try:
            condition = _of_one(node, find, negated)
        except InvalidArgumentError:  # such as a comparison with NULL, which is true of no row
            return None
        return None if condition is None else StructLeaf(leaves[0].id, leaves[0].path, condition)

    def _test(self, node: Expr, negated: bool) -> Node:
        from ..expression.evaluate import Expression, truth  # needed by few stores
        from ..expression.written import sql_of

        names = tree.columns_of(node)
        columns = [column for column in self._schema.columns if column.name in names]
        expression = Expression(sql_of(node), node, names)
        empty = {column.name: pa.array([], column.logical.arrow) for column in columns}
        truth(expression, Rows(0, empty.__getitem__))  # finds types that do not match
        return Test(
            expression,
            tuple((column.id, column.name, column.logical.arrow) for column in columns),
            negated,
            self._struct_leaf(node, negated),
        )


def _of_one(node: Expr, column_of: Callable[[Expr], _Column | None], negated: bool) -> Node | None:
    """Bind what compares one column with literals; None of any other expression."""
    match node:
        case Compared(op=op, left=arg, right=Constant(value=value)) if column := column_of(arg):
            return _comparison(column, op, value, negated)
        case Compared(op=op, left=Constant(value=value), right=arg) if column := column_of(arg):
            return _comparison(column, FLIPPED[op], value, negated)
        case Between(arg=arg, low=Constant(value=low), high=Constant(value=high)) if column := column_of(arg):
            return _between(column, low, high, negated)
        case Among(arg=arg, values=values, others=()) if column := column_of(arg):
            return _in_list(column, values, negated)
        case Matches(arg=arg) if column := column_of(arg):
            return _like(column, node, negated)
        case IsNull(arg=arg) if column := column_of(arg):
            return column.not_null if negated else column.null
    column = column_of(node)
    return _comparison(column, "=", True, negated) if column else None


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
