"""The functions of an expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from . import moments
from .numbers import (
    Value,
    as_decimal,
    as_kind,
    check_finite,
    holds_somewhere,
    is_number,
    number_kind,
    roomy,
    rounded,
    word,
)
from .sizes import check_filled, check_joined, check_replaced
from .tree import ComparisonOp, Constant, Expr


class Evaluator(Protocol):
    """Evaluates the arguments of a function in an expression."""

    def value(self, node: Expr) -> Value:
        """Return a node's value."""
        ...

    def compare(self, op: ComparisonOp, value: Value, node: Expr) -> Value:
        """Return ``value op node``."""
        ...


Function = Callable[[Evaluator, Sequence[Expr]], Value]


def _text(value: Value, what: str) -> Value:
    if not (pa.types.is_string(value.type) or pa.types.is_null(value.type)):
        raise InvalidArgumentError(f"{what} takes text, not {word(value.type)}; CAST(... AS TEXT) converts")
    return value.cast(pa.string())


def _number(value: Value, what: str) -> Value:
    if pa.types.is_null(value.type):
        return value.cast(pa.int64())
    if not is_number(value.type):
        raise InvalidArgumentError(f"{what} takes a number, not {word(value.type)}")
    kind = number_kind([value.type])
    return value if kind is None else as_kind(value, kind)


def _whole(node: Expr, what: str) -> int:
    """Return an argument that is a whole number and the same for all rows."""
    value = node.value if isinstance(node, Constant) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgumentError(f"this argument of {what} must be a whole number, the same for all rows")
    return max(min(value, 1 << 31), -(1 << 31))


def _letters(node: Expr, what: str) -> str:
    """Return an argument that is text and the same for all rows."""
    if not isinstance(node, Constant) or not isinstance(node.value, str):
        raise InvalidArgumentError(f"this argument of {what} must be text in quotes, the same for all rows")
    return node.value


def joined(values: Sequence[Value]) -> Value:
    """Return the texts that ``||`` joins in an expression, one after the other; NULL if one of them is."""
    texts = [_text(value, "||") for value in values]
    check_joined(texts)
    return pc.binary_join_element_wise(*texts, "")


def common(values: Sequence[Value]) -> list[Value]:
    """Return values of an expression as one common type.

    Raises:
        InvalidArgumentError: they have none.
    """
    kinds = [value.type for value in values if not pa.types.is_null(value.type)]
    if not kinds or all(kind == kinds[0] for kind in kinds):
        return [value.cast(kinds[0]) for value in values] if kinds else list(values)
    if all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds):
        return [value.cast(pa.timestamp("us")) for value in values]
    if not all(map(is_number, kinds)):
        raise InvalidArgumentError(
            f"the values are of several types: {', '.join(sorted({word(kind) for kind in kinds}))}"
        )
    kind = number_kind(kinds)
    if kind is None:
        decimals = [as_decimal(value).type for value in values if not pa.types.is_null(value.type)]
        scale = max(each.scale for each in decimals)
        whole = max(each.precision - each.scale for each in decimals)
        kind = pa.decimal256(min(whole + scale, 76), scale)
    return [as_kind(value, kind) for value in values]


def _common_of(of: Evaluator, args: Sequence[Expr]) -> list[Value]:
    return common([of.value(each) for each in args])


def _trimmed(side: str) -> Function:
    def trim(of: Evaluator, args: Sequence[Expr]) -> Value:
        characters = _letters(args[1], "TRIM") if len(args) > 1 else " "
        text = _text(of.value(args[0]), "TRIM")
        return getattr(pc, f"utf8_{side}")(text, characters=characters) if characters else text

    return trim


def _substring(of: Evaluator, args: Sequence[Expr]) -> Value:
    """Characters are counted from 1; positions before the first or after the last are empty."""
    first = _whole(args[1], "SUBSTR") - 1
    text = _text(of.value(args[0]), "SUBSTR")
    if len(args) == 2:
        return pc.utf8_slice_codeunits(text, max(first, 0))
    length = _whole(args[2], "SUBSTR")
    if length < 0:
        raise InvalidArgumentError("SUBSTR takes a length that is not negative")
    return pc.utf8_slice_codeunits(text, max(first, 0), max(first + length, 0))


def _left(of: Evaluator, args: Sequence[Expr]) -> Value:
    """A negative count leaves out so many characters at the end."""
    return pc.utf8_slice_codeunits(_text(of.value(args[0]), "LEFT"), 0, _whole(args[1], "LEFT"))


def _right(of: Evaluator, args: Sequence[Expr]) -> Value:
    """A negative count leaves out so many characters at the beginning."""
    count, text = _whole(args[1], "RIGHT"), _text(of.value(args[0]), "RIGHT")
    return pc.utf8_slice_codeunits(text, -count) if count else pc.utf8_slice_codeunits(text, 0, 0)


def _replace(of: Evaluator, args: Sequence[Expr]) -> Value:
    old, new = _letters(args[1], "REPLACE"), _letters(args[2], "REPLACE")
    text = _text(of.value(args[0]), "REPLACE")
    if not old:
        return text
    check_replaced(text, old, new)
    return pc.replace_substring(text, pattern=old, replacement=new)


def _coalesce(of: Evaluator, args: Sequence[Expr]) -> Value:
    values = _common_of(of, args)
    check_filled(values)
    return pc.coalesce(*values)


def _nullif(of: Evaluator, args: Sequence[Expr]) -> Value:
    value = of.value(args[0])
    same = of.compare("=", value, args[1])
    check_joined([same, value])
    return pc.if_else(pc.fill_null(same, False), pa.scalar(None, value.type), value)


def _extreme(function: str) -> Function:
    def extreme(of: Evaluator, args: Sequence[Expr]) -> Value:
        values = _common_of(of, args)
        check_joined(values)
        value = getattr(pc, function)(*values, skip_nulls=True)
        return _greatest_nan(function, value, values) if pa.types.is_floating(value.type) else value

    return extreme


def _greatest_nan(function: str, value: Value, values: Sequence[Value]) -> Value:
    """Let NaN be the greatest number, as in an order; Arrow ignores it."""
    if function != "max_element_wise":
        return value
    for each in values:
        is_nan = pc.fill_null(pc.is_nan(each), False)
        if holds_somewhere(is_nan):
            value = pc.if_else(is_nan, pa.scalar(float("nan"), value.type), value)
    return value


def _absolute(of: Evaluator, args: Sequence[Expr]) -> Value:
    value = _number(of.value(args[0]), "ABS")
    return pc.abs_checked(value) if not pa.types.is_decimal(value.type) else pc.abs(value)


def _round(of: Evaluator, args: Sequence[Expr]) -> Value:
    value = _number(of.value(args[0]), "ROUND")
    digits = _whole(args[1], "ROUND") if len(args) > 1 else 0
    if pa.types.is_floating(value.type):
        digits = max(min(digits, 350), -350)
        if digits > 300 or digits < -308:
            return value if digits > 0 else pc.multiply(value, 0.0)
    result = rounded(value, digits)
    if pa.types.is_floating(value.type):
        check_finite(result, value)
    return result


def _toward(function: str) -> Function:
    def toward(of: Evaluator, args: Sequence[Expr]) -> Value:
        value = _number(of.value(args[0]), function.upper())
        return value if pa.types.is_integer(value.type) else getattr(pc, function)(roomy(value))

    return toward


def _part(name: str) -> Function:
    def part(of: Evaluator, args: Sequence[Expr]) -> Value:
        value = of.value(args[0])
        if pa.types.is_null(value.type):
            return value.cast(pa.int64())
        if not (pa.types.is_date(value.type) or pa.types.is_timestamp(value.type)):
            raise InvalidArgumentError(f"{name.upper()} takes a date or a timestamp, not {word(value.type)}")
        return moments.part(value, name)

    return part


def _length(of: Evaluator, args: Sequence[Expr]) -> Value:
    value = of.value(args[0])
    if pa.types.is_binary(value.type):
        return pc.binary_length(value).cast(pa.int64())
    return pc.utf8_length(_text(value, "LENGTH")).cast(pa.int64())


FUNCTIONS: dict[str, Function] = {
    "ABS": _absolute,
    "CEIL": _toward("ceil"),
    "COALESCE": _coalesce,
    "CONCAT": lambda of, args: joined([of.value(each) for each in args]),
    "DAY": _part("day"),
    "FLOOR": _toward("floor"),
    "GREATEST": _extreme("max_element_wise"),
    "HOUR": _part("hour"),
    "LEAST": _extreme("min_element_wise"),
    "LEFT": _left,
    "LENGTH": _length,
    "LOWER": lambda of, args: pc.utf8_lower(_text(of.value(args[0]), "LOWER")),
    "LTRIM": _trimmed("ltrim"),
    "MINUTE": _part("minute"),
    "MONTH": _part("month"),
    "NULLIF": _nullif,
    "REPLACE": _replace,
    "RIGHT": _right,
    "ROUND": _round,
    "RTRIM": _trimmed("rtrim"),
    "SECOND": _part("second"),
    "SUBSTR": _substring,
    "TRIM": _trimmed("trim"),
    "UPPER": lambda of, args: pc.utf8_upper(_text(of.value(args[0]), "UPPER")),
    "YEAR": _part("year"),
}
"""The implementation of each function of ``signatures``, but for those that are other nodes of the tree."""
