"""Casts text to a table's cells, a column at a time; finds wrong cells row by row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import times_of_text
from ...schemas.cells.exact import WrittenFloat
from ...schemas.cells.literal import from_json
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnSchema
from .casting import cast
from .json_cell import json_text
from .leaves import infinities

_SHOWN = 60
"""Characters of a cell shown in an error."""
_DIGIT = re.compile("[0-9]")
_INFINITY = "(?i)^[+-]?inf(inity)?$"
_BOOLEANS = {"true": True, "t": True, "yes": True, "1": True, "false": False, "f": False, "no": False, "0": False}


def columns_of_text(
    given: Sequence[pa.Array], columns: Sequence[ColumnSchema]
) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the text columns of a file cast to the table's columns, and for each row with a wrong cell the reason, by
    position.

    Wrong cells are NULL in the result.
    """
    made: list[pa.Array] = []
    wrong: dict[int, str] = {}
    for values, column in zip(given, columns, strict=True):
        try:
            made.append(_whole(values, column))
        except (pa.ArrowException, InvalidArgumentError):
            cells, why = _one_by_one(values.to_pylist(), column, cell_of_text)
            made.append(cells)
            wrong |= why | wrong
    return made, wrong


def columns_of_values(
    given: Sequence[Sequence[Any]], columns: Sequence[ColumnSchema], as_json: bool
) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the JSON values of a file cast to the table's columns, as ``columns_of_text`` does for text; with
    ``as_json``, and in columns of JSON, values that are no text become text in columns of text."""
    made: list[pa.Array] = []
    wrong: dict[int, str] = {}
    for values, column in zip(given, columns, strict=True):
        is_json = as_json or column.logical.name == "json"
        cells, why = _one_by_one(values, column, _cell_of_json if is_json else _cell_of_value)
        made.append(cells)
        wrong |= why | wrong
    return made, wrong


def cell_of_text(text: str, kind: LogicalType) -> Any:
    """Return the Python cell that a text, as files to load have it, means in a column of ``kind``.

    Raises:
        InvalidArgumentError: it means none.
    """
    if kind.is_variable:
        return from_json(text, kind)
    bare = text.strip()
    if kind.is_nested or kind.name == "month_day_nano_interval":
        return from_json(_parsed(text, kind), kind)
    try:
        if kind.name == "bool":
            return _BOOLEANS[bare.lower()]
        if kind.is_integer and "_" not in bare:
            return from_json(int(bare), kind)
        if kind.is_floating and "_" not in bare:
            return from_json(_number(bare), kind)
    except (KeyError, ValueError):
        pass
    else:
        if not (kind.is_integer or kind.is_floating):
            return from_json(bare, kind)
    raise InvalidArgumentError(f"the value {text!r} is not a valid {kind}")


def _parsed(text: str, kind: LogicalType) -> Any:
    try:
        return json.loads(text, parse_float=reader_of_floats([kind]))
    except (ValueError, RecursionError):
        raise InvalidArgumentError(f"the value {_shown(text)} is not JSON, but a {kind} needs JSON") from None


def reader_of_floats(kinds: Iterable[LogicalType]) -> Callable[[str], float]:
    """Return how to read floats of JSON for columns of these types, as ``parse_float``: decimals need all digits. One
    beyond all floats keeps its digits, so that it fits no column of floats."""
    return WrittenFloat if any(map(_has_decimals, kinds)) else _number


def _number(text: str) -> float:
    number = float(text)
    return WrittenFloat(text) if math.isinf(number) and _DIGIT.search(text) else number


def _has_decimals(kind: LogicalType) -> bool:
    return kind.name == "decimal" or any(_has_decimals(inner) for _, inner in kind.fields)


def _cell_of_value(value: Any, kind: LogicalType) -> Any:
    return cell_of_text(value, kind) if isinstance(value, str) else from_json(value, kind)


def _cell_of_json(value: Any, kind: LogicalType) -> Any:
    return _cell_of_value(json_text(value) if kind.is_text else value, kind)


def _whole(values: pa.Array, column: ColumnSchema) -> pa.Array:
    """Cast a column at once; raise if that fails, even if single cells would fit."""
    kind = column.logical
    if kind.is_variable:
        return cast(values, kind, column.name)
    if pa.types.is_timestamp(kind.arrow):
        try:
            return values.cast(kind.arrow)
        except pa.ArrowException:
            return values.cast(pa.timestamp("us", "UTC")).cast(kind.arrow)  # all of them have a zone
    if pa.types.is_time(kind.arrow):
        values = times_of_text(values)
    # Arrow takes hexadecimal integers, and makes infinities of numbers that are too large.
    if kind.is_integer and _has_x(values):
        raise pa.ArrowInvalid("an integer that is not decimal")
    cells = values.cast(kind.arrow)
    infinite = infinities(cells) if kind.is_floating else 0
    if infinite and infinite > _infinite_words(values):
        raise pa.ArrowInvalid("a number that is too large")
    return cells


def _has_x(text: pa.Array) -> bool:
    """Whether a cell, or perhaps one that its column was cut from, has the letter."""
    data = text.buffers()[2]
    return data is not None and b"x" in data.to_pybytes().lower()


def _infinite_words(text: pa.Array) -> int:
    return pc.sum(pc.match_substring_regex(text, _INFINITY)).as_py() or 0


def _one_by_one(
    values: Sequence[Any], column: ColumnSchema, read: Callable[[Any, LogicalType], Any]
) -> tuple[pa.Array, dict[int, str]]:
    kind, target = column.logical, column.field.type
    cells: list[Any] = []
    wrong: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            cells.append(None if value is None else read(value, kind))
        except InvalidArgumentError:
            cells.append(None)
            wrong[row] = f"column {column.name!r}: {_shown(value)} is not a valid {kind}{_advice(value, kind)}"
    try:
        return pa.array(cells, target), wrong
    except (pa.ArrowException, OverflowError):  # one is a Python value that Arrow cannot hold
        return _with_gaps(cells, column, wrong)


def _with_gaps(cells: list[Any], column: ColumnSchema, wrong: dict[int, str]) -> tuple[pa.Array, dict[int, str]]:
    for row, cell in enumerate(cells):
        try:
            pa.scalar(cell, column.field.type)
        except (pa.ArrowException, OverflowError):
            cells[row] = None
            wrong[row] = f"column {column.name!r}: {_shown(cell)} is not a valid {column.logical}"
    return pa.array(cells, column.field.type), wrong


def without(arrays: Sequence[pa.Array], schema: pa.Schema, rows: Mapping[int, str]) -> pa.RecordBatch:
    """Return the columns of a file's piece as a batch without some rows."""
    batch = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    if not rows:
        return batch
    bad = pa.array(sorted(rows), pa.int64())
    return batch.filter(pc.invert(pc.is_in(pa.array(range(batch.num_rows), pa.int64()), bad)))


def _advice(value: Any, kind: LogicalType) -> str:
    return "; as_json (--as-json) keeps it as text of JSON" if isinstance(value, list | dict) and kind.is_text else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
