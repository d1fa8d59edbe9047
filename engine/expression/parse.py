"""Parses an SQL expression to sqlglot's tree, with the columns that it names.

Only expressions over the columns of one row: no subqueries, no aggregates, nothing that depends on the clock. The tree
may contain what ``evaluate`` and ``functions`` support; anything else is rejected by name before any row is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from ...schemas.errors import InvalidArgumentError
from ...schemas.table import TableSchema

TEXT_MAX = 8_192
"""Characters of an expression."""
DEPTH_MAX = 200
"""The most levels of nesting; a sum of n terms has n."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A parsed expression: its ``text``, its ``tree``, and the ``columns`` that it names."""

    text: str
    tree: exp.Expr
    columns: frozenset[str]


def parse(text: str, schema: TableSchema) -> Expression:
    """Read an expression over the columns of a table.

    Raises:
        InvalidArgumentError: it is invalid, too long or too deep, or names a missing column.
    """
    tree = _tree(text)
    named = frozenset(_column(node, schema, text) for node in tree.find_all(exp.Column))
    return Expression(text, tree, named)


def columns_of(text: str) -> frozenset[str]:
    """Return the columns that an expression names, whether a table has them or not.

    Raises:
        InvalidArgumentError: it is invalid, too long or too deep.
    """
    return frozenset(node.name for node in _tree(text).find_all(exp.Column))


def _tree(text: str) -> exp.Expr:
    if len(text) > TEXT_MAX:
        raise InvalidArgumentError(f"the expression has {len(text):,} characters; at most {TEXT_MAX:,} are allowed")
    try:
        tree = sqlglot.parse_one(text)
    except (ParseError, TokenError) as error:
        raise InvalidArgumentError(f"the expression {_short(text)} cannot be parsed: {_why(error)}") from None
    except RecursionError:
        raise _too_deep(text) from None
    if _depth(tree) > DEPTH_MAX:
        raise _too_deep(text)
    return tree


def _column(node: exp.Column, schema: TableSchema, text: str) -> str:
    if len(node.parts) > 1:
        raise InvalidArgumentError(
            f"{node.sql()!r} in {_short(text)} has a qualifier: write only the column's name, in double quotes if it "
            "has a dot"
        )
    if node.name not in schema.by_name:
        known = ", ".join(list(schema.by_name)[:20])
        raise InvalidArgumentError(
            f"there is no column {node.name!r}, in {_short(text)}; the columns are {known}. Put text in "
            f"single quotes, as in '{node.name}'"
        )
    return node.name


def _depth(tree: exp.Expr) -> int:
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in node.iter_expressions())
    return deepest


def _why(error: ParseError | TokenError) -> str:
    """Return the parser's message in one line, without its colours."""
    found = getattr(error, "errors", None)
    if not found:
        return "a quote or a comment is not closed"
    what = found[0]["description"].rstrip(".").lower()
    what = "a part is missing" if what.startswith("required keyword") else what
    return f"{what} at character {found[0]['col']}"


def _too_deep(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the expression {_short(text)} has more than {DEPTH_MAX} nested levels")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
