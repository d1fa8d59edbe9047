"""The expressions of a query that have to be of one type: what is compared, chosen from or united."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .kinds import Kinds
from .text.edits import Edit
from .text.names import lower, quoted
from .text.placed import Cast, cast_of

_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_CHOSEN = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
"""Functions whose result is one of their operands, which have one type."""
_OPERANDS = ("this", "expression", "low", "high", "query")
Group = Sequence[tuple[exp.Expr, Scope]]
"""Expressions of an SQL query that have to be of one type, each with the scope that it stands in."""


def operands_of(node: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    """Yield the operands of an expression of SQL that have to be of one type."""
    if isinstance(node, exp.Case):
        branches: list[exp.Expr] = node.args["ifs"]
        if node.this is not None:
            yield [node.this, *(branch.this for branch in branches)]
        default = node.args.get("default")
        yield [*(branch.args["true"] for branch in branches), *([] if default is None else [default])]
    elif isinstance(node, (*_COMPARED, *_CHOSEN)):
        yield [operand for name in _OPERANDS if (operand := node.args.get(name)) is not None] + node.expressions


def casts_of(operand: exp.Expr, kind: str) -> Iterator[Cast]:
    """Yield the cast of an operand of SQL; of a list that a query gives, that of the query's column."""
    if not isinstance(operand, exp.Any | exp.All) and operand.arg_key != "query":
        yield cast_of(operand, kind)
        return
    query = operand.this
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if isinstance(query, exp.Select) and len(query.selects) == 1 and not query.selects[0].is_star:
        yield cast_of(query.selects[0].unalias(), kind)


def groups_of(scope: Scope, groups: Callable[[exp.Expr], Iterator[Sequence[exp.Expr]]]) -> Iterator[Group]:
    """Yield the operands of the expressions in a scope of an SQL query, as ``groups`` gives them."""
    for node in scope.walk():
        for group in groups(node):
            yield [(operand, scope) for operand in group]


def set_groups(scope: Scope) -> Iterator[Group]:
    """Yield, for each column of a set operation, the expressions that its parts have for it."""
    parts = _parts(scope)
    columns = [_selects(part) for part in parts]
    if any(each.is_star for column in columns for each in column):
        return
    for column in zip(*columns, strict=False):
        yield [(each.unalias(), part) for each, part in zip(column, parts, strict=True)]


def listed_stars(scopes: Sequence[Scope], kinds: Kinds, mixed: Sequence[int]) -> list[Edit]:
    """Return the edits that list the columns which ``*`` stands for in a part of a set operation, where a column has
    all kinds of ``mixed``."""
    edits: list[Edit] = []
    for scope in scopes:
        answers = [(part, kinds.answer(part.expression)) for part in _parts(scope)]
        columns = [[kind for _, kind in answer.columns] for _, answer in answers]
        if not any(set(mixed) <= set(column) for column in zip(*columns, strict=False)):
            continue
        for part, answer in answers:
            names = [name for name, _ in answer.columns]
            stars = [each for each in _selects(part) if each.is_star]
            if len(stars) == len(_selects(part)) == len(part.sources) == 1:
                start, end = stars[0].meta["start"], stars[0].meta["end"]
                edits.append(Edit(start, end, ", ".join(quoted(name) for name in names)))
    return edits


def named_again(casts: Sequence[Cast], groups: Sequence[Group]) -> list[Edit]:
    """Return the edits that name the columns of parts which are cast, as they were named before."""
    ends = {(cast.start, cast.end) for cast in casts}
    edits: list[Edit] = []
    for node in (node for group in groups for node, _ in group):
        if isinstance(node, exp.Column) and isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            start, end, _ = cast_of(node, "")
            if (start, end) in ends:
                name = node.name if node.this.args.get("quoted") else lower(node.name)
                edits.append(Edit(end, end, f" AS {quoted(name)}"))
    return edits


def _parts(scope: Scope) -> list[Scope]:
    """Return the parts of a set operation that is no part itself, those of its parts among them."""
    if not isinstance(scope.expression, exp.SetOperation) or scope.is_set_operation:
        return []
    return list(_below(scope))


def _selects(part: Scope) -> list[exp.Expr]:
    return part.expression.selects if isinstance(part.expression, exp.Select) else []


def _below(scope: Scope) -> Iterator[Scope]:
    for part in scope.set_operation_scopes:
        if isinstance(part.expression, exp.SetOperation):
            yield from _below(part)
        elif isinstance(part.expression, exp.Select):
            yield part
