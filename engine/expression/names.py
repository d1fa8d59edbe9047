"""Checks the columns that an expression names."""

from __future__ import annotations

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import perhaps
from ...schemas.table.table import TableSchema
from .tree import ColumnName, Expr, walk

_NOW = {"current_timestamp": "now()", "localtimestamp": "now()", "current_date": "cast(now() as date)"}
"""The words of other databases for the moment of a statement, and the expressions for them here."""


def check_columns(tree: Expr, schema: TableSchema) -> None:
    """Raise InvalidArgumentError if an expression names a column that a table does not have."""
    for node in walk(tree):
        if isinstance(node, ColumnName) and node.name not in schema.by_name:
            names = ", ".join(list(schema.by_name)[:20])
            meant = perhaps(node.name, schema.by_name)
            if now := _NOW.get(node.name.lower()):
                raise InvalidArgumentError(
                    f"there is no column {node.name!r}; for the moment of the statement use {now}"
                )
            raise InvalidArgumentError(
                f"there is no column {node.name!r}{meant}; the columns are {names}; text needs single quotes, as in "
                f"'{node.name}'"
            )
