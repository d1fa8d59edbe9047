"""The assignments of SET: which columns get which expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ..text.names import name_of, shown
from ..text.written import reworded
from .literals import NO_LITERAL, is_default, literal
from .target import ChangeTarget
from .values import assigned, column_of, default_of, refuse_null


@dataclass(frozen=True)
class Assignments:
    """The assignments of an SQL statement's SET: columns, and the expression that each gets, DEFAULT among them."""

    names: list[str]
    nodes: list[exp.Expr]

    def mapped(self, change: Callable[[exp.Expr], exp.Expr]) -> Assignments:
        """Return the same columns with changed expressions."""
        return replace(self, nodes=[node if is_default(node) else change(node) for node in self.nodes])

    def selected(self, condition: exp.Expr | None = None, prefix: str = "v") -> list[exp.Expr]:
        """Return a column of a query for each assignment. Where ``condition`` does not hold, nothing is computed."""
        answer: list[exp.Expr] = []
        for at, node in enumerate(self.nodes):
            is_run = literal(node) is NO_LITERAL and not is_default(node)
            value = node.copy() if is_run else exp.null()
            if condition is not None and not isinstance(condition, exp.Boolean) and is_run:
                value = exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])
            answer.append(exp.alias_(value, f"{prefix}{at}"))
        return answer

    def columns(self, rows: pa.Table, first: int, target: ChangeTarget) -> dict[str, pa.Array]:
        """Return the new cells of the columns, from the columns of ``rows`` from ``first`` on.

        Raises:
            InvalidArgumentError: a value does not fit its column, or is NULL where the column takes none.
        """
        cells: dict[str, pa.Array] = {}
        for at, (name, node) in enumerate(zip(self.names, self.nodes, strict=True)):
            about = target.columns[name]
            if is_default(node):
                cells[name] = _repeated(default_of(about), rows.num_rows)
            elif (value := literal(node)) is not NO_LITERAL:
                cells[name] = _repeated(column_of([value], about), rows.num_rows)
            else:
                cells[name] = assigned(rows.column(first + at), about)
            refuse_null(cells[name], about, target.name)
        return cells


def _repeated(cell: pa.Array, count: int) -> pa.Array:
    return cell.take(pa.array([0] * count, pa.int64()))


def assignments_of(sets: Sequence[exp.Expr], target: ChangeTarget, alias: str, takes_key: bool = False) -> Assignments:
    """Return the assignments of SET in an SQL statement.

    Raises:
        InvalidArgumentError: a column does not exist, is set twice, or cannot be set; or a list has another length.
    """
    names: list[str] = []
    nodes: list[exp.Expr] = []
    for each in sets:
        if not isinstance(each, exp.EQ):
            raise InvalidArgumentError(f"SET takes column = value, not {shown(each)}")
        places = each.this.expressions if isinstance(each.this, exp.Tuple) else [each.this]
        names += [_column(place, alias) for place in places]
        nodes += _expressions(each, len(places))
    return Assignments(target.for_changes(names, takes_key), nodes)


def _column(place: exp.Expr, alias: str) -> str:
    if isinstance(place, exp.Paren):
        place = place.this
    if not isinstance(place, exp.Column | exp.Identifier):
        raise InvalidArgumentError(f"SET takes a column of the table, not {shown(place)}")
    if isinstance(place, exp.Column) and place.table and name_of(place.args["table"]) != alias:
        raise InvalidArgumentError(f"SET changes columns of {alias!r} only, not {shown(place)}")
    return name_of(place)


def _expressions(each: exp.EQ, count: int) -> list[exp.Expr]:
    value = each.expression
    if not isinstance(each.this, exp.Tuple):
        return [value]
    if isinstance(value, exp.Tuple | exp.Paren):
        answer = value.expressions if isinstance(value, exp.Tuple) else [value.this]
    elif isinstance(value, exp.Subquery) and isinstance(value.this, exp.Select) and not value.this.args.get("distinct"):
        answer = [_alone(value, at) for at in range(len(value.this.expressions))]
    else:
        answer = []
    if len(answer) != count:
        raise InvalidArgumentError(
            f"SET has {count} columns, but {shown(value)} does not have a value for each: write one value for each "
            "column"
        )
    return answer


def _alone(query: exp.Subquery, at: int) -> exp.Expr:
    """Return a subquery that has only one of its columns. One with aggregates stays whole: they make it one row."""
    whole = query.this.copy()
    reworded(whole)
    chosen = whole.expressions[at]
    if all((each.find(exp.AggFunc) is None) == (chosen.find(exp.AggFunc) is None) for each in whole.expressions):
        whole.set("expressions", [chosen])
        return exp.Subquery(this=whole)
    named = [exp.alias_(each.unalias(), f"c{place}") for place, each in enumerate(whole.expressions)]
    whole.set("expressions", named)
    return exp.select(exp.column(f"c{at}")).from_(whole.subquery("nyala_values")).subquery()
