"""Where in a query's text its expressions stand, casts of them, and its scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from .dialect import NyalaSql
from .edits import Edit


class Cast(NamedTuple):
    """A part of the text, from ``start`` to before ``end``, that gets another type."""

    start: int
    end: int
    kind: str


def cast_of(node: exp.Expr, kind: str) -> Cast:
    """Return the cast of an expression, which the dialect ``PlacedSql`` has read, to a type of SQL."""
    first = last = node
    while "start" not in first.meta:  # the left side of a chain, which has no place of its own
        first = first.this
    while "end" not in last.meta:
        last = last.args["expression"]
    return Cast(first.meta["start"], last.meta["end"], kind)


def edits_of(casts: Sequence[Cast]) -> list[Edit]:
    """Return the edits for casts, of which some are within others, which come before."""
    inner_first = list(casts[::-1])
    inner_first.sort(key=lambda cast: cast.end - cast.start)
    ends = [Edit(cast.end, cast.end, f" AS {cast.kind})") for cast in inner_first]
    return ends + [Edit(cast.start, cast.start, "CAST(") for cast in casts]


class PlacingParser(NyalaSql.Parser):
    """Notes where in the text of a statement parts stand: ``start`` and ``end`` in ``meta``. Subclasses say which."""

    def _placed(self, parse: Callable[..., Any], *given: Any, **named: Any) -> Any:
        first = self._curr
        node = parse(*given, **named)
        if node is not None and first:
            node.meta.update(start=first.start, end=self._prev.end + 1)
        return node


class _PlacedParser(PlacingParser):
    """Notes where operands and computations stand, and of a type after ``::`` where that does: ``operator``."""

    def _parse_term(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_term, *given, **named)

    def _parse_factor(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_factor, *given, **named)

    def _parse_unary(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_unary, *given, **named)

    def _parse_lambda(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_lambda, *given, **named)  # an argument of a function

    def _parse_function(self, *given: Any, **named: Any) -> Any:
        return self._placed(super()._parse_function, *given, **named)

    def _parse_dcolon(self) -> Any:
        at = self._prev.start
        kind = super()._parse_dcolon()
        if kind is not None:
            kind.meta["operator"] = at
        return kind


class PlacedSql(NyalaSql):
    """The dialect of queries whose expressions know where they stand."""

    Parser = _PlacedParser


def scopes_of(text: str, dialect: type[NyalaSql] = PlacedSql) -> tuple[list[Scope], dict[int, Scope]]:
    """Return the scopes of an SQL query, and each by the ``id`` of its query. There are none if the query has a mistake
    in its names: DataFusion says which."""
    try:
        scopes = traverse_scope(sqlglot.parse_one(text, dialect=dialect))
    except OptimizeError:
        return [], {}
    return scopes, {id(scope.expression): scope for scope in scopes}
