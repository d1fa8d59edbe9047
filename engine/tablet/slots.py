"""Slots: the rowsets of a tablet by the numbers that locations name them by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...schemas.errors import UnavailableError
from ..rowset.location import SLOTS_MAX, rowids_of, slots_of
from ..rowset.rowset import RowSet


@dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """What stands in the slot of a rowset whose rows have moved, until the index knows where they are."""

    locations: np.ndarray
    """int64, one for each old row: where it lives now, -1 when it is gone."""


class Slots:
    """The rowsets of one tablet. Changed and asked under the tablet's write lock."""

    def __init__(self, tablet_id: int) -> None:
        self._tablet_id = tablet_id
        self._places: list[RowSet | Forwarded | None] = []

    def free(self) -> int:
        """Return a slot that no rowset has, for ``take``.

        Raises:
            UnavailableError: the tablet has as many rowsets as it can.
        """
        for slot, place in enumerate(self._places):
            if place is None:
                return slot
        if len(self._places) == SLOTS_MAX:
            raise UnavailableError(f"tablet {self._tablet_id} has {SLOTS_MAX:,} rowsets, the maximum")
        self._places.append(None)
        return len(self._places) - 1

    def take(self, slot: int, place: RowSet | Forwarded) -> None:
        """Put a rowset, or where its rows are now, into a slot."""
        self._places[slot] = place

    def drop(self, slot: int) -> None:
        """Forget what is in a slot; no location in the index may name it any more."""
        self._places[slot] = None

    def rowset(self, slot: int) -> RowSet:
        """Return the rowset in a slot that is taken."""
        rowset = self._places[slot]
        assert isinstance(rowset, RowSet), "a location that was looked up names a slot that is taken"
        return rowset

    def taken(self) -> list[RowSet | Forwarded]:
        """Return what is in all slots, also what no version names yet. Needs no lock."""
        return [place for place in list(self._places) if place is not None]

    def current(self, locations: np.ndarray) -> np.ndarray:
        """Return where rows live now that the index knows at ``locations``."""
        forwarded = [(slot, place) for slot, place in enumerate(self._places) if isinstance(place, Forwarded)]
        if not forwarded:
            return locations
        current, slots = locations.copy(), slots_of(locations)
        for slot, place in forwarded:
            moved = np.flatnonzero(slots == slot)
            current[moved] = place.locations[rowids_of(locations[moved])]
        return current
