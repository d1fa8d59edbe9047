"""Names in ORDER BY that both a column of the answer and one of a table have; columns that a second ``*`` repeats.

In an expression such a name is that of the table's column, and alone that of the answer's. DataFusion takes it for the
answer's everywhere, and refuses ``t.a`` where the answer has another ``a``. It refuses ``SELECT *, *``. Here such a
column of the answer gets a name of its own in the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from .kinds import Kind, Kinds, columns_of, selected
from .text.edits import Edit, edited
from .text.names import name_of, quoted
from .text.placed import scopes_of
from .text.same_names import OwnNames


def has_order_names(tree: exp.Expr) -> bool:
    """Whether a query orders by a name within an expression, or one of a table, that a column of the answer has."""
    order = tree.args.get("order") if isinstance(tree, exp.Select) and not tree.args.get("distinct") else None
    if order is None:
        return False
    names = {name_of(each.args["alias"]) for each in tree.expressions if isinstance(each, exp.Alias)}
    return any(name_of(column.this) in names for column in _columns(tree) if not _is_alone(column))


def with_order_names(text: str, tables: Mapping[str, pa.Schema]) -> OwnNames:
    """Return an SQL query with names of their own for such columns of its answer. ``tables`` are those that it
    names."""
    own = OwnNames(text)
    scopes, by_query = scopes_of(text)
    if not scopes or not isinstance(scopes[-1].expression, exp.Select):
        return own
    scope = scopes[-1]
    query = scope.expression
    kinds = _names_of(tables, by_query)
    inputs = {name for alias, source in selected(scope) for name in kinds.columns(source, alias)}
    answer: dict[str, list[Any]] = {}
    for each in query.expressions:
        if isinstance(each, exp.Alias):
            answer.setdefault(name_of(each.args["alias"]), []).append(each.args["alias"])
    edits: list[Edit] = []
    for name, aliases in answer.items():
        columns = [column for column in _columns(query) if name_of(column.this) == name]
        others = [column.this for column in columns if not _is_of_table(column, query, inputs)]
        if len(aliases) == 1 and len(others) < len(columns):
            mark = next(mark for number in count(1) if (mark := f"{name}#{number}") not in text)
            own.names[mark] = name
            edits += [Edit(each.meta["start"], each.meta["end"] + 1, quoted(mark)) for each in (*aliases, *others)]
    own.text = edited(text, edits)
    return own


def with_repeated_stars(text: str, tables: Mapping[str, pa.Schema], before: Mapping[str, str | int]) -> OwnNames:
    """Return an SQL query with names of their own for columns that a second ``*`` of its answer repeats. ``tables`` are
    those that it names, and ``before`` are names of their own that it has already."""
    own = OwnNames(text, dict(before))
    scopes, by_query = scopes_of(text)
    query = scopes[-1].expression if scopes else None
    if not isinstance(query, exp.Select) or any(
        join.method or join.args.get("using") for join in query.args.get("joins") or ()
    ):
        return own
    kinds = _names_of(tables, by_query)
    edits: list[Edit] = []
    seen: set[tuple[str, str]] = set()
    for star in query.expressions:
        if not star.is_star or star.find(exp.Star).args.get("except_"):
            continue
        table = name_of(star.args["table"]) if isinstance(star, exp.Column) else None
        sources = [(alias, source) for alias, source in selected(scopes[-1]) if table in (None, alias)]
        columns = [(alias, name) for alias, source in sources for name in kinds.columns(source, alias)]
        if seen.intersection(columns):
            listed = [_again(alias, name, (alias, name) in seen, text, own) for alias, name in columns]
            edits.append(Edit(star.meta["start"], star.meta["end"], ", ".join(listed)))
        seen.update(columns)
    own.text = edited(text, edits)
    return own


def _again(table: str, name: str, is_seen: bool, text: str, own: OwnNames) -> str:
    """Return a column of a table in the list of a SELECT, with a name of its own if it is there already."""
    column = f"{quoted(table)}.{quoted(name)}"
    if not is_seen:
        return column
    mark = next(mark for number in count(1) if (mark := f"{name}#{number}") not in text and mark not in own.names)
    own.names[mark] = name
    return f"{column} AS {quoted(mark)}"


def _names_of(tables: Mapping[str, pa.Schema], scopes: Mapping[int, Scope]) -> _Names:
    return _Names({name: dict(columns_of(schema, lambda _: 0)) for name, schema in tables.items()}, scopes)


def _columns(query: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns of ORDER BY, but those of queries in it."""
    for column in query.args["order"].find_all(exp.Column):
        if isinstance(column.this, exp.Identifier) and column.find_ancestor(exp.Select) is query:
            yield column


def _is_alone(column: exp.Column) -> bool:
    return isinstance(column.parent, exp.Ordered) and not column.table


def _is_of_table(column: exp.Column, query: exp.Expr, inputs: Collection[str]) -> bool:
    """Whether a name in ORDER BY, which a column of the answer has, is that of a table's column."""
    if column.table:
        return True
    if _is_alone(column) or name_of(column.this) not in inputs:
        return False
    group = query.args.get("group")
    is_grouped = group is not None or any(each.find(exp.AggFunc) for each in query.expressions)
    return (
        not is_grouped
        or column.find_ancestor(exp.AggFunc, exp.Order) is not query.args["order"]
        or (group is not None and any(each == column for each in group.expressions))
    )


class _Names(Kinds):
    """The names of columns, of which no kinds matter."""

    BEGUN: ClassVar[int] = 0

    def _of(self, node: Any, scope: Scope) -> Kind:
        return 0

    def _of_type(self, kind: Any) -> int:
        return 0
