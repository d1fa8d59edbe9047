"""The change feed of a chunk: which rows changed between two timestamps, how, and their values around the change.

Deltas give the commits that touched a row (and, for rows that are not in files yet, the times of their inserts); the
history of its columns gives its state at a timestamp. So it does not matter which store has an entry, nor whether as
REDO or as UNDO.

The state of a row before and after a commit determines the change::

    not -> lives    insert     values of the later moment
    lives -> lives  update     values of the later moment
    lives -> not    delete     values just before the last commit, which is the one that deleted the row
    not -> not      nothing    born and died in between

The moments are just before and at each commit, or, for the net change, the two ends of the range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.rows.changes import OPS
from ....schemas.table.column import ColumnSchema
from ...delta.history import Moments
from ...filter.evaluate import select
from ...rowset.rowset import RowSet
from ...vectors.arrow import to_arrow
from ...vectors.physical import physical_of
from ...vectors.vector import Vector, nulls, patch
from .chunk import Chunk, ScanRequest

_INSERT, _UPDATE, _DELETE = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """One change per array element, ascending by row, then by timestamp."""

    kind: np.ndarray
    """int8: _INSERT, _UPDATE or _DELETE."""
    commits: Moments
    """The row, and the last commit of the change."""
    before: Moments
    """The moment to compare with."""

    def take(self, positions: np.ndarray) -> _Changes:
        return _Changes(self.kind[positions], self.commits.take(positions), self.before.take(positions))

    @property
    def shown(self) -> Moments:
        """The moments whose values the feed shows."""
        return self.commits.earlier(self.kind == _DELETE)


def read_changes(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Read the change feed of a chunk: return the changes that the filter selects, in row order; None if there are
    none."""
    feed, rowset = request.changes, chunk.rowset
    assert feed is not None, "a request for changes"
    commits = rowset.changes(chunk.first, chunk.last, feed.since, request.snapshot, feed.column_ids)
    if chunk.rows is not None:
        commits = commits.take(np.flatnonzero(np.isin(commits.rowids, chunk.rows)))
        if not len(commits):
            return None
    if feed.every:
        changes = _compared(rowset, commits, commits.earlier())
    else:
        last = commits.last_of_rows()
        changes = _at_death(rowset, commits, _compared(rowset, last, last.at(feed.since)))
    known: dict[int, Vector] = {}
    if request.where is not None and len(changes.kind):
        known = {column.id: rowset.cells_at(column, changes.shown) for column in request.filter_columns}
        selected = np.flatnonzero(select(request.where, known, len(changes.kind)))
        if len(selected) < len(changes.kind):
            changes = changes.take(selected)
            known = {column_id: vector.take(selected) for column_id, vector in known.items()}
    return _batch(rowset, changes, known, request) if len(changes.kind) else None


def _compared(rowset: RowSet, commits: Moments, before: Moments) -> _Changes:
    """Return the changes from ``before`` to ``commits``, without rows that are alive at neither."""
    lived, lives = rowset.lives_at(before), rowset.lives_at(commits)
    kind = np.where(lived, np.where(lives, _UPDATE, _DELETE), _INSERT).astype(np.int8)
    return _Changes(kind, commits, before).take(np.flatnonzero(lived | lives))


def _at_death(rowset: RowSet, commits: Moments, changes: _Changes) -> _Changes:
    """Return net changes with deletes at the moment when the row died: a later delete of the dead row may have moved
    its place in the order (`outcome`)."""
    deletes = np.flatnonzero(changes.kind == _DELETE)
    later = deletes[~rowset.lives_at(changes.commits.take(deletes).earlier())] if len(deletes) else deletes
    if not len(later):
        return changes
    among = commits.take(np.flatnonzero(np.isin(commits.rowids, changes.commits.rowids[later])))
    deaths = among.take(np.flatnonzero(rowset.lives_at(among.earlier()) & ~rowset.lives_at(among))).last_of_rows()
    timestamps = changes.commits.timestamps.copy()
    timestamps[later] = deaths.timestamps
    return _Changes(changes.kind, Moments(changes.commits.rowids, timestamps), changes.before)


def _batch(rowset: RowSet, changes: _Changes, known: dict[int, Vector], request: ScanRequest) -> pa.RecordBatch:
    assert request.changes is not None, "a request for changes"
    shown = changes.shown
    arrays = [pa.array(OPS).take(pa.array(changes.kind)), pa.array(changes.commits.timestamps)]
    for column in request.columns:
        vector = known.get(column.id)
        cells = rowset.cells_at(column, shown) if vector is None else vector
        arrays.append(to_arrow(cells, column.logical.arrow))
    if request.changes.before:
        arrays += [to_arrow(_earlier(rowset, column, changes), column.logical.arrow) for column in request.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=request.schema)


def _earlier(rowset: RowSet, column: ColumnSchema, changes: _Changes) -> Vector:
    """Return a column's cells before the changes, NULL for rows that were not alive."""
    lived = np.flatnonzero(changes.kind != _INSERT)
    if len(lived) == len(changes.kind):
        return rowset.cells_at(column, changes.before)
    cells = nulls(physical_of(column.logical.arrow), len(changes.kind))
    return patch(cells, lived, rowset.cells_at(column, changes.before.take(lived))) if len(lived) else cells
