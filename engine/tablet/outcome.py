"""What becomes of each row of a batch: the rules of the eight operations, decided for all rows at once.

All rows of a batch ask for the same operation and get the same timestamp, so of several rows with one key only one has
to be carried out: the first insert or delete (the others meet its result), the last upsert or update (it covers the
others, since all name the same columns).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...schemas.operation import Operation

APPLIED = 0
IGNORED = -1
ALREADY_PRESENT = -2
NOT_FOUND = -3
INCOMPLETE = -4
"""A new row lacks a column that is not nullable and has no default."""

Find = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Rows are named by their position in the batch; ``locations`` go with ``stores``, ``updates`` and ``deletes``."""

    status: np.ndarray
    """int8, one a row: APPLIED or one of the others."""
    stores: np.ndarray
    """Rows to be stored whole: under a new key (location -1) or over a dead row."""
    store_locations: np.ndarray
    updates: np.ndarray
    update_locations: np.ndarray
    deletes: np.ndarray
    delete_locations: np.ndarray

    @property
    def changes_rows(self) -> bool:
        """Whether anything is to be done."""
        return bool(len(self.stores) or len(self.updates) or len(self.deletes))


def decide(operation: Operation, first: np.ndarray, find: Find, is_complete: bool, has_values: bool) -> Outcome:
    """Decide a batch.

    Args:
        operation: what all rows ask for.
        first: int64, for each row the first row of the batch with the same key.
        find: given rows, returns their locations (-1 where the key is in no rowset) and whether they live.
        is_complete: whether a new row can be made of the batch's columns and the defaults.
        has_values: whether the batch has columns beside the key.
    """
    rows = np.arange(len(first))
    leaders = rows if (first == rows).all() else np.flatnonzero(first == rows)
    locations, alive = find(leaders)
    status, store, change = _rules(operation.base, alive, is_complete)
    if operation.ignores:
        status[(status == ALREADY_PRESENT) | (status == NOT_FOUND)] = IGNORED
    actors = _actors(operation.base, first, leaders)
    empty = np.empty(0, np.int64)
    is_delete = operation.base is Operation.DELETE
    changed, changed_locations = (actors[change], locations[change]) if has_values or is_delete else (empty, empty)
    return Outcome(
        status=_of_all_rows(operation, status, first, leaders),
        stores=actors[store],
        store_locations=locations[store],
        updates=empty if is_delete else changed,
        update_locations=empty if is_delete else changed_locations,
        deletes=changed if is_delete else empty,
        delete_locations=changed_locations if is_delete else empty,
    )


def _rules(base: Operation, alive: np.ndarray, is_complete: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (status, whether the row is stored whole, whether a live row is changed) for one row of each key."""
    status = np.zeros(len(alive), np.int8)
    nothing = np.zeros(len(alive), np.bool_)
    if base in (Operation.UPDATE, Operation.DELETE):
        status[~alive] = NOT_FOUND
        return status, nothing, alive
    if not is_complete:
        status[~alive] = INCOMPLETE
    store = ~alive if is_complete else nothing
    if base is Operation.INSERT:
        status[alive] = ALREADY_PRESENT
        return status, store, nothing
    return status, store, alive


def _actors(base: Operation, first: np.ndarray, leaders: np.ndarray) -> np.ndarray:
    """Return for each key the row that is carried out."""
    if len(leaders) == len(first) or base in (Operation.INSERT, Operation.DELETE):
        return leaders
    last = np.empty(len(first), np.int64)
    last[first] = np.arange(len(first))  # where a key repeats, numpy keeps the last
    return last[leaders]


def _of_all_rows(operation: Operation, status: np.ndarray, first: np.ndarray, leaders: np.ndarray) -> np.ndarray:
    if len(leaders) == len(first):
        return status
    by_row = np.empty(len(first), np.int8)
    by_row[leaders] = status
    spread = by_row[first]
    followers = first != np.arange(len(first))
    meets = {Operation.INSERT: ALREADY_PRESENT, Operation.DELETE: NOT_FOUND}.get(operation.base)
    if meets is not None:
        spread[followers & (spread == APPLIED)] = IGNORED if operation.ignores else meets
    return spread
