"""Casts data to a table's columns if no value changes.

Columns whose values the store can cast are sent as they are: the store refuses rows with values that do not fit and
takes the others. All others, such as dates as text, are cast here, and must fit as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...schemas.cells.casts import FITTING, fits, is_castable, kind_of, nested_misfit, times_of_text
from ...schemas.cells.types import LogicalType
from ...schemas.cells.wrapped import bare_type, unwrapped
from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import perhaps
from ...schemas.table.column import ColumnSchema
from .leaves import infinities
from .nested_layout import plain_layout

_CAST_HERE = {("bool", "bool"), ("text", "text"), ("binary", "binary"), ("timestamp", "date"), ("integer", "decimal")}
"""Casts (column, data) that the store could make but that are made here: they only change the layout of cells, or a
store of version 0.1 does not make them."""
_WORDS = {
    "bool": "booleans",
    "integer": "integers",
    "floating": "floats",
    "decimal": "decimals",
    "date": "dates",
    "timestamp": "timestamps",
    "text": "strings",
    "binary": "bytes",
    "time": "times",
    "duration": "durations",
    "interval": "intervals",
    "list": "lists",
    "struct": "structs",
    "map": "maps",
}


class Caster:
    """Casts the columns of a user's batches of one schema, by name, to those of a table."""

    def __init__(self, given: pa.Schema, columns: Sequence[ColumnSchema], misfits: Sequence[str] = ()) -> None:
        """Check names and types. ``misfits`` describes data columns that have no Arrow type and so are not in
        ``given``.

        Raises:
            InvalidArgumentError: the table lacks a column, a name occurs twice, or types never fit; the message names
                all such columns.
        """
        by_name = {column.name: column for column in columns}
        _check_names(given.names, by_name)
        self._columns = [by_name[name] for name in given.names]
        found = [misfit_of(field, column.logical) for field, column in zip(given, self._columns, strict=True)]
        if wrong := [*misfits, *filter(None, found)]:
            raise InvalidArgumentError("; ".join(wrong))
        # The store judges NULLs row by row: so every field may hold them here.
        fields = zip(given, self._columns, strict=True)
        self.schema = pa.schema([_sent(field, column).with_nullable(True) for field, column in fields])

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the table's types, or with types that the store casts to them.

        Raises:
            InvalidArgumentError: a value does not fit; the message names its column.
        """
        arrays = [
            values
            if values.type == kind
            else _as_sent(values, kind)
            if _is_left(kind, column)
            else _cast(values, column)
            for values, column, kind in zip(batch.columns, self._columns, self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _sent(given: pa.Field, column: ColumnSchema) -> pa.Field:
    """Return the field as which a column is sent."""
    kind = bare_type(given.type)
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp(kind.unit)  # a zone changes how a moment is shown, not which it is
    return pa.field(column.name, kind) if _is_left(kind, column) else column.field


def _is_left(kind: pa.DataType, column: ColumnSchema) -> bool:
    """Return whether the store casts cells of this type."""
    target = column.field.type
    casts = kind_of(target), kind_of(kind)
    return kind != target and casts[1] != "null" and casts not in _CAST_HERE and is_castable(kind, target)


def _as_sent(values: pa.Array, kind: pa.DataType) -> pa.Array:
    values = unwrapped(values)
    if pa.types.is_dictionary(values.type):
        return _as_sent(values.dictionary, kind).take(values.indices)
    return values.cast(kind)


def _cast(values: pa.Array, column: ColumnSchema) -> pa.Array:
    return cast(values, column.logical, column.name)


def cast(values: pa.Array, target: LogicalType, name: str) -> pa.Array:
    """Return the ``values`` that a user gave as the cells of a column of type ``target`` called ``name``.

    Raises:
        InvalidArgumentError: a value does not fit.
    """
    values = unwrapped(values)
    try:
        if pa.types.is_dictionary(values.type):
            return cast(values.dictionary, target, name).take(values.indices)
        if target.name == "decimal" and pa.types.is_integer(values.type):
            # Through a decimal that holds every integer: Arrow rejects the direct cast by type, not by value.
            values = values.cast(pa.decimal128(min(38, 20 + target.scale), target.scale))
        if pa.types.is_time(target.arrow) and kind_of(values.type) == "text":
            values = times_of_text(values.cast(pa.string()))
        if target.is_nested or target.name == "date":
            values = plain_layout(values, target.arrow)
        if pa.types.is_interval(target.arrow) and not pa.types.is_interval(values.type):
            values = values.cast(pa.binary(16)).view(target.arrow)  # as files of Parquet have it
        cells = values.cast(target.arrow)
        if target.is_nested and infinities(cells) > infinities(values):
            raise pa.ArrowInvalid("a number is too large")
        return cells
    except pa.ArrowException as error:
        why = str(error).partition("\n")[0]
        raise InvalidArgumentError(
            f"column {name!r} is {values.type} and holds a value that does not fit {target}: {why}"
        ) from None


def _check_names(names: Sequence[str], columns: dict[str, ColumnSchema]) -> None:
    if unknown := [name for name in names if name not in columns]:
        known = ", ".join(list(columns)[:20])
        strange = ", ".join(map(repr, unknown[:5])) + perhaps(unknown[0], columns)
        raise InvalidArgumentError(f"the table has no column {strange}; it has {known}")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise InvalidArgumentError(f"the data has more than one column named {', '.join(map(repr, twice))}")


def misfit_of(field: pa.Field, target: LogicalType) -> str | None:
    """Return why a column of this type cannot take the cells of a field in a user's data, and what would work; None if
    it can."""
    given, fitting = kind_of(field.type), FITTING[kind_of(target.arrow)]
    if given == "null" or (given in fitting and not target.fields):
        return None
    if given in fitting:
        if (misfit := nested_misfit(bare_type(field.type), target.arrow, fits)) is None:
            return None
        path, kind, there = misfit
        why = f"but the table has {there} there" if there else "which the table does not have"
        return f"column {field.name!r} is {field.type}, which cannot be cast to {target}: {path} is {kind}, {why}"
    works = ", ".join(_WORDS[kind] for kind in fitting)
    return f"column {field.name!r} is {field.type}, which cannot be cast to {target}; accepted types: {works}"
