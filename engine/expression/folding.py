"""Computes the parts of a tree that are the same for all rows, so that ``price > 100 * 2`` compares with a literal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...schemas.protocol.request import check
from .tree import (
    Among,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    ColumnName,
    Compared,
    Constant,
    Expr,
    IsNull,
    IsTruth,
    Junction,
    Matches,
    Negative,
    Not,
    parts_of,
    walk,
)


def folded(tree: Expr, now: int) -> Expr:
    """Return the tree of an expression in which each part that is the same for all rows is a literal; ``now`` is the
    moment of NOW(), in microseconds since 1970. A part that cannot be computed stays: perhaps no row needs it."""
    check()
    match tree:
        case ColumnName() | Constant():
            return tree
        case Call() if tree.name == "NOW":
            return Constant({"timestamp": now})
        case Arithmetic():
            return _chain(tree, now)
    return _computed(_rebuilt(tree, lambda part: folded(part, now)))


def uses_now(tree: Expr) -> bool:
    """Whether an expression has NOW()."""
    return any(isinstance(node, Call) and node.name == "NOW" for node in walk(tree))


def _chain(tree: Arithmetic, now: int) -> Expr:
    """Fold ``a + b + ...`` from the left, without a level of recursion for each term."""
    chain = [tree]
    while isinstance(left := chain[-1].left, Arithmetic):
        chain.append(left)
    node = folded(chain[-1].left, now)
    for each in reversed(chain):
        node = _computed(Arithmetic(each.op, node, folded(each.right, now)))
    return node


def _computed(node: Expr) -> Expr:
    """Return a node as a literal, if all of its parts are literals and it can be computed."""
    if isinstance(node, Junction) or not all(isinstance(part, Constant) for part in parts_of(node)):
        return node
    from .constants import literal_of  # a filter of plain comparisons needs neither
    from .evaluate import constant

    value = constant(node)
    if value is None or not (value.is_valid or pa.types.is_null(value.type)):  # a literal NULL has no type
        return node
    try:
        return Constant(literal_of(value))
    except ValueError:
        return node


def _rebuilt(node: Any, of: Callable[[Expr], Expr]) -> Expr:
    """Return a node with each of its parts replaced."""
    match node:
        case Compared():
            return replace(node, left=of(node.left), right=of(node.right))
        case Between():
            return replace(node, arg=of(node.arg), low=of(node.low), high=of(node.high))
        case Among():
            others = [of(part) for part in node.others]
            literals = [part.value for part in others if isinstance(part, Constant) and part.value is not None]
            rest = tuple(part for part in others if not isinstance(part, Constant) or part.value is None)
            return Among(of(node.arg), [*node.values, *literals] if literals else node.values, rest)
        case Junction():
            return replace(node, args=[of(part) for part in node.args])
        case Call():
            return replace(node, args=tuple(map(of, node.args)))
        case Case():
            branches = tuple((of(condition), of(then)) for condition, then in node.branches)
            subject, default = (None if part is None else of(part) for part in (node.subject, node.default))
            return Case(subject, branches, default)
        case Negative() | Cast() | Matches() | IsNull() | IsTruth() | Not():
            return replace(node, arg=of(node.arg))
    raise AssertionError(f"no node of {type(node).__name__}")
