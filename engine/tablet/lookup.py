"""Point reads: finds the locations of keys, then reads their rows from the rowsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..rowset.location import by_slot, rowids_of
from ..rowset.read_rows import make_batch, read_rows, schema_of
from ..rowset.row_columns import RowColumns
from ..rowset.rowset import RowSet
from ..vectors.keys import KeyVector
from .key_lookup import find_in
from .point_batch import KEYS_MAX, rows_of_keys
from .tablet import Tablet
from .unresolved_keys import UnresolvedKeys

_Group = tuple[RowSet, np.ndarray, np.ndarray]
"""A rowset, rows of it, and the positions of their keys in the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Keys to look up in one tablet."""

    tablet: Tablet
    keys: KeyVector
    hashes: np.ndarray
    positions: np.ndarray | None = None
    """The position of each key in the whole request; None: the request is these keys, in order."""


def look_up_in(asked: Sequence[Asked], snapshot: int, columns: RowColumns) -> pa.Table:
    """Return the rows of keys of several tablets that are alive at ``snapshot``, in the order of the keys.

    Holds a tablet's write lock while it looks up keys in memory, not while it searches files or reads rows.
    """
    found = None
    if sum(len(each.keys) for each in asked) <= KEYS_MAX:
        found = look_up_natively(asked, snapshot, columns)
    return look_up_generally(asked, snapshot, columns.columns) if found is None else found


def look_up_natively(asked: Sequence[Asked], snapshot: int, columns: RowColumns) -> pa.Table | None:
    """Do the same by kernels alone; None if these cannot tell. The key columns lead ``columns``."""
    parts, places = [], []
    for each in asked:
        if (found := rows_of_keys(each.tablet, each.keys, each.hashes, snapshot, columns)) is None:
            return None
        table, rows = found
        if len(rows):
            parts.append(make_batch(table.taken(rows), columns.columns, len(rows)))
            places.append(rows if each.positions is None else each.positions[rows])
    return _in_order(parts, places, columns.columns)


def look_up_generally(asked: Sequence[Asked], snapshot: int, columns: tuple[ColumnSchema, ...]) -> pa.Table:
    """Do the same in the way that is always right."""
    parts, places = [], []
    for each in asked:
        for rowset, rowids, found in _located(each):
            batch, hits = _fetch(rowset, rowids, snapshot, columns)
            parts.append(batch)
            places.append(found[hits] if each.positions is None else each.positions[found[hits]])
    return _in_order(parts, places, columns)


def _in_order(parts: list[pa.RecordBatch], places: list[np.ndarray], columns: tuple[ColumnSchema, ...]) -> pa.Table:
    """Return the rows of all parts in the order of their places in the request."""
    if not parts:
        return schema_of(columns).empty_table()
    if len(parts) == 1:
        return pa.Table.from_batches(parts)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.Table.from_batches(parts).take(pa.array(order))


def _located(asked: Asked) -> list[_Group]:
    tablet = asked.tablet
    with tablet.write_lock:
        tablet.rows_read += len(asked.hashes)
        missing = tablet.key_lookup.find_in_memory(tablet.version, asked.keys, asked.hashes)
        searched = tablet.key_lookup.searched(tablet.version)
        found = np.flatnonzero(missing.locations >= 0)
        groups: list[_Group] = [
            (tablet.rowset(slot), rowids_of(missing.locations[found[group]]), found[group])
            for slot, group in by_slot(missing.locations[found])
        ]
    # The keys of a rowset on disk never change: whatever moves meanwhile, they are found where they were.
    for rowset in searched:
        groups += _search(rowset, missing)
    return groups


def _search(rowset: RowSet, missing: UnresolvedKeys) -> list[_Group]:
    """Look for missing keys in a rowset that is not indexed."""
    asked = missing.ask(find_in(rowset))
    return [(rowset, rowids_of(missing.locations[asked]), asked)] if len(asked) else []


def _fetch(
    rowset: RowSet, rowids: np.ndarray, snapshot: int, columns: tuple[ColumnSchema, ...]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the live ones of ``rowids`` (any order, repeats allowed), in their order, and their positions."""
    if len(rowids) == 1:
        alive = rowset.live_at(rowids, snapshot)
        return read_rows(rowset, rowids[alive], columns, snapshot), np.flatnonzero(alive)
    rows, position = np.unique(rowids, return_inverse=True)
    alive = rowset.live_at(rows, snapshot)
    kept = np.flatnonzero(alive)
    batch = read_rows(rowset, rows[kept], columns, snapshot)
    hits = np.flatnonzero(alive[position])
    place = np.cumsum(alive) - 1
    return batch.take(pa.array(place[position[hits]])), hits
