"""Statements whose trees keep their words: expressions print as they were written.

sqlglot prints a tree in PostgreSQL's words. DataFusion has others for some of them, as the patterns of ``to_char``, and
it runs the text of a plain query as it stands. So the parser here notes where in the text an expression stands, and
the generator copies that text. Parts that were put in the place of others are printed within it. Whoever changes a
query's clauses calls ``reworded``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from .dialect import NyalaParser, NyalaSql
from .edits import Edit, edited

_PLACE, _TAKEN = "place", "taken"


class TextPlace(NamedTuple):
    """Where an SQL expression was written: from ``start`` to before ``end`` of a text."""

    text: str
    start: int
    end: int


def place_of(node: exp.Expr) -> TextPlace | None:
    """Return where an expression of SQL was written; None: nobody knows, or it was changed."""
    place: TextPlace | None = node.meta_get(_PLACE)
    if place is None and isinstance(node, exp.Paren):
        return place_of(node.this)  # the parser adds parentheses
    if place is None and isinstance(node, exp.Column):
        first, last = node.parts[0].meta_get("start"), node.parts[-1].meta_get("end")
        return None if first is None or last is None else TextPlace("", first, last + 1)
    return place


def in_place_of(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    """Return ``new``, which is to print where ``old`` was written in an SQL statement."""
    place = place_of(old)
    if place is None:
        reworded(old)
    else:
        new.meta[_TAKEN] = place
    return new


def reworded(node: exp.Expr | None) -> None:
    """Note that a part of an SQL statement, and so all around it, has other words than those written."""
    while node is not None:
        node.meta.pop(_PLACE, None)
        node = node.parent


class WrittenParser(NyalaParser):
    """Notes where expressions, queries, tables and parameters stand."""

    def _parse_disjunction(self) -> Any:
        return self._placed(super()._parse_disjunction)

    def _parse_bitwise(self) -> Any:
        return self._placed(super()._parse_bitwise)

    def _parse_is_rhs(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_is_rhs, *given, **named)

    def _parse_function(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_function, *given, **named)

    def _parse_table_parts(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_table_parts, *given, **named)

    def _parse_version(self) -> Any:
        return self._placed(super()._parse_version)

    def _parse_parameter(self) -> Any:
        first = self._prev
        return self._from(first, super()._parse_parameter())

    def _parse_select(self, *given: Any, **named: Any) -> Any:
        first = self._curr
        node = super()._parse_select(*given, **named)
        return self._from(first, node) if isinstance(node, exp.Select | exp.SetOperation) else node

    def _parse_set_operations(self, this: Any) -> Any:
        node = super()._parse_set_operations(this)
        if node is not this and isinstance(node, exp.SetOperation):
            first = place_of(this)
            for operand in node.find_all(exp.Query):  # their ORDER BY may have become that of all
                operand.meta.pop(_PLACE, None)
            self._grown(node, first)
        return node

    def _parse_query_modifiers(self, this: Any) -> Any:
        node = super()._parse_query_modifiers(this)
        if isinstance(node, exp.Query) and not isinstance(node, exp.Table):
            self._grown(node, place_of(node))
        return node

    def _grown(self, node: exp.Expr, place: TextPlace | None) -> None:
        if place is not None:
            node.meta[_PLACE] = TextPlace(self.sql, place.start, self._prev.end + 1)

    def _placed(self, parse: Callable[..., Any], *given: Any, **named: Any) -> Any:
        first = self._curr
        return self._from(first, parse(*given, **named))

    def _from(self, first: Any, node: Any) -> Any:
        """Note that ``node`` begins with the token ``first``, and ends with the last token that was read."""
        if node is not None:
            node.meta[_PLACE] = TextPlace(self.sql, first.start, self._prev.end + 1)
        return node


class _WrittenGenerator(Postgres.Generator):
    """Prints what has a place as it was written."""

    def sql(self, expression: Any, key: str | None = None, comment: bool = True) -> str:
        """Return a part of an SQL statement as text."""
        if key is None and isinstance(expression, exp.Expr):
            place = expression.meta_get(_PLACE)
            if place is not None and not isinstance(expression, exp.Table):
                return self._written(expression, place)
        return super().sql(expression, key, comment)

    def _written(self, node: exp.Expr, place: TextPlace) -> str:
        edits: list[Edit] = []
        for part in _put_in(node):
            _, start, end = part.meta[_TAKEN]
            text = f"({self.sql(part)})" if isinstance(part, exp.Neg) else self.sql(part)
            edits.append(Edit(start - place.start, end - place.start, text))
        return edited(place.text[place.start : place.end], edits)

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        """Return a cast as text. A time is a literal, which may be compared with times of all units."""
        value = expression.this
        if isinstance(value, exp.Literal) and value.is_string and expression.to.this == exp.DType.TIME:
            return f"TIME {self.sql(value)}"
        return super().cast_sql(expression, safe_prefix)


def _put_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of an expression that stand in the place of others."""
    for part in node.dfs(prune=lambda part: part.meta_get(_TAKEN) is not None):
        if part.meta_get(_TAKEN) is not None:
            yield part


class WrittenSql(NyalaSql):
    """The dialect of SQL statements whose trees keep their words."""

    Parser = WrittenParser
    Generator = _WrittenGenerator
