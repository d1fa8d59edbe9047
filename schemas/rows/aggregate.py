"""Aggregates: their request, and the columns of their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

from ..cells.types import ORDERLESS_IDS, TYPE_METADATA, LogicalType
from ..errors import InvalidArgumentError
from ..phrases import perhaps

ALL_ROWS = "*"
"""Stands for a column in ``count`` to count rows."""


class AggregateFunction(StrEnum):
    """The function of an aggregate, computed from the cells of a group. NULLs are skipped; without cells all but
    ``count`` give NULL."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


def measures_json(measures: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the measures that a scan requests as ``{name: (column, function)}`` after checking their form.

    Raises:
        InvalidArgumentError: an entry is invalid; the message names it.
    """
    if not isinstance(measures, Mapping):
        raise InvalidArgumentError(f'measures must be a dict, as in {{"total": ("price", "sum")}}, not {measures!r}')
    checked = {}
    for name, measure in measures.items():
        is_pair = isinstance(measure, tuple | list) and len(measure) == 2 and all(isinstance(x, str) for x in measure)
        if not isinstance(name, str) or not is_pair:
            raise InvalidArgumentError(
                f'an aggregate must be {{name: (column, function)}}, as in {{"total": ("price", "sum")}}, not '
                f"{{{name!r}: {measure!r}}}"
            )
        column, function = measure
        if function not in set(AggregateFunction):
            known = ", ".join(AggregateFunction)
            raise InvalidArgumentError(f"{name!r}: unknown aggregate function {function!r}; known: {known}")
        if column == ALL_ROWS and function != AggregateFunction.COUNT:
            raise InvalidArgumentError(f"{name!r}: only count takes '*'; {function} takes a column")
        checked[name] = (column, function)
    return checked


def aggregate_schema(table: pa.Schema, measures: Mapping[str, tuple[str, str]], group_by: Sequence[str]) -> pa.Schema:
    """Return the schema of an aggregate's result: the columns of ``group_by``, then one column for each measure.

    Raises:
        InvalidArgumentError: the table lacks a column, a column's type lacks a function, or a name occurs twice.
    """
    fields = [_field(table, name) for name in group_by]
    for field in fields:
        if field.type.id in ORDERLESS_IDS:
            raise InvalidArgumentError(f"column {field.name!r} is {field.type}: rows cannot be grouped by it")
    for name, (column, function) in measures.items():
        if function == AggregateFunction.COUNT:
            if column != ALL_ROWS:
                _field(table, column)
            fields.append(pa.field(name, pa.int64(), False))
        else:
            fields.append(_measure_field(name, _field(table, column), AggregateFunction(function)))
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(f"the result would have two columns named {twice!r}")
    if not fields:
        raise InvalidArgumentError("an aggregate needs a measure or a column to group by")
    return pa.schema(fields)


def _field(table: pa.Schema, name: str) -> pa.Field:
    place = table.get_field_index(name)
    if place < 0:
        meant, known = perhaps(name, table.names), ", ".join(table.names)
        raise InvalidArgumentError(f"there is no column {name!r}{meant}; the columns are {known}")
    return table.field(place)


def _measure_field(name: str, column: pa.Field, function: AggregateFunction) -> pa.Field:
    kind = LogicalType.from_arrow(column)
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        if not kind.has_order:
            raise InvalidArgumentError(f"{name!r}: column {column.name!r} is {kind}, and such cells have no order")
        metadata = {key: value for key, value in (column.metadata or {}).items() if key == TYPE_METADATA}
        return pa.field(name, column.type, metadata=metadata or None)
    if not (kind.is_integer or kind.is_floating or kind.name == "decimal"):
        raise InvalidArgumentError(f"{name!r}: column {column.name!r} has the type {kind}; {function} needs numbers")
    if function is AggregateFunction.AVG or kind.is_floating:
        return pa.field(name, pa.float64())
    if kind.name == "decimal":
        return pa.field(name, pa.decimal128(38, kind.scale))
    return pa.field(name, pa.decimal128(38, 0) if kind.sum_is_wide else pa.int64())
