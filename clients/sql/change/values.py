"""Casts values to the columns that they are assigned to, by PostgreSQL's rules of assignment.

Numbers are rounded to the digits of the column: decimals half away from zero, floats half to even. A float has 15
digits as a decimal. Text becomes what it means in the column. A moment is rounded to microseconds. Nothing
wraps: what does not fit is refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.cells.casts import fits, kind_of
from ....schemas.cells.literal import from_json
from ....schemas.cells.moment import python_cell
from ....schemas.cells.types import LogicalType
from ....schemas.cells.wrapped import unwrapped
from ....schemas.errors import InvalidArgumentError
from ....schemas.table.column import TRUNCATE, ColumnSchema
from ...convert.casting import cast
from ..text.microseconds import texts_of_moments

_DAY_NANOSECONDS = 86_400_000_000_000
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")
_WIDE = decimal.Context(prec=400)


def assigned(values: pa.Array | pa.ChunkedArray, column: ColumnSchema) -> pa.Array:
    """Return the values that an SQL statement assigns to a column as cells of it.

    Raises:
        InvalidArgumentError: the column takes no values of this type, or one does not fit; the message names column,
            type and value.
    """
    array = _plain(values)
    target = column.logical
    if array.type == target.arrow:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target.arrow)
    cast = _cast_of(array.type, target)
    if cast is None:
        raise InvalidArgumentError(
            f"column {column.name!r} is {target} and takes no {array.type}: convert the value with CAST"
        )
    try:
        return cast(array, target)
    except (pa.ArrowException, ValueError, ArithmeticError, InvalidArgumentError):
        raise _misfit(array, cast, column) from None


def column_of(cells: Sequence[Any], column: ColumnSchema) -> pa.Array:
    """Return Python values that an SQL statement assigns to a column as cells of it. Raises as ``assigned``."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if len(kinds) <= 1:
        return assigned(_array(cells), column)
    return pa.concat_arrays([assigned(_array([cell]), column) for cell in cells])


def default_of(column: ColumnSchema) -> pa.Array:
    """Return the cell that DEFAULT means in an SQL statement: one cell, NULL if the column has no default.

    Raises:
        InvalidArgumentError: the store computes it, for new rows alone.
    """
    if column.default_expression is not None:
        raise InvalidArgumentError(
            f"column {column.name!r} has a computed default, which is only for new rows: leave the column out, or give "
            "a value"
        )
    return pa.array([from_json(column.write_default, column.logical)], column.logical.arrow)


def refuse_null(cells: pa.Array, column: ColumnSchema, table: str) -> None:
    """Raise InvalidArgumentError: an SQL statement assigns NULL to a column that is NOT NULL."""
    if cells.null_count and not column.nullable:
        raise InvalidArgumentError(f"column {column.name!r} of table {table!r} is NOT NULL, but the value is NULL")


def refuse_long(rows: pa.Table, columns: Mapping[str, ColumnSchema]) -> None:
    """Refuse new rows of an SQL statement whose text is too long for its column, as the store does, though it may not
    see them all.

    Raises:
        InvalidArgumentError: one is; the message names the column.
    """
    for name in rows.column_names:
        column = columns[name]
        if column.logical.name != "varchar" or column.too_long == TRUNCATE:
            continue
        length = column.logical.length
        if (pc.max(pc.utf8_length(rows.column(name))).as_py() or 0) > length:
            raise InvalidArgumentError(f"the cell of column {name!r} has more than {length:,} characters")


def _array(cells: Sequence[Any]) -> pa.Array:
    big = any(type(cell) is int and not -(1 << 63) <= cell < 1 << 63 for cell in cells)
    plain = [decimal.Decimal(cell) if big and cell is not None else cell for cell in cells]
    try:
        return pa.array(plain)
    except pa.ArrowException:
        raise InvalidArgumentError("a number has more digits than any column can hold: 38") from None


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    array = unwrapped(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_, kind = pa.types, array.type
    if is_.is_string_view(kind) or is_.is_large_string(kind):
        return array.cast(pa.string())
    if is_.is_binary_view(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    return array


def _misfit(array: pa.Array, cast: Callable[[pa.Array, LogicalType], pa.Array], column: ColumnSchema) -> Exception:
    """Return the error that names the first value that does not fit."""
    low, high = 0, len(array)
    while high - low > 1:  # the first half that fails has the first value that fails
        middle = (low + high) // 2
        try:
            cast(array.slice(low, middle - low), column.logical)
            low = middle
        except (pa.ArrowException, ValueError, ArithmeticError, InvalidArgumentError):
            high = middle
    value = str(python_cell(array[low]))
    short = value if len(value) <= 60 else f"{value[:57]}..."
    return InvalidArgumentError(f"column {column.name!r} is {column.type}: the value {short!r} does not fit")


def _cast_of(given: pa.DataType, target: LogicalType) -> Callable[[pa.Array, LogicalType], pa.Array] | None:
    is_ = pa.types
    is_number = is_.is_integer(given) or is_.is_floating(given) or is_.is_decimal(given)
    if is_.is_string(given):
        return _from_text
    if target.is_text:
        return _to_text if is_number or is_.is_boolean(given) or is_.is_temporal(given) else None
    if target.is_integer or target.name == "decimal":
        return _to_exact if is_number else None
    if target.is_floating:
        return _to_float if is_number else None
    if target.name == "timestamp[us]":
        return _to_timestamp if is_.is_timestamp(given) or is_.is_date(given) else None
    if target.name == "date":
        return _to_date if is_.is_timestamp(given) or is_.is_date(given) else None
    if target.is_nested:
        return _to_nested if fits(given, target.arrow) else None
    if is_.is_duration(target.arrow) and is_.is_interval(given):
        return _to_duration
    return _to_time if kind_of(given) == kind_of(target.arrow) in ("time", "duration") else None


def _to_nested(array: pa.Array, target: LogicalType) -> pa.Array:
    return cast(array, target, "the value")


def _to_duration(array: pa.Array, target: LogicalType) -> pa.Array:
    """Days have 24 hours; months have no length."""
    spans = array.to_pylist()
    if any(span is not None and span.months for span in spans):
        raise ValueError
    totals = [None if span is None else span.days * _DAY_NANOSECONDS + span.nanoseconds for span in spans]
    return pa.array(totals, pa.int64()).cast(pa.duration("ns")).cast(target.arrow, safe=False)


def _to_time(array: pa.Array, target: LogicalType) -> pa.Array:
    """Times lose what is finer than the column."""
    return array.cast(target.arrow, safe=False)


def _to_exact(array: pa.Array, target: LogicalType) -> pa.Array:
    if pa.types.is_floating(array.type):
        if target.is_integer:
            return pc.round(array, round_mode="half_to_even").cast(target.arrow)
        return pa.array([_rounded(None if x is None else f"{x:.15g}", target) for x in array.to_pylist()], target.arrow)
    if pa.types.is_integer(array.type):
        if target.is_integer:
            return array.cast(target.arrow)
        return array.cast(pa.decimal128(20, 0)).cast(pa.decimal256(76, target.scale)).cast(target.arrow)
    scale = target.scale
    if target.is_integer:
        whole = pc.round(array, round_mode="half_towards_infinity") if array.type.scale > 0 else array
        return whole.cast(pa.decimal256(76, 0)).cast(pa.decimal128(38, 0)).cast(target.arrow)
    if array.type.scale > scale:
        return pa.array([_rounded(x, target) for x in array.to_pylist()], target.arrow)
    return array.cast(pa.decimal256(76, scale)).cast(target.arrow)


def _rounded(value: Any, target: LogicalType) -> decimal.Decimal | None:
    if value is None:
        return None
    number = decimal.Decimal(value)
    if not number.is_finite():
        raise ValueError
    digit = decimal.Decimal(1).scaleb(-target.scale)
    return number.quantize(digit, decimal.ROUND_HALF_UP, _WIDE)


def _to_float(array: pa.Array, target: LogicalType) -> pa.Array:
    if pa.types.is_decimal(array.type):  # Arrow casts a decimal to the double beside the nearest one
        array = array.cast(pa.string())
    answer = array.cast(pa.float64(), safe=False)
    if target.name == "double":
        return answer
    narrow = answer.cast(target.arrow, safe=False).cast(pa.float32())
    if pc.any(pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(answer)))).as_py():
        raise ValueError
    return narrow.cast(target.arrow)


def _to_timestamp(array: pa.Array, target: LogicalType) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp(array.type.unit))
        if array.type.unit == "ns":
            array = pc.round_temporal(array, unit="microsecond")
    return array.cast(target.arrow)


def _to_date(array: pa.Array, target: LogicalType) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        array = pc.floor_temporal(array.cast(pa.timestamp(array.type.unit)), unit="day")
    return array.cast(target.arrow)


def _to_text(array: pa.Array, target: LogicalType) -> pa.Array:
    if pa.types.is_decimal(array.type):
        return pa.array([None if x is None else f"{x:f}" for x in array.to_pylist()], pa.string())
    return texts_of_moments(array) if pa.types.is_timestamp(array.type) else array.cast(pa.string())


def _from_text(array: pa.Array, target: LogicalType) -> pa.Array:
    if target.is_text:
        return array
    read = _READERS.get(target.name, _integer if target.is_integer else _from_json)
    return pa.array([None if x is None else read(x, target) for x in array.to_pylist()], target.arrow)


def _integer(text: str, target: LogicalType) -> int:
    return int(from_json(int(text.strip().replace("_", "x")), target))


def _float(text: str, target: LogicalType) -> float:
    number = float(text.strip().replace("_", "x"))
    if number in (float("inf"), float("-inf")) and "inf" not in text.lower():
        raise ValueError
    return from_json({"float": repr(number)} if number - number != 0 else number, target)


def _decimal(text: str, target: LogicalType) -> decimal.Decimal | None:
    return _rounded(text.strip().replace("_", "x"), target)


def _bool(text: str, target: LogicalType) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _date(text: str, target: LogicalType) -> dt.date:
    plain = text.strip()
    return dt.date.fromisoformat(plain) if len(plain) <= 10 else dt.datetime.fromisoformat(plain).date()


def _timestamp(text: str, target: LogicalType) -> Any:
    return from_json(text, target)


def _from_json(text: str, target: LogicalType) -> Any:
    return from_json(json.loads(text) if target.is_nested else text, target)


def _binary(text: str, target: LogicalType) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


_READERS: dict[str, Callable[[str, LogicalType], Any]] = {
    "float16": _float,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "bool": _bool,
    "date": _date,
    "timestamp[us]": _timestamp,
    "binary": _binary,
}
