"""Primary keys as users give them, as batches of the key columns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import pyarrow as pa

from ...schemas.cells.literal import from_json
from ...schemas.errors import InvalidArgumentError
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from .data import WriteData

_SCALARS = {int, str, bytes}
"""The common types of keys of one column."""


def key_of(key: Any, table: TableDescription) -> pa.RecordBatch:
    """Return one key as a batch, from a dict of the key columns, a tuple of their values, or the value of a single
    column.

    Raises:
        InvalidArgumentError: the key is incomplete, or a value does not fit its column.
    """
    columns = _columns(table)
    cells = [_cells(column, [value]) for column, value in zip(columns, key_values(key, table), strict=True)]
    return pa.record_batch(cells, schema=pa.schema([column.field for column in columns]))


def keys_of(keys: Any, table: TableDescription) -> Iterable[pa.RecordBatch]:
    """Return many keys: a list of keys, an Arrow array of bare ones, or data with the key columns in any form that a
    write takes.

    Raises:
        InvalidArgumentError: as ``key_of``.
    """
    if isinstance(keys, list | tuple):
        return [_batch_of(keys, table)] if keys else []
    is_bare = isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type)
    if is_bare and len(table.primary_key) == 1:
        keys = pa.table({table.primary_key[0]: keys})
    data = WriteData(keys, _columns(table))
    if missing := [name for name in table.primary_key if name not in data.names]:
        raise InvalidArgumentError(f"the keys have no column {missing[0]!r}, which is part of the primary key")
    return data


def _batch_of(keys: Sequence[Any], table: TableDescription) -> pa.RecordBatch:
    columns = _columns(table)
    try:
        if len(columns) == 1 and set(map(type, keys)) <= _SCALARS:
            values = [keys]
        elif set(map(type, keys)) == {tuple} and set(map(len, keys)) == {len(columns)}:
            values = zip(*keys, strict=True)
        else:
            values = zip(*[key_values(key, table) for key in keys], strict=True)
        cells = [_cells(column, cells) for column, cells in zip(columns, values, strict=True)]
    except InvalidArgumentError:
        for key in keys:  # to raise the error of the first key that has one
            key_of(key, table)
        raise
    return pa.record_batch(cells, schema=pa.schema([column.field for column in columns]))


def _cells(column: ColumnSchema, values: Sequence[Any]) -> pa.Array:
    """Return a column of keys. Integers and strings go by their bytes: ``pa.array`` imports pandas."""
    kind = column.field.type
    if pa.types.is_integer(kind) and set(map(type, values)) == {int}:
        code = "bhiq"[kind.bit_width.bit_length() - 4]
        code = code if pa.types.is_signed_integer(kind) else code.upper()
        with suppress(struct.error):  # raised below, with the value
            raw = struct.pack(f"<{len(values)}{code}", *values)
            return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(raw)])
    cells = [_literal(column, value) for value in values]
    if kind != pa.string() or set(map(type, cells)) != {str}:
        return pa.array(cells, kind)
    texts = [cell.encode() for cell in cells]
    ends = struct.pack(f"<{len(texts) + 1}i", *accumulate(map(len, texts), initial=0))
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def _columns(table: TableDescription) -> list[ColumnSchema]:
    return table.columns[: len(table.primary_key)]


def _literal(column: ColumnSchema, value: Any) -> Any:
    if value is None:
        raise InvalidArgumentError(f"key column {column.name!r} is NULL; no row has a NULL in its key")
    return from_json(value, column.logical, f"key column {column.name!r}:")


def key_values(key: Any, table: TableDescription) -> list[Any]:
    """Return the values of a key, as given, in the order of the key columns.

    Raises:
        InvalidArgumentError: the key is incomplete.
    """
    names = table.primary_key
    if len(names) == 1 and type(key) in _SCALARS:
        return [key]
    if isinstance(key, tuple | list) and len(key) == len(names):
        return list(key)
    if isinstance(key, Mapping) and set(key) == set(names):
        return [key[name] for name in names]
    if len(names) == 1 and not isinstance(key, Mapping | tuple | list):
        return [key]
    raise InvalidArgumentError(
        f"a key of table {table.name!r} must be {tuple(names)}, as a dict or a tuple, not {key!r}"
    )
