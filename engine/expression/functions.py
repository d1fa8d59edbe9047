"""The functions of an expression.

A part of a nested value that is not there is NULL: a field of a NULL, an item past the end, a key that a map lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.json_text import path_of, values_at
from ...schemas.errors import InvalidArgumentError
from . import moments
from .constants import value_of
from .numbers import (
    Value,
    as_decimal,
    as_kind,
    check_finite,
    holds_somewhere,
    is_list,
    is_number,
    number_kind,
    roomy,
    rounded,
    spread,
    word,
)
from .sizes import check_filled, check_joined, check_replaced, rows_of
from .tree import FIELD, ITEM, JSON, JSON_TEXT, ComparisonOp, Constant, Expr


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
        raise InvalidArgumentError(f"this argument of {what} must be a constant whole number")
    return max(min(value, 1 << 31), -(1 << 31))


def _letters(node: Expr, what: str) -> str:
    """Return an argument that is text and the same for all rows."""
    if not isinstance(node, Constant) or not isinstance(node.value, str):
        raise InvalidArgumentError(f"this argument of {what} must be a constant text in quotes")
    return node.value


def joined(values: Sequence[Value]) -> Value:
    """Return the texts or lists that ``||`` joins in an expression, one after the other; NULL if one of them is."""
    if any(is_list(value.type) for value in values):
        return _joined_lists(values)
    texts = [_text(value, "||") for value in values]
    check_joined(texts)
    return pc.binary_join_element_wise(*texts, "")


def _joined_lists(values: Sequence[Value]) -> Value:
    kinds = {value.type for value in values if not pa.types.is_null(value.type)}
    if len(kinds) > 1 or any(pa.types.is_fixed_size_list(kind) for kind in kinds):
        raise InvalidArgumentError(f"|| joins lists of one type, not {' and '.join(sorted(map(word, kinds)))}")
    count, (kind,) = rows_of(values), kinds
    check_joined(values)
    lists = [spread(value.cast(kind), count) for value in values]
    lengths = np.stack([_lengths(each) for each in lists])
    # All items of all lists, and for each result those of its lists.
    items = pa.concat_arrays([pc.list_flatten(each) for each in lists])
    firsts = (np.cumsum(lengths, axis=None) - lengths.ravel()).reshape(lengths.shape)
    is_null = np.logical_or.reduce([pc.is_null(each).to_numpy(zero_copy_only=False) for each in lists])
    runs = np.where(is_null, 0, lengths).T.ravel()
    places = np.arange(int(runs.sum())) + np.repeat(firsts.T.ravel() - (np.cumsum(runs) - runs), runs)
    ends = np.concatenate([[0], np.cumsum(runs.reshape(count, len(lists)).sum(axis=1))])
    offsets = pa.array(ends, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    array = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    joined_lists = array.from_arrays(offsets, items.take(pa.array(places)), type=kind, mask=pa.array(is_null))
    return joined_lists[0] if all(isinstance(value, pa.Scalar) for value in values) else joined_lists


def common(values: Sequence[Value]) -> list[Value]:
    """Return values of an expression as one common type.

    Raises:
        InvalidArgumentError: they have none.
    """
    values = [value.cast(pa.float32()) if pa.types.is_float16(value.type) else value for value in values]
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
        raise InvalidArgumentError(f"the length in SUBSTR is {length}: it must not be negative")
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
    if (items := _items_of(value)) is not None:
        return items
    if pa.types.is_binary(value.type):
        return pc.binary_length(value).cast(pa.int64())
    return pc.utf8_length(_text(value, "LENGTH")).cast(pa.int64())


def _field(of: Evaluator, args: Sequence[Expr]) -> Value:
    """Return ``struct.name``."""
    value, name = of.value(args[0]), _literal(args[1])
    kind = value.type
    if pa.types.is_null(kind):
        return value
    names = [kind.field(i).name for i in range(kind.num_fields)] if pa.types.is_struct(kind) else None
    if names is None:
        raise InvalidArgumentError(f"{word(kind)} has no fields, so it has no field {name!r}")
    if name not in names:
        raise InvalidArgumentError(f"the struct has no field {name!r}; its fields are {', '.join(names)}")
    return pc.struct_field(_cells(value), [names.index(name)])


def _item(of: Evaluator, args: Sequence[Expr]) -> Value:
    """Return ``list[number]``, counted from 0, or from the end if it is negative; or ``map[key]``, of a key that is
    there twice the last value."""
    value, place = of.value(args[0]), _literal(args[1])
    if pa.types.is_null(value.type):
        return value
    if pa.types.is_map(value.type):
        return _value_at(value, place)
    if not is_list(value.type):
        raise InvalidArgumentError(f"{word(value.type)} has no items")
    if not isinstance(place, int) or isinstance(place, bool):
        raise InvalidArgumentError("the place of an item must be a whole number, counted from 0")
    return _item_at(_lists(value), place)


def _item_at(lists: pa.Array, place: int) -> pa.Array:
    lengths = _lengths(lists)
    items = pc.list_flatten(lists)
    place = max(min(place, 1 << 62), -(1 << 62))
    at = np.full(len(lists), place, np.int64) if place >= 0 else lengths + place
    is_there = (at >= 0) & (at < lengths)
    firsts = np.cumsum(lengths) - lengths
    return items.take(pa.array(np.where(is_there, firsts + at, 0), mask=~is_there))


def _value_at(value: Value, key: Any) -> Value:
    maps, key_type = _lists(value), value.type.key_type
    sought = value_of(key)
    try:
        if pa.types.is_string(sought.type) != pa.types.is_string(key_type):
            raise pa.ArrowInvalid
        sought = sought.cast(key_type)
    except pa.ArrowException:
        raise InvalidArgumentError(f"the keys of the map are {word(key_type)}: give a key of that type") from None
    keys, items = pc.list_flatten(maps).flatten()
    places = np.full(len(maps), -1, np.int64)
    equal = np.flatnonzero(pc.equal(keys, sought).to_numpy(zero_copy_only=False))
    places[_rows(maps, equal)] = equal
    return items.take(pa.array(np.maximum(places, 0), mask=places < 0))


def _contains(of: Evaluator, args: Sequence[Expr]) -> Value:
    """Return whether a list has an item, a map a key, or a text another one."""
    value = of.value(args[0])
    if pa.types.is_null(value.type):
        return pa.scalar(None, pa.bool_())
    if pa.types.is_string(value.type):
        return pc.match_substring(value, pattern=_pattern(_literal(args[1])))
    if not is_list(value.type) and not pa.types.is_map(value.type):
        raise InvalidArgumentError(f"CONTAINS takes a list, a map or text, not {word(value.type)}")
    if not isinstance(args[1], Constant):
        raise InvalidArgumentError("the second argument of CONTAINS must be a literal, the same for all rows")
    lists = _lists(value)
    items = pc.list_flatten(lists)
    if pa.types.is_map(value.type):
        items = items.field(0)
    if args[1].value is None:
        return pa.scalar(None, pa.bool_())
    equal = spread(of.compare("=", items, args[1]), len(items))
    places = np.flatnonzero(pc.fill_null(equal, False).to_numpy(zero_copy_only=False))
    answers = np.zeros(len(lists), np.bool_)
    answers[_rows(lists, places)] = True
    return pa.array(answers, mask=pc.is_null(lists).to_numpy(zero_copy_only=False))


def _items_of(value: Value) -> Value | None:
    """Return how many items a list has, or a map; None if a value is neither."""
    if not is_list(value.type) and not pa.types.is_map(value.type):
        return None
    lists = _lists(value)
    return pa.array(_lengths(lists), mask=pc.is_null(lists).to_numpy(zero_copy_only=False))


def _cells(value: Value) -> pa.Array:
    return spread(value, 1) if isinstance(value, pa.Scalar) else spread(value, len(value))


def _lists(value: Value) -> pa.Array:
    """Return lists as they are, and maps as lists of pairs."""
    cells = _cells(value)
    if pa.types.is_map(cells.type):
        return cells.cast(pa.list_(pa.struct([cells.type.key_field, cells.type.item_field])))
    return cells


def _lengths(lists: pa.Array) -> np.ndarray:
    """Return the number of items (int64) of each list, 0 for NULL."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _rows(lists: pa.Array, places: np.ndarray) -> np.ndarray:
    """Return the rows of the items at ``places`` of all items."""
    return np.searchsorted(np.cumsum(_lengths(lists)), places, "right")


def _json(name: str) -> Function:
    """Return ``text -> path``, the JSON there, or ``text ->> path``, its text."""

    def read(of: Evaluator, args: Sequence[Expr]) -> Value:
        texts = _text(of.value(args[0]), name)
        values = values_at(_cells(texts), path_of(_literal(args[1])), name == JSON_TEXT)
        return values[0] if isinstance(texts, pa.Scalar) else values

    return read


def _literal(node: Expr) -> Any:
    if not isinstance(node, Constant):
        raise InvalidArgumentError("this argument must be a literal, the same for all rows")
    return node.value


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError("the second argument of CONTAINS must be text in quotes, since the first is text")
    return value


FUNCTIONS: dict[str, Function] = {
    "ABS": _absolute,
    "CEIL": _toward("ceil"),
    "COALESCE": _coalesce,
    "CONCAT": lambda of, args: joined([of.value(each) for each in args]),
    "CONTAINS": _contains,
    "DAY": _part("day"),
    FIELD: _field,
    "FLOOR": _toward("floor"),
    "GREATEST": _extreme("max_element_wise"),
    "HOUR": _part("hour"),
    ITEM: _item,
    JSON: _json(JSON),
    JSON_TEXT: _json(JSON_TEXT),
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
