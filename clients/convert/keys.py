"""Primary keys as users give them, as batches of the key columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.keys import SCALARS, key_cells, key_columns, key_of, key_values
from ...schemas.store.description import TableDescription
from .data import WriteData


def keys_of(keys: Any, table: TableDescription) -> Iterable[pa.RecordBatch]:
    """Convert the many keys that a user gives to batches: a list of keys, an Arrow array of bare ones, or data with the
    key columns in any form that a write takes.

    Raises:
        InvalidArgumentError: as ``key_of``.
    """
    if isinstance(keys, list | tuple):
        return [_batch_of(keys, table)] if keys else []
    is_bare = isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type)
    if is_bare and len(table.primary_key) == 1:
        keys = pa.table({table.primary_key[0]: keys})
    data = WriteData(keys, key_columns(table))
    if missing := [name for name in table.primary_key if name not in data.names]:
        raise InvalidArgumentError(f"the keys have no column {missing[0]!r}, which is part of the primary key")
    return data


def _batch_of(keys: Sequence[Any], table: TableDescription) -> pa.RecordBatch:
    columns = key_columns(table)
    try:
        if len(columns) == 1 and set(map(type, keys)) <= SCALARS:
            values = [keys]
        elif set(map(type, keys)) == {tuple} and set(map(len, keys)) == {len(columns)}:
            values = zip(*keys, strict=True)
        else:
            values = zip(*[key_values(key, table) for key in keys], strict=True)
        cells = [key_cells(column, cells) for column, cells in zip(columns, values, strict=True)]
    except InvalidArgumentError:
        for key in keys:  # to raise the error of the first key that has one
            key_of(key, table)
        raise
    return pa.record_batch(cells, schema=pa.schema([column.field for column in columns]))
