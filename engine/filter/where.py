"""Parses a caller's ``where`` to a predicate."""

from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits import Limits
from ...schemas.predicate import Junction, Not, Predicate, parse_tree, walk
from .sql import parse_sql


def parse_where(where: str | dict[str, Any] | None, limits: Limits) -> Predicate | None:
    """Return the predicate of SQL text or of a filter tree in JSON; None for None, which selects every row.

    Rejects blank text instead of taking it for None: a filter lost on the way must not read everything.

    Raises:
        InvalidArgumentError: with the wrong part, or the exceeded limit.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse_sql(where, limits)
    if isinstance(where, dict):
        return parse_tree(where, limits)
    raise InvalidArgumentError(f"where must be SQL text or a filter tree, not {type(where).__name__}")


def columns_of(where: str | dict[str, Any] | None, limits: Limits) -> frozenset[str]:
    """Return the columns that a filter names, whether a table has them or not. Raises as ``parse_where``."""
    predicate = parse_where(where, limits)
    if predicate is None:
        return frozenset()
    return frozenset(node.column for node in walk(predicate) if not isinstance(node, Junction | Not))
