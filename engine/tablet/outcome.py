"""The outcome of each row of a batch: the rules of the eight operations, decided for all rows at once.

All rows of a batch have the same operation and timestamp, so of several rows with one key only one is executed: the
first insert or delete (the others meet its result), the last upsert or update (it covers the others, since all name the
same columns). Immutable columns are taken from the first upsert: the others meet a live row.

Where a column orders the changes of a row, stale rows are as if they were not there. A delete that has a value of this
column always applies: it leaves the value behind, also under a key that no row has, so that an older row which comes
later is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ...schemas.rows.operation import Operation
from .ordering import RowsInTime, rows_in_time

APPLIED = 0
STALE = 1
"""The row has a newer value already: ignored."""
IGNORED = -1
ALREADY_PRESENT = -2
NOT_FOUND = -3
INCOMPLETE = -4
"""A new row lacks a NOT NULL column without a default."""
IMMUTABLE = -5
"""A live row may not change a column of the batch."""
CONFLICT = -6
"""The row changed after the batch's ``if_timestamp``."""
REFUSED = -7
"""A cell that the store computes for the row cannot be computed, or does not fit."""

Find = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Ranked = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the columns of a batch allow when a tablet decides its outcome."""

    is_complete: bool
    """The columns and the defaults suffice for a new row."""
    has_values: bool
    """Some beside the key may change in a live row."""
    has_immutable: bool = False
    """Some are set only in a new row."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a batch does in a tablet. Rows are named by their position in the batch; ``locations`` go with ``stores``,
    ``updates`` and ``deletes``."""

    status: np.ndarray
    """int8 for each row: APPLIED or one of the others."""
    stores: np.ndarray
    """Whole rows to store: under a new key (location -1) or over a dead row."""
    store_locations: np.ndarray
    store_leaders: np.ndarray
    """For each row of ``stores``, the first with its key: the source of immutable cells."""
    updates: np.ndarray
    update_locations: np.ndarray
    deletes: np.ndarray
    delete_locations: np.ndarray
    marks: np.ndarray = field(default_factory=lambda: _NO_ROWS)
    """Deletes that leave their ordering value behind: in a row, or in a new one that is dead (location -1)."""
    mark_locations: np.ndarray = field(default_factory=lambda: _NO_ROWS)
    stored: pa.RecordBatch | None = None
    """The rows of ``stores`` with all columns, where some cells are computed; None: as the batch has them."""
    updated: pa.RecordBatch | None = None
    """The keys of ``updates`` and the cells that change, where some are computed; None: as the batch has them."""
    reasons: Mapping[int, str] = field(default_factory=dict[int, str])
    """Why rows are REFUSED, by row."""

    @property
    def changes_rows(self) -> bool:
        """Whether there is anything to apply."""
        return bool(len(self.stores) or len(self.updates) or len(self.deletes) or len(self.marks))


def all_stored(count: int) -> Outcome:
    """Return the outcome of ``count`` new rows of a tablet that are stored by other means, so that nothing is left to
    apply."""
    none = _NO_ROWS
    return Outcome(np.full(count, APPLIED, np.int8), none, none, none, none, none, none, none)


def decide(
    operation: Operation,
    first: np.ndarray,
    find: Find,
    shape: Shape,
    is_late: Callable[[np.ndarray], np.ndarray] | None = None,
    may_ignore_late: bool = True,
    ranked: Ranked | None = None,
    are_stored: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Outcome:
    """Decide the outcome of each row of a batch in a tablet.

    Args:
        operation: the operation of all rows.
        first: int64, for each row the first row of the batch with the same key.
        find: given rows, returns their locations (-1 if no rowset has the key) and whether they are alive.
        shape: what the batch's columns allow.
        is_late: given locations, returns which rows changed too late to be changed by this batch.
        may_ignore_late: operations that ignore refused rows also ignore those.
        ranked: given rows and their locations, returns the ranks (see ``ordering``) of all rows of the batch, and of
            the rows at the locations; None: the batch has no column that orders changes.
        are_stored: given locations, returns which rows were not deleted, but may have expired; None: those alive.
    """
    rows = np.arange(len(first))
    leaders = rows if (first == rows).all() else np.flatnonzero(first == rows)
    locations, alive = find(leaders)
    status, store, change = _rules(operation, alive, shape)
    if ranked and operation.base is Operation.DELETE:
        status[:], change = APPLIED, np.ones(len(alive), np.bool_)
    conflicts = is_late(locations) if is_late else None
    if conflicts is not None:
        status[conflicts] = CONFLICT
        store, change = store & ~conflicts, change & ~conflicts
    if operation.ignores:
        late = (CONFLICT,) if may_ignore_late else ()
        status[np.isin(status, (ALREADY_PRESENT, NOT_FOUND, *late))] = IGNORED
    if ranked:
        keys = np.searchsorted(leaders, first)
        meets = None if operation.base is Operation.DELETE else _met_by(operation, shape)
        in_time = rows_in_time(*ranked(leaders, locations), keys, store | change, meets is not None)
        stored = are_stored(locations) if are_stored else alive
        ordered = _Ordered(status, locations, stored, store, change, keys, in_time)
        return ordered.outcome(operation, conflicts, meets)
    actors = _actors(operation, first, leaders, shape)
    empty = _NO_ROWS
    is_delete = operation.base is Operation.DELETE
    changed, changed_locations = (
        (actors[change], locations[change]) if shape.has_values or is_delete else (empty, empty)
    )
    return Outcome(
        status=_of_all_rows(operation, status, first, leaders, shape),
        stores=actors[store],
        store_locations=locations[store],
        store_leaders=leaders[store],
        updates=empty if is_delete else changed,
        update_locations=empty if is_delete else changed_locations,
        deletes=changed if is_delete else empty,
        delete_locations=changed_locations if is_delete else empty,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """Keys of a batch with the effect of their rows that are not stale."""

    status: np.ndarray
    locations: np.ndarray
    stored: np.ndarray
    """Which rows were not deleted."""
    store: np.ndarray
    change: np.ndarray
    keys: np.ndarray
    """For each row of the batch, the number of its key."""
    in_time: RowsInTime

    def outcome(self, operation: Operation, conflicts: np.ndarray | None, meets: int | None) -> Outcome:
        """Return the outcome of all rows; ``meets`` is the status of a row behind one of its key that applied, None if
        it applies, too."""
        locations, first = self.locations, self.in_time.first
        actors = self.in_time.last if meets is None else first
        store, change = self.store & (actors >= 0), self.change & (actors >= 0)
        none, is_delete = np.zeros(len(actors), np.bool_), operation.base is Operation.DELETE
        updates, marks = (none, change) if is_delete else (change, none)
        deletes = marks & (self.stored | (locations < 0))
        return Outcome(
            status=self._statuses(store | change, conflicts, meets),
            stores=actors[store],
            store_locations=locations[store],
            store_leaders=first[store],
            updates=actors[updates],
            update_locations=locations[updates],
            deletes=actors[deletes],
            delete_locations=locations[deletes],
            marks=actors[marks],
            mark_locations=locations[marks],
        )

    def _statuses(self, acts: np.ndarray, conflicts: np.ndarray | None, meets: int | None) -> np.ndarray:
        spread, stale = self.status[self.keys], self.in_time.stale
        if meets is not None:
            spread[acts[self.keys] & (self.in_time.first[self.keys] != np.arange(len(spread)))] = meets
        spread[stale if conflicts is None else stale & ~conflicts[self.keys]] = STALE
        return spread


def _rules(operation: Operation, alive: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (status, whether the row is stored whole, whether a live row is changed), for one row of each key."""
    base = operation.base
    status = np.zeros(len(alive), np.int8)
    nothing = np.zeros(len(alive), np.bool_)
    change = alive
    if base in (Operation.UPDATE, Operation.UPSERT) and shape.has_immutable:
        if not operation.ignores:
            status[alive], change = IMMUTABLE, nothing
        elif not shape.has_values:
            status[alive] = IGNORED
    if base in (Operation.UPDATE, Operation.DELETE):
        status[~alive] = NOT_FOUND
        return status, nothing, change
    if not shape.is_complete:
        status[~alive] = INCOMPLETE
    store = ~alive if shape.is_complete else nothing
    if base is Operation.INSERT:
        status[alive] = ALREADY_PRESENT
        return status, store, nothing
    return status, store, change


def _actors(operation: Operation, first: np.ndarray, leaders: np.ndarray, shape: Shape) -> np.ndarray:
    """Return for each key the row to execute."""
    if len(leaders) == len(first) or _met_by(operation, shape) is not None:
        return leaders
    last = np.empty(len(first), np.int64)
    last[first] = np.arange(len(first))  # for repeated keys, numpy keeps the last
    return last[leaders]


def _met_by(operation: Operation, shape: Shape) -> int | None:
    """Return the status of a row after an earlier one of the same key applied; None if it applies too."""
    if operation.base is Operation.UPSERT:
        if not shape.has_immutable or (operation.ignores and shape.has_values):
            return None
        return IGNORED if operation.ignores else IMMUTABLE
    meets = {Operation.INSERT: ALREADY_PRESENT, Operation.DELETE: NOT_FOUND}.get(operation.base)
    return IGNORED if meets is not None and operation.ignores else meets


def _of_all_rows(
    operation: Operation, status: np.ndarray, first: np.ndarray, leaders: np.ndarray, shape: Shape
) -> np.ndarray:
    if len(leaders) == len(first):
        return status
    by_row = np.empty(len(first), np.int8)
    by_row[leaders] = status
    spread = by_row[first]
    meets = _met_by(operation, shape)
    if meets is not None:
        followers = first != np.arange(len(first))
        spread[followers & (spread == APPLIED)] = meets
    return spread
