"""Reads a caller's ``where`` as a tree of ``expression.tree``."""

from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows import predicate as wire
from ...schemas.rows.predicate import parse_tree
from ..expression import tree
from ..expression.building import DEPTH_MAX
from ..expression.parse import parse_filter
from ..expression.tree import ColumnName, Constant, Expr, Junction, Not


def parse_where(where: str | dict[str, Any] | None, limits: Limits) -> Expr | None:
    """Return the tree of a filter that is SQL text or JSON; None for None, which selects every row.

    Rejects blank text instead of taking it for None: a filter lost on the way must not read everything.

    Raises:
        InvalidArgumentError: with the wrong part, or the exceeded limit.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse_filter(where, limits)
    if isinstance(where, dict):
        return expr_of(parse_tree(where, limits), limits)
    raise InvalidArgumentError(f"where must be SQL text or a filter tree, not {type(where).__name__}")


def columns_of(where: str | dict[str, Any] | None, limits: Limits) -> frozenset[str]:
    """Return the columns that a filter names, whether a table has them or not. Raises as ``parse_where``."""
    parsed = parse_where(where, limits)
    return frozenset() if parsed is None else tree.columns_of(parsed)


def expr_of(node: wire.Predicate, limits: Limits, depth: int = 1) -> Expr:
    """Return the tree of a filter in its form on the wire, ``depth`` levels below the whole. Raises as
    ``parse_where``."""
    if depth > DEPTH_MAX:
        raise InvalidArgumentError(f"the filter is nested more than {DEPTH_MAX} levels deep")
    if isinstance(node, wire.Not):
        return Not(expr_of(node.arg, limits, depth + 1))
    if isinstance(node, wire.Junction):
        return Junction(node.op, [expr_of(part, limits, depth + 1) for part in wire.operands(node)])
    if isinstance(node, wire.Condition):
        return parse_filter(node.text, limits)
    column = ColumnName(node.column)
    if isinstance(node, wire.Comparison):
        return tree.Compared(node.op, column, Constant(node.value))
    if isinstance(node, wire.Between):
        return tree.Between(column, Constant(node.lower), Constant(node.upper))
    if isinstance(node, wire.InList):
        listed = tree.Among(column, node.values)
        return Not(listed) if node.op == "not_in" else listed
    if isinstance(node, wire.Like):
        return tree.Matches(column, node.pattern)
    test = tree.IsNull(column)
    return Not(test) if node.op == "is_not_null" else test
