"""Columns of an answer that have one name: ``SELECT id, id`` and ``SELECT *, id``.

DataFusion refuses them. Here all but the first get a name of their own in the text, and in the answer the one that they
were given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from sqlglot import exp

from .edits import Edit, edited
from .names import lower, quoted
from .parsed_text import read_text
from .written import place_of

_UNNAMED = (exp.Cast, exp.Paren)
_REFUSALS = ("Projections require unique expression names", "which would be ambiguous", "duplicate unqualified field")


def refuses_same_names(error: BaseException) -> bool:
    """Whether DataFusion refuses an SQL query since columns of it have the same name."""
    return any(refusal in str(error) for refusal in _REFUSALS)


@dataclass
class OwnNames:
    """An SQL query in which no two columns of one SELECT have the same name."""

    text: str
    names: dict[str, str | int] = field(default_factory=dict)
    """By a name in the text: the one in the answer, or the place of the column in the answer that has it."""

    def shown(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of the answer with the names that they were given."""
        names = [_shown(name, schema.names, self.names) for name in schema.names]
        return pa.schema([each.with_name(name) for each, name in zip(schema, names, strict=True)])


def _shown(name: str, all_names: Collection[str], own: Mapping[str, str | int]) -> str:
    given = own.get(name, name)
    if isinstance(given, int):
        return list(all_names)[given]
    base, _, number = given.rpartition(":")
    return base if number.isdecimal() and base in all_names else given  # as DataFusion numbers those of a subquery


def with_own_names(text: str, columns: Collection[str], before: Mapping[str, str | int]) -> OwnNames:
    """Return an SQL query with names of their own for columns that have the name of another one; ``columns`` are those
    of its tables, which ``*`` may stand for, and ``before`` are names of their own that it has already."""
    parts = read_text(text)
    own = OwnNames(text, dict(before))
    numbers = count(1)
    names = {*columns, *(_name(each.args["alias"]) for each in parts.of(exp.Alias))}
    top: Any = parts.tree
    while isinstance(top, exp.SetOperation | exp.Subquery):
        top = top.this
    edits: list[Edit] = []
    for query in parts.of(exp.Select):
        renamed: dict[str, str] = {}
        for place, first in _repeated(query, names):
            node = query.expressions[place]
            name = _output(node)
            mark = next(each for number in numbers if (each := f"{name}#{number}") not in text)
            if name and not any(_output(each) == name for each in query.expressions[:place]):
                renamed[name] = mark
            own.names[mark] = before.get(name, name) or (
                first if query is top and not _stars(query) else node.sql(dialect="postgres")
            )
            edits += _named(node, mark)
        edits += _orders(query, renamed)
    own.text = edited(text, edits)
    return own


def _repeated(query: exp.Select, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of columns whose name is also that of another one, and the place of that one."""
    seen: dict[str, int] = {}
    stars = _stars(query)
    for place, node in enumerate(query.expressions):
        if place in stars:
            continue
        name = _output(node)
        first = seen.setdefault(name or f" {_bare(node).sql(dialect='postgres')}", place)
        if first < place or (stars and name in names):
            yield place, first


def _stars(query: exp.Select) -> list[int]:
    return [place for place, node in enumerate(query.expressions) if node.is_star]


def _named(node: exp.Expr, name: str) -> Iterator[Edit]:
    """Yield the edit that gives a column of an answer a name."""
    if isinstance(node, exp.Alias):
        alias = node.args["alias"]
        yield Edit(alias.meta["start"], alias.meta["end"] + 1, quoted(name))
    elif (place := place_of(node)) is not None:
        yield Edit(place.end, place.end, f" AS {quoted(name)}")


def _orders(query: exp.Select, renamed: Mapping[str, str]) -> Iterator[Edit]:
    """Yield the edits of names in ORDER BY that stand for columns which have a new name."""
    order = query.args.get("order")
    for each in order.expressions if order is not None else ():
        node = each.this
        if isinstance(node, exp.Column) and not node.table and (mark := renamed.get(_name(node.this))):
            yield Edit(node.this.meta["start"], node.this.meta["end"] + 1, quoted(mark))


def _output(node: exp.Expr) -> str:
    """Return the name of a column of an answer; empty if its expression gives it one."""
    if isinstance(node, exp.Alias):
        return _name(node.args["alias"])
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and len(node.this.expressions) == 1:
        return _output(node.this.expressions[0])
    bare = _bare(node)
    return _name(bare.this) if isinstance(bare, exp.Column) else ""


def _bare(node: exp.Expr) -> exp.Expr:
    """Return an expression without casts, of which names have none."""
    bare = exp.Paren(this=node.copy())
    for part in reversed(list(bare.find_all(*_UNNAMED))):  # inner ones first
        if part is not bare:
            part.replace(part.this)
    return bare.this


def _name(identifier: Any) -> str:
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if identifier.args.get("quoted") else lower(identifier.name)
