"""Lists of IN that are queries, where DataFusion forgets NULL.

It joins with the list by a mark, or by an anti join, which knows two outcomes. IN has three. That matters below NOT, in
CASE, and for a list that refers to the query around it. There this module writes ``x <> ALL (...)`` for ``x NOT IN
(...)``, and ``x = ANY (...)`` for ``x IN (...)``. They mean the same, take more time, and have all three. In a result
DataFusion refuses such lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from .dialect import NyalaSql
from .edits import Edit, edited

_JUNCTIONS = (exp.And, exp.Or, exp.Not, exp.Paren)


def exact_lists(text: str, tables: Mapping[str, pa.Schema]) -> str:
    """Return an SQL query that keeps to NULL in its lists of IN. ``tables`` are those that it names, with what may be
    NULL."""
    tree = sqlglot.parse_one(text, dialect=_ListSql)
    tokens = list(sqlglot.tokenize(text, read="postgres"))
    places = {token.start: place for place, token in enumerate(tokens)}
    never_null = _never_null(tree, tables)
    edits: list[Edit] = []
    for node in tree.find_all(exp.In):
        query = node.args.get("query")
        if query is None or _is_exact(node, query.this, tables) or _has_no_null(node, query.this, never_null):
            continue
        edits += _edit(tokens, places[node.meta["at"]])
    return edited(text, edits) if edits else text


def _edit(tokens: list[Token], place: int) -> Iterator[Edit]:
    before, at = tokens[place - 1], tokens[place]
    is_not = before.token_type is TokenType.NOT
    yield Edit((before if is_not else at).start, at.end + 1, "<> ALL" if is_not else "= ANY")


def _is_exact(node: exp.Expr, query: exp.Expr, tables: Mapping[str, pa.Schema]) -> bool:
    """Whether DataFusion's joins have the outcomes that matter: true, and all others."""
    nots, is_alone, above = 0, True, node.parent
    while isinstance(above, _JUNCTIONS):
        nots += isinstance(above, exp.Not)
        is_alone &= not isinstance(above, exp.Or) and not (isinstance(above, exp.Not) and above.this is not node)
        above = above.parent
    if not isinstance(above, exp.Where | exp.Having | exp.Join):
        return False
    return nots % 2 == 0 or (nots == 1 and is_alone and not _refers_outside(query, tables))


def _refers_outside(query: exp.Expr, tables: Mapping[str, pa.Schema]) -> bool:
    """Whether a list refers, or may refer, to the query around it."""
    inner = list(query.find_all(exp.Table))
    names = {node.alias_or_name.lower() for node in (*inner, *query.find_all(exp.Subquery))}
    columns = {name.lower() for node in inner for name in tables.get(node.name, pa.schema([])).names}
    for column in query.find_all(exp.Column):
        if column.table.lower() not in names if column.table else column.name.lower() not in columns:
            return True
    return False


def _never_null(tree: exp.Expr, tables: Mapping[str, pa.Schema]) -> set[str]:
    """Return the names that mean a column that is never NULL, whichever table it is of."""
    if any(join.side for join in tree.find_all(exp.Join)):
        return set()
    nullable = {field.name.lower() for schema in tables.values() for field in schema if field.nullable}
    given = {node.alias.lower() for node in tree.find_all(exp.Alias)}
    given |= {column.name.lower() for node in tree.find_all(exp.TableAlias) for column in node.columns}
    return {field.name.lower() for schema in tables.values() for field in schema} - nullable - given


def _has_no_null(node: exp.Expr, query: exp.Expr, never_null: set[str]) -> bool:
    """Whether neither the operand nor the list has NULL."""
    cells = [node.this, *(query.selects if isinstance(query, exp.Select) else [None])]
    return all(isinstance(cell, exp.Column) and cell.name.lower() in never_null for cell in cells)


class _ListParser(NyalaSql.Parser):
    """Notes where IN stands: ``at`` in ``meta``."""

    def _parse_in(self, *given: Any, **named: Any) -> Any:
        at = self._prev.start
        node = super()._parse_in(*given, **named)
        node.meta["at"] = at
        return node


class _ListSql(NyalaSql):
    Parser = _ListParser
