"""The expressions of an update: parsed against a table, within limits that hold for all of them together."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.table.table import TableSchema
from ..expression import tree
from ..expression.evaluate import Expression
from ..expression.folding import folded
from ..expression.names import check_columns
from ..expression.parse import parse_text


def expressions_of(texts: Mapping[str, str], schema: TableSchema, limits: Limits, now: int) -> dict[str, Expression]:
    """Return the expressions of an update, one for each column to set; ``now`` is the moment of NOW(), in microseconds
    since 1970.

    Raises:
        InvalidArgumentError: one is invalid or names a missing column, or all together have too many parts.
    """
    expressions: dict[str, Expression] = {}
    for name, text, parsed in _parsed(texts, limits):
        check_columns(parsed, schema)
        expressions[name] = Expression(text, folded(parsed, now), tree.columns_of(parsed))
    return expressions


def columns_of(texts: Mapping[str, str], limits: Limits) -> set[str]:
    """Return the columns that the expressions of an update name, whether a table has them or not. Raises as
    ``expressions_of``."""
    return set().union(*(tree.columns_of(parsed) for _, _, parsed in _parsed(texts, limits)))


def _parsed(texts: Mapping[str, str], limits: Limits) -> list[tuple[str, str, tree.Expr]]:
    trees: list[tuple[str, str, tree.Expr]] = []
    nodes = 0
    for name, text in texts.items():
        try:
            parsed = parse_text(text, limits)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"column {name!r}: {error.message}") from None
        nodes += parsed.nodes
        if nodes > limits.predicate_nodes:
            raise InvalidArgumentError(f"the expressions of set have more than {limits.predicate_nodes:,} parts")
        trees.append((name, text, parsed.tree))
    return trees
