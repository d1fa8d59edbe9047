"""Literals of statements as Python values, without running a query."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ..text.microseconds import with_six_digits
from ..text.names import shown

NO_LITERAL = object()
"""What ``literal`` returns for an expression that must be run."""
DIGITS_MAX = 38
"""Of a decimal column."""
_DATES = (exp.DType.DATE,)
_TIMESTAMPS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.DATETIME)


def literal(node: exp.Expr) -> Any:
    """Return the value of a literal in an SQL statement: None, a bool, int, Decimal, float, str, bytes, date or
    datetime.

    Anything else is ``NO_LITERAL``."""
    if isinstance(node, exp.Paren):
        return literal(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.HexString):
        return bytes.fromhex(node.this)
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else _number(node.this)
    if isinstance(node, exp.Neg):
        value = literal(node.this)
        if isinstance(value, decimal.Decimal):
            return value.copy_negate()  # a minus would round it to the 28 digits of Python's context
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else NO_LITERAL
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _moment(node)
    return NO_LITERAL


def constant(node: exp.Expr, what: str) -> Any:
    """Return the value of a literal in an SQL statement. Raises InvalidArgumentError: ``what`` is something else."""
    value = literal(node)
    if value is NO_LITERAL:
        raise InvalidArgumentError(f"{what} must be a literal, such as 1 or 'text', not {shown(node)}")
    return value


def is_default(node: exp.Expr) -> bool:
    """Return whether an expression of an SQL statement is the word DEFAULT."""
    if isinstance(node, exp.Var):
        return node.name.upper() == "DEFAULT"
    is_plain = isinstance(node, exp.Column) and not node.args.get("table") and isinstance(node.this, exp.Identifier)
    return is_plain and not node.this.args.get("quoted") and node.this.this.upper() == "DEFAULT"


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else _decimal_or_double(text)
    except (ValueError, decimal.InvalidOperation):
        return NO_LITERAL


def _decimal_or_double(text: str) -> decimal.Decimal | float:
    """Return a number with a point or an exponent; a double, if its power of ten is beyond those of decimals."""
    number = decimal.Decimal(text)
    is_near = not number or -DIGITS_MAX <= number.adjusted() < DIGITS_MAX
    return number if is_near or "e" not in text.lower() or math.isinf(float(text)) else float(text)


def _moment(node: exp.Cast) -> Any:
    """Return the value of DATE '...' and TIMESTAMP '...'."""
    kind, text = node.to.this, node.this.this.strip()
    try:
        if kind in _DATES and len(text) == 10:
            return dt.date.fromisoformat(text)
        if kind in _TIMESTAMPS and not node.to.expressions:
            return dt.datetime.fromisoformat(with_six_digits(text))
    except ValueError:
        pass
    return NO_LITERAL
