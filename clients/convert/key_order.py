"""Whether rows come in the order of their primary keys: only a reason to send more of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_GLANCE_ROWS = 64
"""Rows in no order show it within so many: then the others are not looked at."""


class KeyOrder:
    """Looks at pieces one after the other. For one load.

    Values are compared as Arrow does, equal ones count as ascending; the store looks again, by its own keys.
    """

    def __init__(self, key: Sequence[str]) -> None:
        """``key`` names the columns of the primary key, in order; those that the data lacks are passed over."""
        self._key = key
        self._last: pa.RecordBatch | None = None

    def place(self, piece: pa.RecordBatch) -> tuple[bool, bool]:
        """Take a piece, of at least one row; return whether it ascends, and whether it goes on from the one before."""
        keys = piece.select([name for name in self._key if name in piece.schema.names])
        last, self._last = self._last, keys.slice(keys.num_rows - 1)
        ascends = keys.num_columns > 0 and _ascends(keys.slice(0, _GLANCE_ROWS)) and _ascends(keys)
        return ascends, ascends and last is not None and _ascends(pa.concat_batches([last, keys.slice(0, 1)]))


def _ascends(keys: pa.RecordBatch) -> bool:
    import pyarrow.compute as pc  # not cheap, and only loads want it

    rows = keys.num_rows - 1
    before, after = keys.slice(0, rows).columns, keys.slice(1).columns
    ascends = pc.less_equal(before[-1], after[-1])
    for one, other in zip(before[-2::-1], after[-2::-1], strict=True):
        ascends = pc.or_(pc.less(one, other), pc.and_(pc.equal(one, other), ascends))
    return pc.all(ascends, skip_nulls=False).as_py() is True
