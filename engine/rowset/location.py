"""The location of a row: the slot of its rowset in the tablet and its number there, in one integer of 40 bits."""

import numpy as np

ROWID_BITS = 26
ROWS_MAX = 1 << ROWID_BITS
"""The most rows in a rowset."""
SLOTS_MAX = 1 << (40 - ROWID_BITS)
"""The most rowsets in a tablet."""


def pack(slot: int, rowids: np.ndarray) -> np.ndarray:
    """Return the locations (int64) of rows of the rowset in ``slot``."""
    return rowids.astype(np.int64) | np.int64(slot << ROWID_BITS)


def slots_of(locations: np.ndarray) -> np.ndarray:
    return locations >> ROWID_BITS


def rowids_of(locations: np.ndarray) -> np.ndarray:
    """Return the row number in its rowset of each location."""
    return locations & (ROWS_MAX - 1)


def by_slot(locations: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return (slot of a rowset, positions in ``locations``) for each slot that occurs, positions ascending."""
    if not len(locations):
        return []
    slots = slots_of(locations)
    if (slots[0] == slots).all():
        return [(int(slots[0]), np.arange(len(locations)))]
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    groups = np.split(order, cuts)
    return [(int(slots[group[0]]), group) for group in groups]
