"""Collapse: combines several changes of one key in one transaction, since a commit changes each key at most once.

A commit has one timestamp, and history has one state of a row at one timestamp. So rows whose keys occur more than once
in a transaction are first executed in order without touching the tablet, piece by piece, each as a batch. The result
for a key is one row to be stored, updated or deleted, or nothing, as when it is inserted and deleted again. Where a
column orders the changes of a row, a deleted one leaves its last value of it behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...schemas.table.column import ColumnSchema
from ..record.change import Change, ChangeKind
from ..table.table_version import TableVersion
from ..table.tablet_change import marked, stored_rows, taken, updated_rows
from ..tablet.ordering import ranks_of
from ..tablet.outcome import Outcome, decide
from ..tablet.tablet import Tablet
from ..tablet.tablet_change import TabletChange
from ..vectors.keys.keys import concat_keys, first_occurrences, take_keys
from .tablet_part import TabletPart

_NOTHING = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Rows of one kind and one set of columns. Later pieces may have replaced some."""

    kind: ChangeKind
    rows: pa.RecordBatch


class Collapse:
    """The changes that a transaction makes to some keys of one tablet, under its write lock."""

    def __init__(
        self,
        version: TableVersion,
        tablet: Tablet,
        pieces: Sequence[TabletPart],
        truncated: bool,
        now: int,
        unchanged_since: int | None = None,
    ) -> None:
        """Look up the keys of ``pieces``, at least one; if the table is ``truncated``, all their rows are dead, else
        those that have expired ``now``. Rows that changed after the timestamp ``unchanged_since`` are refused.

        Raises:
            SnapshotTooOldError: the tablet's history does not reach back to it.
        """
        self._is_late = tablet.changes_after(unchanged_since)
        self._version = version
        self._tablet = tablet
        self._pieces = pieces
        self._truncated = truncated
        keys, hashes = concat_keys([piece.keys for piece in pieces]), np.concatenate([p.hashes for p in pieces])
        leaders, self._ids = np.unique(first_occurrences(keys, hashes), return_inverse=True)
        self._locations, self._lived = tablet.find_at(take_keys(keys, leaders), hashes[leaders], now)
        self._stored = tablet.are_stored(self._locations)  # expired or not
        # For each key: whether its row is alive so far, and the group and row that hold its combined change.
        self._alive = np.zeros(len(leaders), np.bool_) if truncated else self._lived.copy()
        self._group = np.full(len(leaders), _NOTHING, np.int64)
        self._row = np.zeros(len(leaders), np.int64)
        self._groups: list[_Group] = []
        # Where a column orders changes: the ranks of each piece's rows, that of each key so far, and the group and row
        # of a delete that leaves its value behind.
        self._ranks: list[np.ndarray | None] = [None] * len(pieces)
        self._rank = np.zeros(len(leaders), np.int64)
        self._mark_group = np.full(len(leaders), _NOTHING, np.int64)
        self._mark_row = np.zeros(len(leaders), np.int64)
        if (column := version.schema.ordering) is not None:
            self._rank_all(column)

    def _rank_all(self, column: ColumnSchema) -> None:
        cells = [self._version.order_of(piece.rows) for piece in self._pieces]
        locations = np.full(len(self._locations), -1) if self._truncated else self._locations
        present = [each for each in cells if each is not None]
        before = self._tablet.newest_cells(column, locations, column.logical.arrow)
        self._rank, *ranks = ranks_of([before, *present])
        coming = iter(ranks)
        self._ranks = [None if each is None else next(coming) for each in cells]

    def outcomes(self) -> list[Outcome]:
        """Execute the pieces in order; return the outcome of each."""
        ends = np.cumsum([len(piece) for piece in self._pieces])
        return [
            self._carry_out(piece, ids, ranks)
            for piece, ids, ranks in zip(self._pieces, np.split(self._ids, ends[:-1]), self._ranks, strict=True)
        ]

    def changes(self) -> list[TabletChange]:
        """Return the changes to log and apply, each key at most once."""
        made: list[TabletChange] = []
        for number, group in enumerate(self._groups):
            keys = np.flatnonzero(self._mark_group == number)
            keys = keys[~self._alive[keys]]
            if len(keys):
                made += self._marked(group, keys)
        for number, group in enumerate(self._groups):
            keys = np.flatnonzero(self._group == number)
            if len(keys):
                keys = keys[np.argsort(self._row[keys])]
                change = Change(self._tablet.tablet_id, group.kind, taken(group.rows, self._row[keys]))
                made.append(TabletChange(self._tablet, change, self._locations[keys]))
        return made

    def _marked(self, group: _Group, keys: np.ndarray) -> list[TabletChange]:
        """Return what leaves the ordering values of deleted keys behind: they are in the rows of a group."""
        keys = keys[np.argsort(self._mark_row[keys])]
        rows, locations = taken(group.rows, self._mark_row[keys]), self._locations[keys]
        changes = marked(self._version, self._tablet, rows, locations)
        if len(new := np.flatnonzero(locations < 0)):
            names = [str(column.id) for column in self._version.schema.key]
            dead = Change(self._tablet.tablet_id, ChangeKind.DELETE, taken(rows.select(names), new))
            changes.append(TabletChange(self._tablet, dead, locations[new]))
        return changes

    def revived(self) -> np.ndarray:
        """Return the locations of rows that were alive before the transaction and are alive after it."""
        return self._locations[self._lived & self._alive]

    def _carry_out(self, piece: TabletPart, ids: np.ndarray, ranks: np.ndarray | None) -> Outcome:
        def find(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self._locations[ids[rows]], self._alive[ids[rows]]

        def ranked(rows: np.ndarray, locations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            assert ranks is not None, "asked for only then"
            return ranks, self._rank[ids[rows]]

        ranker = None if ranks is None else ranked

        def are_stored(locations: np.ndarray) -> np.ndarray:
            del locations
            mine = ids[np.flatnonzero(piece.first == np.arange(len(piece)))]
            return self._alive[mine] | self._stored[mine]

        decided = decide(piece.operation, piece.first, find, piece.shape, self._is_late, False, ranker, are_stored)
        if piece.computing:

            def newest(column: ColumnSchema, rows: np.ndarray, locations: np.ndarray) -> pa.Array:
                del locations
                return self._newest(column, ids[rows])

            decided = piece.computing.resolved(piece.rows, piece.first, decided, newest)
        if len(decided.stores):
            self._store(ids[decided.stores], stored_rows(self._version, piece.rows, decided))
        self._update(ids[decided.updates], updated_rows(self._version, piece.rows, decided))
        keys = piece.rows.select([str(column.id) for column in self._version.schema.key])
        self._keep_order(ids[decided.deletes])
        self._delete(ids[decided.deletes], taken(keys, decided.deletes))
        if ranks is not None:
            for rows in (decided.stores, decided.updates, decided.marks):
                self._rank[ids[rows]] = ranks[rows]
            self._mark(ids[decided.marks], taken(piece.rows, decided.marks))
        return decided

    def _newest(self, column: ColumnSchema, keys: np.ndarray) -> pa.Array:
        """Return the cells of a column in rows that are alive so far."""
        kind, name = column.logical.arrow, str(column.id)
        cells = self._tablet.newest_cells(column, self._locations[keys], kind)
        before = self._group[keys]
        for number in np.unique(before[before != _NOTHING]).tolist():
            rows = self._groups[number].rows
            if name in rows.schema.names:
                at = np.flatnonzero(before == number)
                places = np.arange(len(keys))
                places[at] = len(keys) + self._row[keys[at]]
                cells = pa.concat_arrays([cells, rows.column(name)]).take(pa.array(places))
        return cells

    def _keep_order(self, keys: np.ndarray) -> None:
        """Let deleted rows leave behind the ordering value that the transaction gave them."""
        if (column := self._version.schema.ordering) is None:
            return
        names = [str(each.id) for each in (*self._version.schema.key, column)]
        before = self._group[keys]
        for number in np.unique(before[before != _NOTHING]).tolist():
            rows = self._groups[number].rows
            if names[-1] in rows.schema.names:
                chosen = keys[before == number]
                self._mark(chosen, taken(rows.select(names), self._row[chosen]))

    def _mark(self, keys: np.ndarray, rows: pa.RecordBatch) -> None:
        """Record the rows whose ordering values deletes leave behind."""
        if len(keys):
            self._mark_group[keys] = len(self._groups)
            self._mark_row[keys] = np.arange(len(keys))
            self._groups.append(_Group(ChangeKind.UPDATE, rows))

    def _store(self, keys: np.ndarray, rows: pa.RecordBatch) -> None:
        """Insert rows. One that was alive before the transaction was deleted by it, so its cells are updated."""
        lived = self._lived[keys]
        self._put(keys, ~lived, ChangeKind.STORE, rows)
        self._put(keys, lived, ChangeKind.UPDATE, rows)
        self._alive[keys] = True

    def _update(self, keys: np.ndarray, rows: pa.RecordBatch) -> None:
        """Update live rows, on top of their earlier changes."""
        before = self._group[keys]
        for number in np.unique(before).tolist():
            chosen = before == number
            if number == _NOTHING:
                self._put(keys, chosen, ChangeKind.UPDATE, rows)
                continue
            group = self._groups[number]
            old = group.rows.take(pa.array(self._row[keys[chosen]]))
            merged = _laid_over(old, taken(rows, np.flatnonzero(chosen)))
            self._put(keys[chosen], np.ones(merged.num_rows, np.bool_), group.kind, merged)

    def _delete(self, keys: np.ndarray, rows: pa.RecordBatch) -> None:
        """Delete rows. One that the transaction inserted needs no change; with a truncation, no row does."""
        self._group[keys] = _NOTHING
        self._alive[keys] = False
        if not self._truncated:
            self._put(keys, self._stored[keys], ChangeKind.DELETE, rows)

    def _put(self, keys: np.ndarray, chosen: np.ndarray, kind: ChangeKind, rows: pa.RecordBatch) -> None:
        """Record the changes of the ``chosen`` (bool) keys; ``rows`` has one row for each key, chosen or not."""
        at = np.flatnonzero(chosen)
        if len(at):
            self._group[keys[at]] = len(self._groups)
            self._row[keys[at]] = np.arange(len(at))
            self._groups.append(_Group(kind, taken(rows, at)))


def _laid_over(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the cells of ``new``, and those of ``old`` in the columns that ``new`` lacks."""
    names = [*old.schema.names, *(name for name in new.schema.names if name not in old.schema.names)]
    arrays = [(new if name in new.schema.names else old).column(name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)
