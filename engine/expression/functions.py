"""The functions of an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from .numbers import Value, is_number, rounded, word
from .sizes import check_filled, check_joined, check_replaced

Of = Callable[[Any], Value]
"""Evaluates an argument."""

NAMES = (
    "COALESCE, NULLIF, ABS, ROUND, CEIL, FLOOR, GREATEST, LEAST, UPPER, LOWER, TRIM, LTRIM, RTRIM, SUBSTR, LEFT, "
    "RIGHT, LENGTH, CONCAT, REPLACE, CAST, YEAR, MONTH, DAY and EXTRACT"
)


def _text(value: Value, what: str) -> Value:
    if not (pa.types.is_string(value.type) or pa.types.is_null(value.type)):
        raise InvalidArgumentError(f"{what} takes text, not {word(value.type)}; CAST(... AS TEXT) converts")
    return value.cast(pa.string())


def _number(value: Value, what: str) -> Value:
    if pa.types.is_null(value.type):
        return value.cast(pa.int64())
    if not is_number(value.type):
        raise InvalidArgumentError(f"{what} takes a number, not {word(value.type)}")
    return value.cast(pa.int64()) if pa.types.is_integer(value.type) else value


def _whole(node: Any, what: str) -> int:
    """Return an argument that is a whole number and the same for all rows."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not (isinstance(literal, exp.Literal) and not literal.is_string and literal.this.isdigit()):
        raise InvalidArgumentError(f"{what} takes an integer there, not {node.sql()!r}")
    return -int(literal.this) if negative else int(literal.this)


def _joined(parts: list[Value]) -> Value:
    texts = [_text(part, "||") for part in parts]
    check_joined(texts)
    return pc.binary_join_element_wise(*texts, "")


def _trim(node: Any, of: Of) -> Value:
    position = (node.args.get("position") or "BOTH").upper()
    suffix = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    text = _text(of(node.this), "TRIM")
    if characters := node.args.get("expression"):
        if not (isinstance(characters, exp.Literal) and characters.is_string):
            raise InvalidArgumentError("TRIM takes the characters in quotes")
        return getattr(pc, f"utf8_{suffix}")(text, characters=characters.this)
    return getattr(pc, f"utf8_{suffix}")(text, characters=" ")


def _substring(node: Any, of: Of) -> Value:
    """Characters are counted from 1; positions before the first or after the last are empty."""
    start, length = _whole(node.args["start"], "SUBSTR"), node.args.get("length")
    text = _text(of(node.this), "SUBSTR")
    if length is None:
        return pc.utf8_slice_codeunits(text, max(start - 1, 0))
    end = start - 1 + _whole(length, "SUBSTR")
    return pc.utf8_slice_codeunits(text, max(start - 1, 0), max(end, max(start - 1, 0)))


def _left(node: Any, of: Of) -> Value:
    return pc.utf8_slice_codeunits(_text(of(node.this), "LEFT"), 0, max(_whole(node.expression, "LEFT"), 0))


def _right(node: Any, of: Of) -> Value:
    count = _whole(node.expression, "RIGHT")
    text = _text(of(node.this), "RIGHT")
    return pc.utf8_slice_codeunits(text, -count) if count > 0 else pc.utf8_slice_codeunits(text, 0, 0)


def _replace(node: Any, of: Of) -> Value:
    pair = [node.expression, node.args.get("replacement")]
    if not all(isinstance(each, exp.Literal) and each.is_string for each in pair):
        raise InvalidArgumentError("REPLACE takes what to replace, and what by, in quotes")
    if not pair[0].this:
        return _text(of(node.this), "REPLACE")
    text, old, new = _text(of(node.this), "REPLACE"), pair[0].this, pair[1].this
    check_replaced(text, old, new)
    return pc.replace_substring(text, pattern=old, replacement=new)


def _coalesce(node: Any, of: Of) -> Value:
    from .evaluate import common  # it needs these functions

    values = common([of(node.this), *map(of, node.expressions)])
    check_filled(values)
    return pc.coalesce(*values)


def _nullif(node: Any, of: Of) -> Value:
    value = of(node.this)
    same = of(exp.EQ(this=node.this, expression=node.expression))
    check_joined([same, value])
    return pc.if_else(pc.fill_null(same, False), pa.scalar(None, value.type), value)


def _extreme(function: str) -> Callable[[Any, Of], Value]:
    def found(node: Any, of: Of) -> Value:
        from .evaluate import common

        values = common([of(node.this), *map(of, node.expressions)])
        check_joined(values)
        return getattr(pc, function)(*values, skip_nulls=True)

    return found


def _absolute(node: Any, of: Of) -> Value:
    value = _number(of(node.this), "ABS")
    return pc.abs_checked(value) if not pa.types.is_decimal(value.type) else pc.abs(value)


def _round(node: Any, of: Of) -> Value:
    digits = node.args.get("decimals")
    return rounded(_number(of(node.this), "ROUND"), _whole(digits, "ROUND") if digits else 0)


def _toward(function: str) -> Callable[[Any, Of], Value]:
    def found(node: Any, of: Of) -> Value:
        value = _number(of(node.this), function.upper())
        return value if pa.types.is_integer(value.type) else getattr(pc, function)(value)

    return found


def _part(value: Value, part: str) -> Value:
    if part not in ("year", "month", "day", "hour", "minute", "second"):
        raise InvalidArgumentError(f"a date has no {part}; EXTRACT takes YEAR, MONTH, DAY, HOUR, MINUTE or SECOND")
    if not pa.types.is_temporal(value.type):
        raise InvalidArgumentError(f"{part.upper()} takes a date or a timestamp, not {word(value.type)}")
    return getattr(pc, part)(value.cast(pa.timestamp("us"))).cast(pa.int64())


def _length(node: Any, of: Of) -> Value:
    value = of(node.this)
    if pa.types.is_binary(value.type):
        return pc.binary_length(value).cast(pa.int64())
    return pc.utf8_length(_text(value, "LENGTH")).cast(pa.int64())


FUNCTIONS: dict[type, Callable[[Any, Of], Value]] = {
    exp.DPipe: lambda node, of: _joined([of(node.this), of(node.expression)]),
    exp.Concat: lambda node, of: _joined([of(each) for each in node.expressions]),
    exp.Upper: lambda node, of: pc.utf8_upper(_text(of(node.this), "UPPER")),
    exp.Lower: lambda node, of: pc.utf8_lower(_text(of(node.this), "LOWER")),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Right: _right,
    exp.Length: _length,
    exp.Replace: _replace,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _extreme("max_element_wise"),
    exp.Least: _extreme("min_element_wise"),
    exp.Abs: _absolute,
    exp.Round: _round,
    exp.Ceil: _toward("ceil"),
    exp.Floor: _toward("floor"),
    exp.Year: lambda node, of: _part(of(node.this), "year"),
    exp.Month: lambda node, of: _part(of(node.this), "month"),
    exp.Day: lambda node, of: _part(of(node.this), "day"),
    exp.Extract: lambda node, of: _part(of(node.expression), node.this.name.lower()),
}
"""The implementation of each function, by sqlglot's class."""
