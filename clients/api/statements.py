"""Statements as users give them: update and delete by condition, and restore."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

from ...schemas.command import built
from ...schemas.errors import InvalidArgumentError, RowErrors
from ...schemas.literal import to_json
from ...schemas.service import StoreService
from ...schemas.statement import Statement, StatementKind
from ...schemas.write import Durability, WriteResult
from .write_options import StatementHow, checked_writer, word


def execute(store: StoreService, table: str, kind: StatementKind, how: StatementHow, **parts: Any) -> WriteResult:
    """Execute a statement with the fields ``parts``.

    Raises:
        TypeError: ``how`` has an unknown option; nothing was applied.
        RowErrors: a row was rejected; nothing was applied.
        StoreError: nothing was applied.
    """
    if unknown := how.keys() - StatementHow.__annotations__:
        raise TypeError(
            f"got an unexpected keyword argument {min(unknown)!r}: a statement takes its condition as `where`, and "
            f"the options {', '.join(StatementHow.__annotations__)}"
        )
    durability, writer, seq = how.get("durability"), how.get("writer"), how.get("seq")
    statement = built(
        Statement,
        "the statement",
        table=table,
        kind=kind,
        durability=None if durability is None else word(Durability, durability, "durability"),
        writer=checked_writer(writer, seq),
        seq=seq,
        **parts,
    )
    result = store.execute(statement.checked())
    if result.error_count:
        raise RowErrors(result)
    return result


def expression_text(value: Any, column: str) -> str:
    """Return the SQL expression for a new value of ``column``: strings are expressions, other values become literals.

    Raises:
        InvalidArgumentError: no column can have this value.
    """
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{to_json(value)}'"
    if isinstance(value, dt.date):
        return f"DATE '{to_json(value)}'"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value!r}e0" if "e" not in repr(value) else repr(value)
    if isinstance(value, int | decimal.Decimal) and math.isfinite(value):
        return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
    if item := getattr(value, "item", None):  # a numpy scalar
        return expression_text(item(), column)
    raise InvalidArgumentError(
        f"set column {column!r} to an SQL expression or a plain value, not to a {type(value).__name__}"
    )
