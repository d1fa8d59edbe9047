"""The change feed of a chunk: which rows changed between two timestamps, how, and their values around the change.

Deltas give the commits that touched a row (and, for rows that are not in files yet, the times of their inserts); the
history of its columns gives its state at a timestamp. So it does not matter which store has an entry, nor whether as
REDO or as UNDO.

The state of a row before and after a commit determines the change::

    not -> lives    insert     values of the later moment
    lives -> lives  update     values of the later moment
    lives -> not    delete     values just before the last commit, which is the one that deleted the row
    not -> not      nothing    born and died in between

The moments are just before and at each commit, or, for the net change, the two ends of the range. Where rows expire
(`filter/expiry`), a row does not live from the moment when it expires, which is then one of the moments; a row that
still exists there has expired and was not deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.rows.changes import OPS
from ....schemas.table.column import ColumnSchema
from ...delta.history import Moments, moments_of
from ...filter.evaluate import select
from ...filter.expiry import Expiry
from ...rowset.rowset import RowSet
from ...vectors.arrow import to_arrow
from ...vectors.physical import physical_of
from ...vectors.vector import Vector, nulls, patch
from .chunk import Chunk, ScanRequest, may_expire

_INSERT, _UPDATE, _DELETE, _EXPIRE = range(4)
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """One change per array element, ascending by row, then by timestamp."""

    kind: np.ndarray
    """int8: _INSERT, _UPDATE, _DELETE or _EXPIRE."""
    commits: Moments
    """The row, and the last commit of the change."""
    before: Moments
    """The moment to compare with."""

    def take(self, positions: np.ndarray) -> _Changes:
        return _Changes(self.kind[positions], self.commits.take(positions), self.before.take(positions))

    @property
    def shown(self) -> Moments:
        """The moments whose values the feed shows."""
        return self.commits.earlier(self.kind >= _DELETE)


def read_changes(chunk: Chunk, request: ScanRequest) -> pa.RecordBatch | None:
    """Read the change feed of a chunk: return the changes that the filter selects, in row order; None if there are
    none."""
    feed, rowset = request.changes, chunk.rowset
    assert feed is not None, "a request for changes"
    states = _States(rowset, request.expiry)
    commits = rowset.changes(chunk.first, chunk.last, feed.since, request.snapshot, feed.column_ids)
    if request.expiry:
        ends = _ends(chunk, request.expiry, feed.since, request.snapshot)
        commits = moments_of([(part.rowids, part.timestamps) for part in (commits, ends)])
    if chunk.rows is not None:
        commits = commits.take(np.flatnonzero(np.isin(commits.rowids, chunk.rows)))
        if not len(commits):
            return None
    if feed.every:
        changes = states.compared(commits, commits.earlier())
    else:
        last = commits.last_of_rows()
        changes = states.at_end(commits, states.compared(last, last.at(feed.since)))
    known: dict[int, Vector] = {}
    if request.where is not None and len(changes.kind):
        known = {column.id: rowset.cells_at(column, changes.shown) for column in request.filter_columns}
        selected = np.flatnonzero(select(request.where, known, len(changes.kind)))
        if len(selected) < len(changes.kind):
            changes = changes.take(selected)
            known = {column_id: vector.take(selected) for column_id, vector in known.items()}
    return _batch(rowset, changes, known, request) if len(changes.kind) else None


def _ends(chunk: Chunk, expiry: Expiry, since: int, until: int) -> Moments:
    """Return when rows of a chunk expired after ``since`` and up to ``until``, each with the cell that it had then."""
    rowset, column = chunk.rowset, expiry.column
    changes = rowset.changes(chunk.first, chunk.last, since, until, [column.id])
    begin = Moments(np.empty(0, np.int64), np.empty(0, np.int64))
    if may_expire(rowset, expiry, chunk.first, chunk.last, since, until):
        begin = Moments(np.arange(chunk.first, chunk.last), np.full(chunk.last - chunk.first, since, np.int64))
    states = moments_of([(part.rowids, part.timestamps) for part in (begin, changes)])
    ends = expiry.ends(rowset.cells_at(column, states))
    next_change = np.append(np.where(states.rowids[1:] == states.rowids[:-1], states.timestamps[1:], _NEVER), _NEVER)
    comes = (ends > states.timestamps) & (ends > since) & (ends <= until) & (ends < next_change[: len(ends)])
    comes[comes] = rowset.lives_at(states.take(np.flatnonzero(comes)))
    return Moments(states.rowids[comes], ends[comes])


@dataclass(frozen=True, slots=True)
class _States:
    """The states of a rowset's rows: whether they live at a moment."""

    rowset: RowSet
    expiry: Expiry | None

    def live_at(self, moments: Moments) -> np.ndarray:
        """Return whether each row lives at its moment."""
        exists = self.rowset.lives_at(moments)
        return exists & ~self._are_gone(moments) if self.expiry and len(moments) else exists

    def _are_gone(self, moments: Moments) -> np.ndarray:
        assert self.expiry, "asked for only then"
        return self.expiry.are_gone_at(self.rowset.cells_at(self.expiry.column, moments), moments.timestamps)

    def compared(self, commits: Moments, before: Moments) -> _Changes:
        """Return the changes from ``before`` to ``commits``, without rows that are alive at neither."""
        lived, lives = self.live_at(before), self.live_at(commits)
        kind = np.where(lived, np.where(lives, _UPDATE, self._ended(commits)), _INSERT).astype(np.int8)
        return _Changes(kind, commits, before).take(np.flatnonzero(lived | lives))

    def _ended(self, moments: Moments) -> np.ndarray | int:
        """Return how rows ended that do not live at their moment any more."""
        return np.where(self.rowset.lives_at(moments), _EXPIRE, _DELETE) if self.expiry else _DELETE

    def at_end(self, commits: Moments, changes: _Changes) -> _Changes:
        """Return net changes with the end of each row at the moment of it: a later delete of the dead row may have
        moved its place in the order (`outcome`), or a change the moment when it would have expired."""
        ends = np.flatnonzero(changes.kind >= _DELETE)
        later = ends[~self.live_at(changes.commits.take(ends).earlier())] if len(ends) else ends
        if not len(later):
            return changes
        among = commits.take(np.flatnonzero(np.isin(commits.rowids, changes.commits.rowids[later])))
        ends = among.take(np.flatnonzero(self.live_at(among.earlier()) & ~self.live_at(among))).last_of_rows()
        timestamps, kind = changes.commits.timestamps.copy(), changes.kind.copy()
        timestamps[later], kind[later] = ends.timestamps, self._ended(ends)
        return _Changes(kind, Moments(changes.commits.rowids, timestamps), changes.before)


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
