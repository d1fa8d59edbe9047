"""Sums and products of integers that do not wrap around.

DataFusion adds, subtracts, multiplies and negates integers modulo 2^64. Here a query computes them as decimals of 38
digits, and casts the result to bigint, which fails beyond its range, as in PostgreSQL. So does ``sum``. The other
operators check their results themselves. Values between two operators may be larger than a bigint. What cannot be too
large, by the types of its columns, is computed as bigint.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from ...schemas.errors import InvalidArgumentError
from .integers import CHAIN, COMPUTED, FAR, HALF, ROWS, UNSIGNED, WHOLE, Integers
from .kinds import Columns, called
from .text.dialect import NyalaSql
from .text.edits import edited
from .text.placed import Cast, cast_of, edits_of, scopes_of
from .text.remembered import remembered

_CHECKED = (*COMPUTED, exp.Neg)


@remembered
def checked(text: str, tables: tuple[tuple[str, Columns], ...], parameters: frozenset[str]) -> str:
    """Return the text of a query that fails where ``text`` wraps around; ``text`` itself where it has no integers to
    add or to multiply. ``tables`` are those that it names, and ``parameters`` those that are integers.

    Raises:
        InvalidArgumentError: constants of the query are beyond the range of a bigint.
    """
    scopes, by_query = scopes_of(text)
    kinds = Integers({name: dict(columns) for name, columns in tables}, by_query, parameters=parameters)
    places = [(node, scope) for scope in scopes for node in _places(scope, kinds)]
    return edited(text, edits_of([cast for node, scope in places for cast in _casts(node, scope, kinds)]))


def _places(scope: Scope, kinds: Integers) -> Iterator[exp.Expr]:
    """Yield the computations and sums of integers of a scope, outer ones first."""
    for node in scope.walk():
        if isinstance(node, exp.Sum) and kinds.bits(node, scope):
            yield node
        elif isinstance(node, _CHECKED) and not _is_constant(node) and kinds.bits(node, scope):
            above = _above(node)
            if not (isinstance(above, _CHECKED) and kinds.bits(above, scope)):
                yield node


def _above(node: exp.Expr) -> exp.Expr | None:
    """Return what an expression is an operand of, but for parentheses."""
    above = node.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    return above


def _is_constant(node: exp.Expr) -> bool:
    """Whether a computation has only literals. Raises InvalidArgumentError: its value is beyond a bigint."""
    value = _value(node)
    if value is not None and not -FAR <= value < FAR and node.find(*COMPUTED):
        raise InvalidArgumentError(
            f"{node.sql(dialect=NyalaSql)} is out of the range of bigint: cast an operand to numeric"
        )
    return value is not None


def _value(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Literal):
        return int(node.this) if node.is_int else None
    if isinstance(node, exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Neg):
        value = _value(node.this)
        return None if value is None else -value
    if not isinstance(node, COMPUTED):
        return None
    left, right = _value(node.this), _value(node.expression)
    if left is None or right is None:
        return None
    return left + right if isinstance(node, exp.Add) else left - right if isinstance(node, exp.Sub) else left * right


def _casts(node: exp.Expr, scope: Scope, kinds: Integers) -> Iterator[Cast]:
    """Yield the casts that check a computation or a sum, which are none if it cannot be too large."""
    if isinstance(node, exp.Sum):
        values = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        if kinds.bits(values, scope) + ROWS <= WHOLE:
            return
        if not _is_wide(values, scope, kinds):
            yield cast_of(values, "DECIMAL(38, 0)")
        while isinstance(node.parent, exp.Filter | exp.Window) and node.arg_key == "this":
            node = node.parent
        yield cast_of(node, "BIGINT")
        return
    is_wide = _is_wide(node, scope, kinds)
    for leaf in _leaves(node):
        is_narrow = (
            kinds.bits(leaf, scope) <= HALF or called(leaf.this if isinstance(leaf, exp.Window) else leaf) in UNSIGNED
        )
        if not isinstance(leaf, exp.Literal) and (is_wide or is_narrow):
            yield cast_of(leaf, "DECIMAL(20, 0)" if is_wide else "BIGINT")
    user = node.parent.parent if isinstance(node.parent, exp.Distinct) else node.parent
    if is_wide and not isinstance(user, exp.Sum):
        yield cast_of(node, "BIGINT")


def _is_wide(node: exp.Expr, scope: Scope, kinds: Integers) -> bool:
    """Whether an expression is a computation whose value may be beyond a bigint."""
    return isinstance(node, _CHECKED) and kinds.computed(node, scope) > WHOLE


def _leaves(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the operands of a computation."""
    for child in (node.this, node.args.get("expression")):
        if isinstance(child, CHAIN):
            yield from _leaves(child)
        elif child is not None:
            yield child
