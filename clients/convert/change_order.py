"""The order of changes by a column of the data, among them changes that have no value there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc


class ChangeOrder(NamedTuple):
    """The order of a batch of changes."""

    places: np.ndarray
    """The places of the changes in their order; equal ones as they came."""
    values: pa.Array
    """For each place before that, the value by which its change was sorted."""


def in_order(order: pa.Array, keys: np.ndarray, is_open: np.ndarray) -> ChangeOrder:
    """Return the order of changes by their cells of a column. NULL is older than every value.

    Changes that are open (bool) have no cell. As in the table, these apply to all that came before them: they stay
    behind the newest change of their key that came before. ``keys`` are the numbers of the keys
    (``row_shapes.key_codes``).
    """
    count = len(order)
    places = pc.array_sort_indices(order, null_placement="at_start").to_numpy()
    if not order.null_count:
        return ChangeOrder(places, order)
    ascending = order.take(pa.array(places))
    is_next = np.ones(count, np.bool_)  # whether it differs from the one before it
    differs = pc.not_equal(ascending.slice(1), ascending.slice(0, count - 1))
    is_next[1:] = pc.fill_null(differs, False).to_numpy(zero_copy_only=False)
    is_next[order.null_count : order.null_count + 1] = True
    ranks = np.empty(count, np.int64)
    ranks[places] = np.cumsum(is_next) - 1  # 0 of NULL
    by_key = np.argsort(keys, kind="stable")
    above = keys[by_key] * count  # so that a key begins anew
    newest = np.maximum.accumulate(above + ranks[by_key]) - above
    ranks[by_key] = np.where(is_open[by_key], newest, ranks[by_key])
    values = ascending.filter(pa.array(is_next)).take(pa.array(ranks))
    return ChangeOrder(np.argsort(ranks, kind="stable"), values)
