"""Slots: the rowsets of a tablet by the slot numbers in locations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...schemas.errors import UnavailableError
from ..rowset.location import SLOTS_MAX, rowids_of, slots_of
from ..rowset.rowset import RowSet


@dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """Takes the slot of a tablet's rowset whose rows have moved, until the index has their new locations."""

    locations: np.ndarray
    """int64 for each old row: its present location, -1 if it is gone."""


class Slots:
    """The rowsets of one tablet by their numbers in locations. Used under the tablet's write lock."""

    def __init__(self, tablet_id: int) -> None:
        self._tablet_id = tablet_id
        self._places: list[RowSet | Forwarded | None] = []

    def free(self) -> int:
        """Return an unused slot, for ``take``.

        Raises:
            UnavailableError: the tablet has too many rowsets.
        """
        for slot, place in enumerate(self._places):
            if place is None:
                return slot
        if len(self._places) == SLOTS_MAX:
            raise UnavailableError(f"tablet {self._tablet_id} has {SLOTS_MAX:,} rowsets, the maximum")
        self._places.append(None)
        return len(self._places) - 1

    def take(self, slot: int, place: RowSet | Forwarded) -> None:
        """Put a rowset, or the new locations of its rows, into a slot."""
        self._places[slot] = place

    def drop(self, slot: int) -> None:
        """Clear a slot that no location in the index names any more."""
        self._places[slot] = None

    def rowset(self, slot: int) -> RowSet:
        """Return the rowset in a used slot."""
        rowset = self._places[slot]
        assert isinstance(rowset, RowSet), "a location that was looked up names a slot that is taken"
        return rowset

    def rowset_at(self, slot: int) -> RowSet | None:
        """Return the rowset in a used slot, None if its rows have moved."""
        place = self._places[slot]
        return None if isinstance(place, Forwarded) else place

    def taken(self) -> list[RowSet | Forwarded]:
        """Return the content of all slots, including rowsets that no version names yet. Needs no lock."""
        return [place for place in list(self._places) if place is not None]

    def current(self, locations: np.ndarray) -> np.ndarray:
        """Return the present locations of rows, given their locations in the index."""
        forwarded = [(slot, place) for slot, place in enumerate(self._places) if isinstance(place, Forwarded)]
        if not forwarded:
            return locations
        current, slots = locations.copy(), slots_of(locations)
        for slot, place in forwarded:
            moved = np.flatnonzero(slots == slot)
            current[moved] = place.locations[rowids_of(locations[moved])]
        return current
