"""RIGHT JOIN, written as LEFT JOIN.

DataFusion finds the columns of a filter by their names when it hands it through a join. Above ``a RIGHT JOIN b`` a
condition on ``a.x`` thus becomes one on ``b.x``, and rows are lost. Above ``b LEFT JOIN a`` it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlglot
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from .dialect import NyalaSql
from .edits import Edit, edited
from .names import lower, quoted
from .parsed_text import ParsedText
from .placed import PlacingParser

REDUCTION = "eliminate_outer_join"
"""The rule of DataFusion that makes a RIGHT JOIN of a FULL JOIN."""


def without_right_joins(text: str, parts: ParsedText) -> str:
    """Return an SQL query, whose ``parts`` these are, with LEFT JOIN for each RIGHT JOIN, and its columns in the same
    order.

    Raises:
        InvalidArgumentError: the order cannot be kept.
    """
    rights = sum(token.text.upper() == "RIGHT" for token in parts.tokens)
    for _ in range(rights):
        edits = next((_swap(text, *place) for place in _places(sqlglot.parse_one(text, dialect=JoinSql), text)), None)
        if edits is None:
            break
        text = edited(text, edits)
    return text


def _places(tree: exp.Expr, text: str) -> Iterator[tuple[exp.Join, int, bool]]:
    """Yield the right joins of a query: each with the place where its left side begins, and whether that is a join."""
    for holder in tree.walk():
        joins: list[exp.Join] = holder.args.get("joins") or []
        first = holder.args["from_"].this if holder.args.get("from_") else holder
        is_join = False
        for join in joins:
            if text[join.meta["start"]] == ",":
                first, is_join = join.this, False
            elif join.side == "RIGHT" and join.kind not in ("SEMI", "ANTI"):
                yield join, first.meta["start"], is_join
                break
            else:
                is_join = True


def _swap(text: str, join: exp.Join, start: int, is_join: bool) -> list[Edit]:
    """Return the edits that swap the sides of a right join."""
    right = join.this
    if right.args.get("joins") and not isinstance(right, exp.Subquery):
        raise InvalidArgumentError("a RIGHT JOIN to another join needs parentheses around that join")
    begin, end = right.meta["start"], right.meta["end"]
    natural = "NATURAL " if join.method else ""
    left, close = ("(", ") ") if is_join else ("", " ")
    return [
        *_columns(join),
        Edit(start, start, f"{text[begin:end]} {natural}LEFT JOIN {left}"),
        Edit(join.meta["start"], end, close),
    ]


def _columns(join: exp.Join) -> Iterator[Edit]:
    """Yield the edit that names the tables of ``SELECT *``, whose columns come in the order of the tables."""
    query = join.find_ancestor(exp.Select)
    stars = [each for each in query.expressions if isinstance(each, exp.Star)] if query is not None else []
    if query is None or not stars:
        return
    tables = list(_tables(query))
    joins = [each for each in query.find_all(exp.Join) if each.find_ancestor(exp.Select) is query]
    is_merged = any(each.method or each.args.get("using") for each in joins)
    if is_merged or not all(tables) or any(star.args.get("except_") for star in stars):
        raise InvalidArgumentError(
            "SELECT * of a RIGHT JOIN with USING or NATURAL, or of a table without a name, is not supported: "
            "name the columns, or write LEFT JOIN"
        )
    for star in stars:
        yield Edit(star.meta["start"], star.meta["end"], ", ".join(f"{quoted(name)}.*" for name in tables))


def _tables(query: exp.Select) -> Iterator[str]:
    """Yield the names of the tables of FROM, in their order."""
    waiting: list[Any] = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or [])]
    while waiting:
        table = waiting.pop(0)
        nested = [join.this for join in table.args.get("joins") or []]
        if isinstance(table, exp.Subquery) and not table.alias and not isinstance(table.this, exp.Query):
            waiting = [table.this, *nested, *waiting]
            continue
        yield _name(table)
        waiting = nested + waiting


def _name(table: Any) -> str:
    alias = table.args.get("alias")
    identifier = alias.this if alias is not None else table.this
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if identifier.args.get("quoted") else lower(identifier.name)


class _JoinParser(PlacingParser):
    """Notes where tables, joins and columns stand."""

    def _parse_table(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_table, *given, **named)

    def _parse_join(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_join, *given, **named)

    def _parse_expression(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_expression, *given, **named)


class JoinSql(NyalaSql):
    """The dialect of queries whose joins, tables and columns know where they stand."""

    Parser = _JoinParser
