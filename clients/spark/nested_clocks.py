"""Times of a clock inside lists, structs and maps: found in types, and converted in cells."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ...schemas import compute as pc

_NAIVE = pa.timestamp("us")


def has_clocks(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether some cells of a type are times of a clock, or dates, where ``target`` has timestamps without a
    zone."""
    if target == _NAIVE:
        return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    return any(has_clocks(*pair) for pair in _parts(kind, target))


def converted(cells: pa.Array, target: pa.DataType, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return cells whose times of a clock, as ``has_clocks`` finds them, are those of ``convert``. Lists become such as
    Spark has."""
    kind = cells.type
    if not has_clocks(kind, target):
        return cells
    if not pa.types.is_nested(kind):
        return convert(cells)
    pairs = _parts(kind, target)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [converted(part, there, convert) for part, (_, there) in zip(cells.flatten(), pairs, strict=True)]
        return pa.StructArray.from_arrays(parts, names, mask=cells.is_null())
    if pa.types.is_map(kind):
        lists = cells.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        inner = zip(pc.list_flatten(lists).flatten(), pairs, strict=True)
        keys, items = (converted(part, there, convert) for part, (_, there) in inner)
        return pa.MapArray.from_arrays(_offsets(lists), keys, items, mask=cells.is_null())
    items = converted(pc.list_flatten(cells), pairs[0][1], convert)
    return pa.ListArray.from_arrays(_offsets(cells), items, mask=cells.is_null())


def _parts(kind: pa.DataType, target: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """Return the types inside of a nested one, each with that of the target there, null if it has no such field."""
    is_ = pa.types
    if is_.is_struct(kind) and is_.is_struct(target):
        there = {field.name: field.type for field in target}
        return [(field.type, there.get(field.name, pa.null())) for field in kind]
    if is_.is_map(kind) and is_.is_map(target):
        return [(kind.key_type, target.key_type), (kind.item_type, target.item_type)]
    if _is_list(kind) and _is_list(target):
        return [(kind.value_type, target.value_type)]
    return []


def _is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind)


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)]).cast(pa.int32())
