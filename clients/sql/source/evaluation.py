"""Evaluates pushed conditions on batches, in SQL's logic.

As engines have it: NaN equals itself and is greater than every number, -0.0 equals 0.0 except in a list, IN is unknown
for NULL, and so are comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as types

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError
from .parts import AND, FIELD, NOT, OR, PushedCall, PushedColumn, PushedPart, plain_array

_Cells: TypeAlias = pa.Array | pa.Scalar


def kept(batch: pa.RecordBatch, conditions: Sequence[PushedPart]) -> pa.RecordBatch:
    """Return the rows of a batch for which all conditions that an SQL engine pushed are true.

    Raises:
        InvalidArgumentError: a condition has a function that is not known here, or compares types without an order.
    """
    for condition in conditions:
        truth = _evaluated(condition, batch)
        if not isinstance(truth, pa.Scalar):
            batch = batch.filter(truth)
        elif not truth.as_py():
            return batch.slice(0, 0)
        if not batch.num_rows:
            break
    return batch


def _evaluated(condition: PushedPart, batch: pa.RecordBatch) -> _Cells:
    waiting: list[tuple[PushedPart, bool]] = [(condition, False)]
    values: list[_Cells] = []
    while waiting:
        part, has_arguments = waiting.pop()
        if isinstance(part, PushedColumn):
            values.append(batch.column(part.name))
        elif not isinstance(part, PushedCall):
            values.append(part.scalar)
        elif has_arguments:
            place = len(values) - len(part.args)
            arguments = values[place:]
            values[place:] = [_called(part, arguments)]
        else:
            waiting.append((part, True))
            waiting.extend((each, False) for each in reversed(part.args))
    return values[0]


def _called(part: PushedCall, arguments: list[_Cells]) -> _Cells:
    function = _FUNCTIONS.get(part.name)
    try:
        if function is not None:
            return function(arguments, part.options)
        if part.name in _PLAIN:
            return pc.call_function(part.name, arguments)
        if part.name in _MATCHES:
            options = {name: part.options[name].as_py() for name in ("pattern", "ignore_case")}
            return getattr(pc, part.name)(arguments[0], **options)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        kinds = " and ".join(dict.fromkeys(str(each.type) for each in arguments))
        raise InvalidArgumentError(
            f"the filter cannot be computed: {part.name!r} does not take values of type {kinds}; cast one of them"
        ) from None
    raise InvalidArgumentError(
        f"the filter has {part.name!r}, which is not supported; filter by Table.scan, or filter the rows that you read"
    )


# Comparisons


def _has_floats(arguments: list[_Cells]) -> bool:
    return any(types.is_floating(each.type) for each in arguments)


def _as_floats(arguments: list[_Cells]) -> list[_Cells]:
    """Return numbers as floats that Arrow compares; it does not compare those of 16 bits."""
    return [each if _is_compared(each.type) else each.cast(pa.float64(), safe=False) for each in arguments]


def _is_compared(kind: pa.DataType) -> bool:
    return types.is_float32(kind) or types.is_float64(kind)


def _equal(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
    if not _has_floats(arguments):
        return pc.equal(*arguments)
    left, right = _as_floats(arguments)
    return pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def _greater(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
    if not _has_floats(arguments):
        return pc.greater(*arguments)
    left, right = _as_floats(arguments)
    is_above = pc.and_kleene(pc.is_nan(left), pc.invert(pc.is_nan(right)))
    return pc.or_kleene(pc.greater(left, right), is_above)


def _not_equal(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return pc.invert(_equal(arguments, options))


def _less(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return _greater(arguments[::-1], options)


def _less_equal(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return pc.invert(_greater(arguments, options))


def _greater_equal(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return pc.invert(_greater(arguments[::-1], options))


# Other functions


def _folded(function: str) -> Callable[[list[_Cells], dict[str, Any]], _Cells]:
    def fold(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
        total = arguments[0]
        for each in arguments[1:]:
            total = getattr(pc, function)(total, each)
        return total

    return fold


def _not(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
    return pc.invert(arguments[0])


def _is_null(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return pc.is_null(arguments[0], nan_is_null=bool(options["nan_is_null"].as_py()))


def _is_in(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    cells, listed = arguments[0], plain_array(options["value_set"].values)
    values = listed.drop_null()
    if types.is_floating(cells.type):  # fewer bits would round the values
        cells = cells.cast(pa.float64())
    if values.type != cells.type:
        try:
            values = values.cast(cells.type)
        except pa.ArrowInvalid:  # a value that no cell can be
            cells = cells.cast(values.type)
    is_found = pc.is_in(cells, value_set=values)
    is_unknown = pc.is_null(cells)
    if listed.null_count:
        is_unknown = pc.or_(is_unknown, pc.invert(is_found))
    return pc.if_else(is_unknown, pa.scalar(None, pa.bool_()), is_found)


def _is_valid(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
    return pc.is_valid(arguments[0])


def _is_nan(arguments: list[_Cells], _: dict[str, Any]) -> _Cells:
    return pc.is_nan(_as_floats(arguments)[0])


def _cast(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    return arguments[0].cast(options["to_type"].type)


def _field(arguments: list[_Cells], options: dict[str, Any]) -> _Cells:
    kind = arguments[0].type
    for name in options["indices"]:
        if not types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise InvalidArgumentError(f"the filter names the field {name!r}, which a value of type {kind} lacks")
        kind = kind.field(name).type
    return pc.struct_field(arguments[0], options["indices"])


_FUNCTIONS: dict[str, Callable[[list[_Cells], dict[str, Any]], _Cells]] = {
    AND: _folded("and_kleene"),
    OR: _folded("or_kleene"),
    NOT: _not,
    "equal": _equal,
    "not_equal": _not_equal,
    "less": _less,
    "less_equal": _less_equal,
    "greater": _greater,
    "greater_equal": _greater_equal,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_nan": _is_nan,
    "is_in": _is_in,
    "cast": _cast,
    FIELD: _field,
}
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "negate", "abs")
_PLAIN = {
    *_ARITHMETIC,
    *(f"{name}_checked" for name in _ARITHMETIC),
    *("xor", "is_finite", "is_inf", "utf8_lower", "utf8_upper", "utf8_length", "binary_length"),
    *("year", "month", "day", "hour", "minute", "second", "coalesce", "if_else"),
}
"""Further functions that people write, which need no options."""
_MATCHES = {"starts_with", "ends_with", "match_substring", "match_like", "match_substring_regex"}
