"""Reads rows by their keys, many at once: `lookup` by kernels, from the hash indexes to the columns of the answer.

The meaning is that of `lookup`. Where it is not decided here the caller takes `look_up_generally`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..codecs.codec import CorruptPageError
from ..rowset.cell_table import CellTable
from ..rowset.fill import fill
from ..rowset.location import rowids_of, slots_of
from ..rowset.row_columns import RowColumns
from ..rowset.rowset import RowSet
from ..vectors.keys import KeyVector
from .tablet import Tablet

KEYS_MAX = 16_384
"""More keys at once are read generally: whole pages are decoded then."""


def rows_of_keys(
    tablet: Tablet, keys: KeyVector, hashes: np.ndarray, snapshot: int, columns: RowColumns
) -> tuple[CellTable, np.ndarray] | None:
    """Return a table with a row for each key, and those of its rows (int64) that are alive at ``snapshot``.

    Holds the tablet's write lock while it looks into hash tables. None if only `look_up_generally` can tell.

    Raises:
        StoreError: a file is damaged.
    """
    with tablet.write_lock:
        locations = tablet.key_lookup.locate_all(tablet.version, hashes)
        groups = None if locations is None else _by_rowset(tablet, locations)
    if locations is None or groups is None:
        return None
    table = CellTable(columns, locations)
    try:
        for rowset, rows, positions in groups:
            fill(table, rowset, rows, positions, snapshot)
    except CorruptPageError:
        return None
    return None if table.has_other_keys(keys) else (table, table.live_rows())


def _by_rowset(tablet: Tablet, locations: np.ndarray) -> list[tuple[RowSet, np.ndarray, np.ndarray]] | None:
    """Return rowsets, their rows (int64, ascending) and the positions of these in ``locations``; None if some have
    moved."""
    order = np.argsort(locations, kind="stable")
    order = order[np.count_nonzero(locations < 0) :]
    ordered = locations[order]
    slots = slots_of(ordered)
    starts = np.flatnonzero(np.diff(slots, prepend=-1)).tolist()
    groups: list[tuple[RowSet, np.ndarray, np.ndarray]] = []
    for first, last in pairwise([*starts, len(slots)]):
        if (rowset := tablet.rowset_at(int(slots[first]))) is None:
            return None
        groups.append((rowset, rowids_of(ordered[first:last]), order[first:last]))
    return groups
