"""Keys of messages: which row a message without a value deletes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from .....schemas.errors import InvalidArgumentError
from .....schemas.store.description import TableDescription
from .....schemas.table.column import ColumnSchema
from ....convert.text_cells import columns_of_values, reader_of_floats
from .decoded import NOT_READABLE, Decoded, reason_of

ReadKey = Callable[[bytes, Sequence[ColumnSchema]], Mapping[str, Any]]
"""Returns the cells of a key, by column. Raises InvalidArgumentError: it has not the columns of the table's key."""


def by_keys(
    keys: Sequence[bytes | None],
    numbers: Sequence[int],
    about: TableDescription,
    read: ReadKey,
    rejects: dict[int, str],
) -> Decoded:
    """Return deletes of the keys of messages; those that cannot be read go to ``rejects``."""
    if not about.unique_key:
        rejects.update(dict.fromkeys(numbers, "it has no value, so it is a delete, but rows of the table have no key"))
        numbers = ()
    names = set(about.primary_key)
    columns = [each for each in about.columns if each.name in names]
    values: list[Mapping[str, Any]] = []
    kept: list[int] = []
    for number in numbers:
        try:
            key = keys[number]
            if key is None:
                raise InvalidArgumentError("it has neither a value nor a key")
            values.append(read(key, columns))
            kept.append(number)
        except (*NOT_READABLE, InvalidArgumentError) as error:
            rejects[number] = f"its key cannot be read: {reason_of(error)}"
    arrays, wrong = columns_of_values([[each[c.name] for each in values] for c in columns], columns, False)
    for place, why in wrong.items():
        rejects[kept[place]] = f"its key cannot be read: {why}"
    rows = pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
    good = np.array([place for place in range(len(kept)) if place not in wrong], np.int64)
    taken = np.array(kept, np.int64)[good]
    return Decoded(rows.take(pa.array(good)), taken, np.ones(len(good), np.bool_))


def values_of_key(key: bytes, columns: Sequence[ColumnSchema]) -> Mapping[str, Any]:
    """Return the cells of a message's key: an object of JSON, perhaps beside its schema, or for a single column its
    value."""
    try:
        value = json.loads(key.decode(), parse_float=reader_of_floats(each.logical for each in columns))
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        if value.keys() == {"schema", "payload"}:
            value = value["payload"]
        return cells_of_key(value, columns)
    is_text = columns[0].logical.is_text
    if value is None or (is_text and not isinstance(value, str)):
        value = key.decode()
    return cells_of_key(value, columns)


def cells_of_key(value: Any, columns: Sequence[ColumnSchema]) -> Mapping[str, Any]:
    """Return the cells of a message's key from its object, or from its value if it is a single column.

    Raises:
        InvalidArgumentError: a column is missing.
    """
    if not isinstance(value, dict):
        if len(columns) > 1:
            raise InvalidArgumentError(f"it is one value, but the key has {len(columns)} columns")
        value = {columns[0].name: value}
    for column in columns:
        if value.get(column.name) is None:
            raise InvalidArgumentError(f"it has no {column.name!r}")
    return value
