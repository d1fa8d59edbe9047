"""Whether rows come in primary-key order: used only to decide how many of them to send at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...schemas import compute as pc

_GLANCE_ROWS = 64
"""Unordered rows show it within this many: the others are then not examined."""


class KeyOrder:
    """Finds out whether a user's rows come in the order of the primary key: examines the slices of one load in turn.

    Values are compared as Arrow does, and equal ones count as ascending; the store compares again, by encoded keys.
    """

    def __init__(self, key: Sequence[str]) -> None:
        """``key`` names the primary-key columns in order; those that the data lacks are ignored."""
        self._key = key
        self._last: pa.RecordBatch | None = None

    def place(self, piece: pa.RecordBatch) -> tuple[bool, bool]:
        """Return whether a non-empty slice ascends, and whether it also continues the previous one."""
        keys = piece.select([name for name in self._key if name in piece.schema.names])
        last, self._last = self._last, keys.slice(keys.num_rows - 1)
        ascends = keys.num_columns > 0 and _ascends(keys.slice(0, _GLANCE_ROWS)) and _ascends(keys)
        return ascends, ascends and last is not None and _ascends(pa.concat_batches([last, keys.slice(0, 1)]))


def _ascends(keys: pa.RecordBatch) -> bool:

    rows = keys.num_rows - 1
    before, after = keys.slice(0, rows).columns, keys.slice(1).columns
    ascends = pc.less_equal(before[-1], after[-1])
    for one, other in zip(before[-2::-1], after[-2::-1], strict=True):
        ascends = pc.or_(pc.less(one, other), pc.and_(pc.equal(one, other), ascends))
    return pc.all(ascends, skip_nulls=False).as_py() is True
