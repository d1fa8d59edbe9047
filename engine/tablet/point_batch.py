"""Reads rows by their keys, many at once: `lookup` by kernels, from the hash indexes to the columns of the answer.

The meaning is that of `lookup`. Where it is not decided here the caller takes `look_up_generally`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...schemas.errors import StoreError
from ..codecs.codec import CorruptPageError
from ..rowset.fill import fill
from ..rowset.location import rowids_of, slots_of
from ..rowset.native.cell_table import Alive, CellTable
from ..rowset.native.row_columns import RowColumns
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyVector
from .tablet import Tablet

KEYS_MAX = 16_384
"""More keys at once are read generally: whole pages are decoded then."""
Group = tuple[RowSet, np.ndarray, np.ndarray]
"""A rowset, rows of it (int64, ascending), and the positions of their keys in the batch."""
HELD_BYTES_MAX = 64 << 20
"""The most bytes of pages that are held for the rows of a bounded answer."""
_NEWEST = (1 << 63) - 1


def rows_of_keys(
    tablet: Tablet,
    keys: KeyVector,
    hashes: np.ndarray,
    snapshot: int,
    columns: RowColumns,
    held_max: int | None = None,
) -> tuple[CellTable, Alive] | None:
    """Return a table with a row for each key of a tablet, and those of its rows that are alive at ``snapshot``.

    Holds the tablet's write lock while it looks into hash tables. None if only `look_up_generally` can tell.

    Raises:
        StoreError: a file is damaged.
        TooManyBytesError: the table would hold more than ``held_max`` bytes.
    """
    with tablet.write_lock:
        tablet.rows_read += len(hashes)
        locations = tablet.key_lookup.locate_all(tablet.version, hashes)
        groups = None if locations is None else _by_rowset(tablet, locations)
    if locations is None or groups is None:
        return None
    table = filled(groups, locations, snapshot, columns, held_max)
    return None if table is None or table.has_other_keys(keys) else (table, table.alive())


def filled(
    groups: Sequence[Group], locations: np.ndarray, snapshot: int, columns: RowColumns, held_max: int | None
) -> CellTable | None:
    """Return the cells of rows in some rowsets of a tablet; None if one cannot be decoded. Raises as
    ``rows_of_keys``."""
    table = CellTable(columns, locations, held_max)
    try:
        for rowset, rows, positions in groups:
            fill(table, rowset, rows, positions, snapshot)
    except CorruptPageError:
        return None
    return table


def places_of_keys(
    tablet: Tablet, keys: KeyVector, hashes: np.ndarray, columns: RowColumns
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return what ``Tablet.find`` does, given the key ``columns``; None if only that can tell. Under the write lock."""
    locations = tablet.key_lookup.locate_all(tablet.version, hashes)
    groups = None if locations is None else _by_rowset(tablet, locations)
    if locations is None or groups is None:
        return None
    alive = np.zeros(len(locations), np.bool_)
    if not groups:
        return locations, alive
    table = CellTable(columns, locations)
    try:
        for rowset, rows, positions in groups:
            if min(rowset.read_base(table, rows, positions, _NEWEST), default=table.width) < len(columns.ids):
                return None
            alive[positions] = rowset.live.at(rows)
    except (StoreError, CorruptPageError):
        return None
    return None if table.has_other_keys(keys) else (locations, alive)


def _by_rowset(tablet: Tablet, locations: np.ndarray) -> list[Group] | None:
    """Return rowsets, their rows (int64, ascending) and the positions of these in ``locations``; None if some have
    moved."""
    order = np.argsort(locations, kind="stable")
    order = order[np.count_nonzero(locations < 0) :]
    ordered = locations[order]
    slots = slots_of(ordered)
    starts = np.flatnonzero(np.diff(slots, prepend=-1)).tolist()
    groups: list[Group] = []
    for first, last in pairwise([*starts, len(slots)]):
        if (rowset := tablet.rowset_at(int(slots[first]))) is None:
            return None
        groups.append((rowset, rowids_of(ordered[first:last]), order[first:last]))
    return groups
