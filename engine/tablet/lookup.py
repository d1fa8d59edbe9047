"""Point reads: find keys in the index, then fetch their rows from the rowsets they live in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..rowset.location import by_slot, rowids_of
from ..rowset.rowset import RowSet
from ..vectors.keys import KeyVector, hash_keys
from .read import read_rows, schema_of
from .tablet import Tablet


def look_up(tablet: Tablet, keys: KeyVector, snapshot: int, columns: tuple[ColumnSchema, ...]) -> pa.Table:
    """Return the rows of ``keys`` that live at ``snapshot``, in the order of the keys; the others are left out.

    The write lock is held while the keys are looked up, not while rows are read.
    """
    with tablet.write_lock:
        locations, _ = tablet.find(keys, hash_keys(keys))
        known = np.flatnonzero(locations >= 0)
        groups = [(tablet.rowset(slot), known[group]) for slot, group in by_slot(locations[known])]
    parts, places = [], []
    for rowset, asked in groups:
        batch, hits = _fetch(rowset, rowids_of(locations[asked]), snapshot, columns)
        parts.append(batch)
        places.append(asked[hits])
    if not parts:
        return schema_of(columns).empty_table()
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.Table.from_batches(parts).take(pa.array(order))


def _fetch(
    rowset: RowSet, rowids: np.ndarray, snapshot: int, columns: tuple[ColumnSchema, ...]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the live ones of ``rowids`` (any order, repeats allowed) and their positions."""
    rows, position = np.unique(rowids, return_inverse=True)
    alive = rowset.live_at(rows, snapshot)
    kept = np.flatnonzero(alive)
    batch = read_rows(rowset, rows[kept], columns, snapshot)
    hits = np.flatnonzero(alive[position])
    place = np.cumsum(alive) - 1
    return batch.take(pa.array(place[position[hits]])), hits
