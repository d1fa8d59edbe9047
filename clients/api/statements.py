"""Statements as users give them: update and delete by condition, and restore."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

from ...schemas.cells.literal import plain_value, to_json
from ...schemas.errors import InvalidArgumentError, RowErrors
from ...schemas.protocol.command import built
from ...schemas.protocol.service import StoreService
from ...schemas.rows.statement import Statement, StatementKind
from ...schemas.rows.write import Durability, WriteResult
from .write_options import StatementHow, checked_writer, word

_EXACT_DIGITS = 38
_EXACT_BELOW = 10**_EXACT_DIGITS
"""No decimal has more digits."""


def execute(store: StoreService, table: str, kind: StatementKind, how: StatementHow, **parts: Any) -> WriteResult:
    """Execute a user's statement on a table, such as ``Table.update_where``, with the fields ``parts``.

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
    """Return the SQL expression for the new value that a user gives to ``column`` in ``Table.update_where``: strings
    are expressions, other values become literals.

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
    if isinstance(value, float):
        return _float_text(float(value))  # numpy's double is one, and writes its own name
    if isinstance(value, int):
        return str(value) if abs(value) < _EXACT_BELOW else _float_text(_as_float(value, column))
    if isinstance(value, decimal.Decimal) and value.is_finite():
        is_short = abs(value.adjusted()) < _EXACT_DIGITS and len(value.as_tuple().digits) <= 2 * _EXACT_DIGITS
        return f"{value:f}" if is_short else _float_text(_as_float(value, column))
    if isinstance(value, bytes | bytearray | memoryview):
        return f"X'{bytes(value).hex()}'"
    if (plain := plain_value(value)) is not value:
        return expression_text(plain, column)
    raise InvalidArgumentError(
        f"set column {column!r} to an SQL expression or a plain value, not to a {type(value).__name__}"
    )


def _as_float(value: int | decimal.Decimal, column: str) -> float:
    """Return a number that is beyond the decimals as a double. Raises InvalidArgumentError: it is beyond these, too."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise InvalidArgumentError(f"column {column!r} cannot be set to a number beyond 1e308")
    return number


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)"
    return repr(value) if "e" in repr(value) else f"{value!r}e0"
