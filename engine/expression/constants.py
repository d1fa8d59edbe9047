"""Literals as values, and values as literals."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...schemas.cells.exact import DIGITS_MAX
from ...schemas.cells.moment import DAY_MICROSECONDS
from ...schemas.errors import InvalidArgumentError
from .literal import moment, shown

_INT64 = range(-(1 << 63), 1 << 63)
_LITERAL_BYTES_MAX = 64 * 1024
"""Longer values are not kept as literals."""


def value_of(literal: Any) -> pa.Scalar:
    """Return a literal of an expression, as in ``tree``, as an Arrow scalar.

    Raises:
        InvalidArgumentError: it is invalid, or beyond the range of its type.
    """
    try:
        return _value_of(literal)
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error, pa.ArrowException):
        raise InvalidArgumentError(
            f"the literal {shown(literal)} is invalid, or beyond the range of its type"
        ) from None


def _value_of(literal: Any) -> pa.Scalar:
    if literal is None or isinstance(literal, bool | float):
        return pa.scalar(literal)
    if isinstance(literal, str):
        return pa.scalar(literal, pa.string())
    if isinstance(literal, int):
        return pa.scalar(literal, pa.int64()) if literal in _INT64 else _decimal(Decimal(literal))
    ((kind, content),) = literal.items()
    if kind == "decimal":
        return _decimal(Decimal(content)) if "e" not in content.lower() else pa.scalar(_finite(float(content)))
    if kind == "float":
        return pa.scalar(float(content))
    if kind == "base64":
        return pa.scalar(base64.b64decode(content, validate=True))
    if kind == "date":
        microseconds, _ = moment(literal)
        return pa.scalar(microseconds // DAY_MICROSECONDS, pa.int32()).cast(pa.date32())
    if kind == "timestamp":
        return pa.scalar(moment(literal)[0], pa.timestamp("us"))
    if kind == "time":
        return pa.scalar(content, pa.string()).cast(pa.time64("ns"))
    return pa.scalar(content, pa.duration("ns" if kind == "nanoseconds" else "us"))


def _finite(number: float) -> float:
    if number in (float("inf"), float("-inf")):
        raise OverflowError
    return number


def _decimal(number: Decimal) -> pa.Scalar:
    """Return a number with its own digits."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(number)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > DIGITS_MAX:
        raise OverflowError
    wide = pa.scalar(number, pa.decimal256(precision, scale))
    return wide.cast(pa.decimal128(precision, scale)) if precision <= 38 else wide


def literal_of(value: pa.Scalar) -> Any:
    """Return an Arrow scalar as a literal of an expression that means the same.

    Raises:
        ValueError: it is too long to be one.
    """
    kind, is_ = value.type, pa.types
    if not value.is_valid:
        return None
    if is_.is_date32(kind):
        return {"date": value.cast(pa.int32()).as_py()}
    if is_.is_timestamp(kind):
        return {"timestamp": value.cast(pa.int64()).as_py()}
    if is_.is_duration(kind):
        return {"interval": value.cast(pa.duration("us")).cast(pa.int64()).as_py()}
    if is_.is_time(kind):
        return {"time": value.cast(pa.string()).as_py()}
    if is_.is_decimal(kind):
        return {"decimal": f"{value.as_py():f}"}
    if is_.is_string(kind) or is_.is_binary(kind):
        content = value.as_buffer()
        if content.size > _LITERAL_BYTES_MAX:
            raise ValueError("too long")
        if is_.is_binary(kind):
            return {"base64": base64.b64encode(content.to_pybytes()).decode()}
    return value.as_py()
