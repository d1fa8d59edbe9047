"""Nested arrays of any layout as lists, structs and maps whose cells are there as often as they occur."""

from __future__ import annotations

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.wrapped import unwrapped


def plain_layout(values: pa.Array) -> pa.Array:
    """Return cells without views, dictionaries, runs and extension types, inside of them too."""
    values = unwrapped(values)
    kind, is_ = values.type, pa.types
    if is_.is_dictionary(kind):
        return plain_layout(values.dictionary).take(values.indices)
    if is_.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(
            [plain_layout(part) for part in values.flatten()], names, mask=values.is_null()
        )
    if is_.is_map(kind):
        pairs = values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        keys, items = map(plain_layout, pc.list_flatten(pairs).flatten())
        return pa.MapArray.from_arrays(_offsets(pairs).cast(pa.int32()), keys, items, mask=values.is_null())
    if is_.is_nested(kind):
        return pa.LargeListArray.from_arrays(
            _offsets(values), plain_layout(pc.list_flatten(values)), mask=values.is_null()
        )
    if is_.is_string_view(kind) or is_.is_binary_view(kind):
        return values.cast(pa.string() if is_.is_string_view(kind) else pa.binary())
    return values


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
