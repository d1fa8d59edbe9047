"""Nested arrays of any layout as lists, structs and maps whose cells are there as often as they occur."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import days_of_moments
from ...schemas.cells.wrapped import unwrapped


def plain_layout(values: pa.Array, target: Any = None) -> pa.Array:
    """Return nested cells that a user gives without views, dictionaries, runs and extension types, inside of them too.

    Lists that are to become lists of one length in ``target`` become so here, with NULLs as the items of a NULL: a cast
    by Arrow would leave there what the memory held before. They stay as they are if a length is wrong.
    Timestamps, and dates in milliseconds, that are to become dates become so here, too: a cast by Arrow would drop
    their time.
    """
    values = unwrapped(values)
    kind, is_ = values.type, pa.types
    if is_.is_dictionary(kind):
        return plain_layout(values.dictionary, target).take(values.indices)
    if is_.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        parts = [plain_layout(part, _field(target, name)) for part, name in zip(values.flatten(), names, strict=True)]
        return pa.StructArray.from_arrays(parts, names, mask=values.is_null())
    if is_.is_map(kind):
        pairs = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        keys, items = pc.list_flatten(pairs).flatten()
        inner = (target.key_type, target.item_type) if isinstance(target, pa.MapType) else (None, None)
        return pa.MapArray.from_arrays(
            _offsets(pairs).cast(pa.int32()),
            plain_layout(keys, inner[0]),
            plain_layout(items, inner[1]),
            mask=values.is_null(),
        )
    if is_.is_nested(kind):
        items = _items(values, getattr(target, "value_type", None))
        if isinstance(target, pa.FixedSizeListType) and _have_one_length(values, target.list_size):
            return _of_one_length(values, items, target.list_size)
        return pa.LargeListArray.from_arrays(_offsets(values), items, mask=values.is_null())
    if is_.is_string_view(kind) or is_.is_binary_view(kind):
        return values.cast(pa.string() if is_.is_string_view(kind) else pa.binary())
    if (is_.is_timestamp(kind) or is_.is_date64(kind)) and isinstance(target, pa.DataType) and is_.is_date(target):
        return days_of_moments(values.cast(pa.timestamp("ms")) if is_.is_date64(kind) else values)
    return values


def _field(target: Any, name: str) -> pa.DataType | None:
    if not isinstance(target, pa.StructType) or (place := target.get_field_index(name)) < 0:
        return None
    return target.field(place).type


def _items(lists: pa.Array, target: Any) -> pa.Array:
    """Return the items of the lists that are not NULL."""
    if not isinstance(lists, pa.FixedSizeListArray):
        return plain_layout(pc.list_flatten(lists), target)
    size = lists.type.list_size
    items = lists.values.slice(lists.offset * size, len(lists) * size)
    if lists.null_count:  # not by list_flatten: Arrow has no kernel that takes views
        items = plain_layout(items).filter(_present(lists, size))
    return plain_layout(items, target)


def _present(lists: pa.Array, length: int) -> pa.Array:
    """Return a bool for each item of lists of one length: whether its list is not NULL."""
    items = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(lists) * length)), 1)
    return lists.is_valid().take(pc.divide(items, max(length, 1)))


def _have_one_length(lists: pa.Array, length: int) -> bool:
    lengths = pc.list_value_length(lists)
    return not pc.any(pc.and_(pc.not_equal(lengths, length), lists.is_valid())).as_py()


def _of_one_length(lists: pa.Array, items: pa.Array, length: int) -> pa.Array:
    """Return lists as such of one length; ``items`` are the items of those that are not NULL."""
    if lists.null_count:
        present = _present(lists, length)
        places = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        items = items.take(pc.if_else(present, places, None))
    return pa.FixedSizeListArray.from_arrays(items, length, mask=lists.is_null())


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
