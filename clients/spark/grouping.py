"""Groups rows into batches of one operation and one set of columns each, in an order that changes no result.

Rows of different keys may change places; rows of one key may not. So every row gets a level: how often the kind of row
has changed among the earlier rows of its key. All rows of one level and kind make a batch, and levels are applied in
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...schemas.rows.operation import Operation
from ..convert.row_shapes import key_codes, shapes_of
from .alignment import operations_of


def grouped(
    rows: pa.RecordBatch, key: Sequence[str], words: pa.Array | None, ignore_null: bool
) -> Iterator[tuple[Operation | None, pa.RecordBatch]]:
    """Yield the rows of a Spark write as batches of one operation (None without ``words``) and one set of columns.

    With ``ignore_null``, leave out NULL cells outside the key.

    Raises:
        InvalidArgumentError: a word is not an operation.
    """
    if not rows.num_rows:
        return
    codes, operations = (None, [None]) if words is None else operations_of(words)
    kinds = np.zeros(rows.num_rows, np.int64) if codes is None else codes.to_numpy().astype(np.int64)
    patterns = [rows.schema.names]
    if ignore_null:
        shapes, patterns = _patterns(rows, key)
        kinds = kinds * len(patterns) + shapes
    for places in _runs(rows, key, kinds):
        operation, pattern = divmod(int(kinds[places[0]]), len(patterns))
        chosen = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
        yield operations[operation], chosen.select(patterns[pattern])


def _runs(rows: pa.RecordBatch, key: Sequence[str], kinds: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the positions of rows of one kind each, keeping the order within a key."""
    if (kinds == kinds[0]).all():
        yield np.arange(len(kinds))
        return
    levels = _levels(key_codes(rows, key), kinds)
    order = np.lexsort((kinds, levels))  # stable: rows of one level and kind keep their order
    ends = np.flatnonzero((np.diff(kinds[order]) != 0) | (np.diff(levels[order]) != 0)) + 1
    yield from np.split(order, ends)


def _levels(keys: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return for each row how often the kind has changed among the rows of its key up to it."""
    order = np.argsort(keys, kind="stable")
    is_same_key = np.diff(keys[order]) == 0
    changes = np.concatenate([[0], np.cumsum(is_same_key & (np.diff(kinds[order]) != 0))])
    starts = np.concatenate([[True], ~is_same_key])
    levels = np.empty(len(keys), np.int64)
    levels[order] = changes - changes[np.flatnonzero(starts)][np.cumsum(starts) - 1]
    return levels


def _patterns(rows: pa.RecordBatch, key: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
    """Return a code for the set of present cells of each row, and the columns of each code."""
    names = rows.schema.names
    optional = [name for name in names if name not in key and rows.column(name).null_count]
    if not optional:
        return np.zeros(rows.num_rows, np.int64), [names]
    absent = np.stack([rows.column(name).is_null().to_numpy(zero_copy_only=False) for name in optional], axis=1)
    codes, shapes = shapes_of(absent)
    left_out = [{name for name, gone in zip(optional, row, strict=True) if gone} for row in shapes]
    return codes, [[name for name in names if name not in out] for out in left_out]
