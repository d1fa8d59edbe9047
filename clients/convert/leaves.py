"""What is inside of nested types and cells: the leaves, which are neither lists nor structs nor maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from ...schemas import compute as pc


def with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type of a column or of data with other types of its leaves."""
    is_ = pa.types

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaves(field.type, change))

    if is_.is_struct(kind):
        return pa.struct([inner(field) for field in kind])
    if is_.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field), kind.keys_sorted)
    if is_.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return (pa.large_list if is_.is_large_list(kind) else pa.list_)(inner(kind.value_field))
    return change(kind)


def infinities(cells: pa.Array) -> int:
    """Return the number of infinite floats in a user's cells, in lists, structs and maps too."""
    is_ = pa.types
    if is_.is_floating(cells.type):
        floats = cells.cast(pa.float32()) if is_.is_float16(cells.type) else cells
        return pc.sum(pc.is_inf(floats)).as_py() or 0
    if is_.is_struct(cells.type):
        return sum(map(infinities, cells.flatten()))
    if is_.is_map(cells.type):
        return infinities(cells.cast(pa.list_(pa.struct([cells.type.key_field, cells.type.item_field]))))
    return infinities(pc.list_flatten(cells)) if is_.is_nested(cells.type) else 0


def python_leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of Python that are inside of a user's lists, dicts and arrays of objects."""
    for value in values:
        if isinstance(value, Mapping):
            yield from python_leaves(chain(value.keys(), value.values()))
        elif isinstance(value, list | tuple) or (getattr(value, "ndim", 0) and str(value.dtype) == "object"):
            yield from python_leaves(value)
        else:
            yield value
