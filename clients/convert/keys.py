"""Primary keys as users give them, as batches of the key columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ...schemas.column import ColumnSchema
from ...schemas.description import TableDescription
from ...schemas.errors import InvalidArgumentError
from ...schemas.literal import from_json
from .data import WriteData


def key_of(key: Any, table: TableDescription) -> pa.RecordBatch:
    """Return one key as a batch, from a dict of the key columns, a tuple of their values, or the value of a single
    column.

    Raises:
        InvalidArgumentError: the key is incomplete, or a value does not fit its column.
    """
    columns = _columns(table)
    cells = [_cell(column, value) for column, value in zip(columns, _values(key, table), strict=True)]
    return pa.record_batch(cells, schema=pa.schema([column.field for column in columns]))


def keys_of(keys: Any, table: TableDescription) -> Iterable[pa.RecordBatch]:
    """Return many keys: a list of keys, or data with the key columns in any form that a write takes.

    Raises:
        InvalidArgumentError: as ``key_of``.
    """
    if isinstance(keys, list | tuple):
        return [pa.concat_batches([key_of(key, table) for key in keys])] if keys else []
    data = WriteData(keys, _columns(table))
    if missing := [name for name in table.primary_key if name not in data.names]:
        raise InvalidArgumentError(f"the keys have no column {missing[0]!r}, which is part of the primary key")
    return data


def _columns(table: TableDescription) -> list[ColumnSchema]:
    return table.columns[: len(table.primary_key)]


def _cell(column: ColumnSchema, value: Any) -> pa.Array:
    if value is None:
        raise InvalidArgumentError(f"key column {column.name!r} is NULL; no row has a NULL in its key")
    return pa.array([from_json(value, column.logical, f"key column {column.name!r}:")], column.field.type)


def _values(key: Any, table: TableDescription) -> list[Any]:
    names = table.primary_key
    if isinstance(key, Mapping) and set(key) == set(names):
        return [key[name] for name in names]
    if isinstance(key, tuple | list) and len(key) == len(names):
        return list(key)
    if len(names) == 1 and not isinstance(key, Mapping | tuple | list):
        return [key]
    raise InvalidArgumentError(
        f"a key of table {table.name!r} must be {tuple(names)}, as a dict or a tuple, not {key!r}"
    )
