"""One primary key as a caller gives it, as the batch that `look_up` takes; and the row that it finds."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import pyarrow as pa

from ..cells.literal import from_json
from ..cells.moment import python_cell
from ..errors import InvalidArgumentError
from ..store.description import TableDescription
from ..table.column import ColumnSchema

SCALARS = frozenset({int, str, bytes})
"""The common types of keys of one column."""


def key_of(key: Any, table: TableDescription) -> pa.RecordBatch:
    """Return one key as the service's ``look_up`` takes it, a batch, from a dict of the key columns, a tuple of their
    values, or the value of a single column.

    Raises:
        InvalidArgumentError: the key is incomplete, or a value does not fit its column.
    """
    columns = key_columns(table)
    cells = [key_cells(column, [value]) for column, value in zip(columns, key_values(key, table), strict=True)]
    return pa.record_batch(cells, schema=pa.schema([column.field for column in columns]))


def key_values(key: Any, table: TableDescription) -> list[Any]:
    """Return the values of one key for the service's ``look_up``, as given, in the order of the key columns.

    Raises:
        InvalidArgumentError: the key is incomplete.
    """
    names = table.primary_key
    if len(names) == 1 and type(key) in SCALARS:
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


def key_columns(table: TableDescription) -> list[ColumnSchema]:
    """Return the columns of the primary key, as the service's ``look_up`` takes them."""
    return table.columns[: len(table.primary_key)]


def key_cells(column: ColumnSchema, values: Sequence[Any]) -> pa.Array:
    """Return a column of the keys that the service's ``look_up`` takes. Integers and strings go by their bytes:
    ``pa.array`` imports pandas.

    Raises:
        InvalidArgumentError: a value does not fit the column.
    """
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


def _literal(column: ColumnSchema, value: Any) -> Any:
    if value is None:
        raise InvalidArgumentError(f"key column {column.name!r} is NULL; no row has a NULL in its key")
    return from_json(value, column.logical, f"key column {column.name!r}:")


def only_row(rows: pa.Table) -> dict[str, Any] | None:
    """Return the row that the service's ``look_up`` has found for one key, as Python values by column; None if it has
    found none."""
    return {name: python_cell(rows[name][0]) for name in rows.schema.names} if rows.num_rows else None
