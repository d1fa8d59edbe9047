"""Parameters of a statement that changes rows: their values take their places."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError
from ..text.written import in_place_of


def with_values(tree: exp.Expr, values: Mapping[str, pa.Scalar]) -> exp.Expr:
    """Return an SQL statement with the values of its parameters; the tree itself without any.

    Raises:
        InvalidArgumentError: a value is of a type that SQL has no word for.
    """
    if not values:
        return tree

    def valued(node: exp.Expr) -> exp.Expr:
        return in_place_of(node, _value(node, values)) if isinstance(node, exp.Parameter) else node

    return tree.copy().transform(valued)


def _value(node: exp.Parameter, values: Mapping[str, pa.Scalar]) -> exp.Expr:
    name = node.name
    scalar = values[f"p{name}" if name.isdecimal() else name]
    try:
        return _literal(scalar.as_py(), name)
    except (OverflowError, ValueError):  # it is beyond Python's calendar, or finer than Python's times
        return _moment(scalar, name)


def _moment(scalar: pa.Scalar, name: str) -> exp.Expr:
    """Return a timestamp that Python has not as its microseconds, without what is finer."""
    try:
        array = pa.array([scalar], scalar.type)
        if scalar.type == pa.timestamp("ns", scalar.type.tz):
            array = pc.floor_temporal(array, unit="microsecond")
        microseconds = array.cast(pa.timestamp("us")).cast(pa.int64())[0].as_py()
    except (pa.ArrowException, AttributeError):
        raise InvalidArgumentError(
            f"parameter {name} is a time that no column can hold: give one within 292,000 years of 1970"
        ) from None
    return exp.cast(_signed(str(microseconds)), "timestamp(6)", dialect="postgres")


def _literal(value: Any, name: str) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, float):
        if math.isfinite(value):
            return exp.cast(_signed(repr(value)), "double precision", dialect="postgres")
        return exp.cast(exp.Literal.string(repr(value)), "double precision", dialect="postgres")
    if isinstance(value, bytes):
        return exp.HexString(this=value.hex())
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, dt.datetime):
        kind = "timestamp" if value.tzinfo is None else "timestamptz"
        return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), kind, dialect="postgres")
    if isinstance(value, dt.date):
        return exp.cast(exp.Literal.string(value.isoformat()), "date", dialect="postgres")
    if isinstance(value, dt.time):
        return exp.cast(exp.Literal.string(value.isoformat()), "time", dialect="postgres")
    if isinstance(value, dt.timedelta):
        span = exp.Literal.string(f"{value // dt.timedelta(microseconds=1)} microseconds")
        return exp.cast(span, "interval", dialect="postgres")
    if isinstance(value, list):
        return exp.Array(expressions=[_literal(item, name) for item in value])
    if isinstance(value, dict):
        parts = [part for key, item in value.items() for part in (exp.Literal.string(key), _literal(item, name))]
        return exp.Anonymous(this="named_struct", expressions=parts)
    if isinstance(value, int) or hasattr(value, "as_tuple"):
        return _signed(format(value, "f") if hasattr(value, "as_tuple") else str(value))
    raise InvalidArgumentError(
        f"parameter {name} is of type {type(value).__name__}: give a number, text, bytes, a time, a span of time, a "
        "list or a dict"
    )


def _signed(text: str) -> exp.Expr:
    number = exp.Literal.number(text.removeprefix("-"))
    return exp.Neg(this=number) if text.startswith("-") else number
