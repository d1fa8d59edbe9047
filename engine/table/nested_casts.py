"""Casts of nested cells: what is inside of them becomes the types of the column, as cells of flat columns do.

A cell is left out, and its row reported, if any value inside does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...schemas.cells.types import LogicalType
from ..vectors.arrow_buffers import array_of, validity_of
from ..vectors.nested import list_offsets


class Misfits(NamedTuple):
    """The cells of a received batch that do not fit their nested column."""

    rows: np.ndarray
    """A bool for each."""
    path: str
    """Where in the cells the first ones are."""
    given: pa.DataType
    target: LogicalType


LeafCast = Callable[[pa.Array, LogicalType], tuple[pa.Array, np.ndarray | None]]
"""Casts values of a flat type: returns them, NULL where one does not fit, and a bool mask of these or None."""


def cast_nested(array: pa.Array, target: LogicalType, leaf: LeafCast) -> tuple[pa.Array, Misfits | None]:
    """Return an array of a received batch, whose type is castable to ``target``, as one of it, and what did not fit;
    None for nothing."""
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target.arrow), None
    if not target.is_nested:
        cells, rows = leaf(array, target)
        return cells, None if rows is None or not rows.any() else Misfits(rows, "", array.type, target)
    return (_structs if target.name == "struct" else _lists)(array, target, leaf)


def _structs(array: pa.StructArray, target: LogicalType, leaf: LeafCast) -> tuple[pa.Array, Misfits | None]:
    valid, misfits, children = validity_of(array), None, []
    for name, kind in target.fields:
        place = array.type.get_field_index(name)
        if place < 0:
            children.append(pa.nulls(len(array), kind.arrow))
            continue
        child, inner = cast_nested(array.field(place), kind, leaf)
        children.append(child)
        misfits = _joined(misfits, inner and inner._replace(path=f".{name}{inner.path}"), valid)
    return array_of(target.arrow, len(array), valid, [], children), misfits


def _lists(array: pa.Array, target: LogicalType, leaf: LeafCast) -> tuple[pa.Array, Misfits | None]:
    valid, offsets = validity_of(array), list_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets = offsets - first
    items = array.values.slice(first, last - first)  # pyright: ignore[reportAttributeAccessIssue]
    item, path = target.fields[0][1], "[]"
    if target.name == "map":
        item, path = LogicalType("struct", fields=target.fields), ""
        items = pa.StructArray.from_arrays(items.flatten(), names=["key", "value"])
    items, inner = cast_nested(items, item, leaf)
    misfits = None
    if inner:
        rows = np.zeros(len(array), np.bool_)
        rows[np.searchsorted(offsets, np.flatnonzero(inner.rows), "right") - 1] = True
        if target.name == "map":  # whose keys may not be NULL: leave the cells out
            left = array.take(pa.array(np.arange(len(array)), mask=rows))
            return _lists(left, target, leaf)[0], _joined(None, inner._replace(rows=rows), valid)
        misfits = _joined(None, inner._replace(rows=rows, path=path + inner.path), valid)
    if target.name == "fixed_size_list":
        return _of_one_length(items, offsets, target, valid, misfits, array.type)
    offsets = offsets if target.name == "large_list" else offsets.astype(np.int32)
    return array_of(target.arrow, len(array), valid, [pa.py_buffer(offsets)], [items]), misfits


def _of_one_length(
    items: pa.Array,
    offsets: np.ndarray,
    target: LogicalType,
    valid: np.ndarray | None,
    misfits: Misfits | None,
    given: pa.DataType,
) -> tuple[pa.Array, Misfits | None]:
    """Return lists as such of one length; others are left out."""
    count, size = len(offsets) - 1, target.length
    wrong = np.diff(offsets) != size
    if valid is not None:
        wrong &= valid
    present = ~wrong if valid is None else valid & ~wrong
    if wrong.any():
        misfits = _joined(misfits, Misfits(wrong, "", given, target), None)
    if not present.all() or len(items) != count * size:
        places = np.repeat(offsets[:-1], size) + np.tile(np.arange(size), count)
        items = items.take(pa.array(places, mask=np.repeat(~present, size)))
    return array_of(target.arrow, count, None if present.all() else present, [], [items]), misfits


def _joined(misfits: Misfits | None, more: Misfits | None, valid: np.ndarray | None) -> Misfits | None:
    """Return misfits and ``more`` of them, of which those under a NULL do not count."""
    if more is None:
        return misfits
    rows = more.rows if valid is None else more.rows & valid
    if not rows.any():
        return misfits
    return more._replace(rows=rows) if misfits is None else misfits._replace(rows=misfits.rows | rows)
