"""Truncation: deletes of all live rows of a tablet, as a commit logs and applies them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ..filter.expiry import Expiry
from ..record.change import Change, ChangeKind
from ..rowset.diskrowset import NEWEST
from ..rowset.location import pack
from ..rowset.rowset import RowSet
from ..tablet.tablet import Tablet
from ..tablet.tablet_change import TabletChange
from ..vectors.arrow import to_arrow

_ROWS_AT_ONCE = 1 << 18


def deletes(tablet: Tablet, kept: np.ndarray, now: int) -> Iterator[TabletChange]:
    """Truncate a tablet: yield the deletes of all rows that live at the moment ``now``, except those at the locations
    ``kept``, some rows at a time.

    Under the tablet's write lock; read all of them before applying any.
    """
    expiry = Expiry.of(tablet.schema)
    for rowset in tablet.version.rowsets():
        for first in range(0, len(rowset), _ROWS_AT_ONCE):
            rows = np.arange(first, min(first + _ROWS_AT_ONCE, len(rowset)))
            rows = rows[rowset.live.at(rows)]
            if expiry and len(rows):
                rows = rows[~expiry.are_gone(rowset.gather(expiry.column, rows, NEWEST), now)]
            locations = pack(rowset.slot, rows)
            if len(kept):
                stays = np.isin(locations, kept)
                rows, locations = rows[~stays], locations[~stays]
            if len(rows):
                change = Change(tablet.tablet_id, ChangeKind.DELETE, _keys(tablet, rowset, rows))
                yield TabletChange(tablet, change, locations)


def key_bytes_of(tablet: Tablet) -> int:
    """Return about how many bytes the keys take that a truncation of a tablet deletes: those of its live rows."""
    return sum(
        int(rowset.live.live_count * (16 + sum(rowset.row_bytes.get(column.id, 8) for column in tablet.schema.key)))
        for rowset in tablet.version.rowsets()
    )


def _keys(tablet: Tablet, rowset: RowSet, rows: np.ndarray) -> pa.RecordBatch:
    """Return the key cells of rows, which deltas never change."""
    columns = tablet.schema.key
    arrays = [to_arrow(rowset.base_at(column, rows), column.logical.arrow) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column.id) for column in columns])
