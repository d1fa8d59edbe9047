"""Writes one row by its key: what `Tablet.decide` and `Tablet.apply` do for a single row, without vectors.

The meaning is theirs. What cannot be decided here is left to them, before anything has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...schemas.errors import StoreError
from ..codecs.codec import CorruptPageError
from ..delta import LIVE
from ..record.change import ChangeKind
from ..rowset.diskrowset import NEWEST, DiskRowSet
from ..rowset.location import ROWID_BITS, ROWS_MAX
from ..rowset.memrowset import MemRowSet
from ..rowset.native.row_columns import RowColumns
from ..rowset.rowset import RowSet
from ..vectors.keys.placed_key import PlacedKey
from ..vectors.physical import PhysicalType
from ..vectors.raw_cell import RawCell
from .key_lookup import ABSENT
from .point_read import apply_deltas
from .tablet import Tablet


class RowPlace(NamedTuple):
    """For a tablet's write of one row: where the row of a key is; without a rowset, no row has the key."""

    rowset: RowSet | None
    row: int
    is_alive: bool


NOWHERE = RowPlace(None, -1, False)

RowValues = Mapping[int, tuple[PhysicalType, int]]
"""By the id of each column beside the key: its type, and where its raw cell is in the row."""


def find_row(
    tablet: Tablet, key: PlacedKey, cells: Sequence[RawCell], columns: RowColumns, may_wait: bool
) -> RowPlace | None:
    """For a tablet's write of one row, return the place of the key's row, None if only ``Tablet.find`` can tell; under
    the write lock.

    ``cells`` are the raw cells of the key ``columns``.

    Raises:
        NotInMemoryError: the disk has to be read, and the caller may not wait for it.
    """
    location = tablet.key_lookup.locate(tablet.version, key.address, key.length)
    if location == ABSENT:
        return NOWHERE
    rowset = tablet.rowset_at(location >> ROWID_BITS) if location >= 0 else None
    if rowset is None:
        return None
    row = location & (ROWS_MAX - 1)
    has_key = _has_key(rowset, row, key, cells, columns, may_wait)
    return RowPlace(rowset, row, rowset.live.is_alive(row)) if has_key else None


def _has_key(
    rowset: RowSet, row: int, key: PlacedKey, cells: Sequence[RawCell], columns: RowColumns, may_wait: bool
) -> bool:
    """Whether a row has a key; False too if it cannot be read."""
    if isinstance(rowset, MemRowSet):
        return rowset.has_key(row, key)
    assert isinstance(rowset, DiskRowSet), "a rowset is in memory or on disk"
    try:
        return rowset.key_cells(row, columns, may_wait) == cells
    except (StoreError, CorruptPageError):
        return False


def newest_cells(place: RowPlace, columns: RowColumns, may_wait: bool) -> list[RawCell] | None:
    """For a tablet's write of one row, return the newest raw cells of a row, dead or alive, under the write lock; None
    if they cannot be read here.

    Raises:
        NotInMemoryError: the disk has to be read, and the caller may not wait for it.
    """
    rowset, row = place.rowset, place.row
    try:
        if isinstance(rowset, DiskRowSet):
            cells: list[RawCell] | None = [*rowset.key_cells(row, columns, may_wait), True]
        else:
            assert rowset is not None, "the place of a row"
            cells = rowset.raw_cells(row, NEWEST, columns)
        if cells is not None:
            apply_deltas(rowset, row, NEWEST, columns, cells)
        return cells
    except (StoreError, CorruptPageError):
        return None


def apply_row(
    tablet: Tablet,
    kind: ChangeKind,
    place: RowPlace,
    key: PlacedKey,
    cells: Sequence[RawCell],
    values: RowValues,
    timestamp: int,
    lsn: int,
) -> None:
    """Apply a change of one row to a tablet's stores, under the write lock; it is logged.

    ``values`` says where its raw cells are in ``cells``. A new row goes into the active MemRowSet, whose columns
    ``cells`` has.
    """
    if place.rowset is None:
        tablet.make_room(lsn)
        tablet.version.active.insert_row(cells, key, timestamp, lsn)
    else:
        columns = {number: (physical, cells[i]) for number, (physical, i) in values.items()}
        if kind is not ChangeKind.UPDATE:
            is_alive = kind is ChangeKind.STORE
            columns[LIVE] = PhysicalType.BOOL, int(is_alive)
            place.rowset.live.set_row(place.row, is_alive)
        place.rowset.deltas.active.append_row(place.row, timestamp, columns, lsn)
    tablet.rows_written += 1
    tablet.last_timestamp = max(tablet.last_timestamp, timestamp)
    tablet.last_lsn = max(tablet.last_lsn, lsn)
