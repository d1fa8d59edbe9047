"""Rows that change while a compaction drops them, since they are long dead or have long expired.

Mostly the first change stores the row anew. A delete, and what a delete leaves behind where a column orders changes
(`outcome`), make it dead from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..delta import LIVE
from ..delta.run import DeltaRun, merge_runs
from ..rowset.location import pack
from ..rowset.memrowset import MemRowSet
from ..rowset.native.absent import absent_cells
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyEncoder
from ..vectors.vector import FixedVector, Vector, concat, patch


@dataclass(slots=True, eq=False)
class _Origin:
    """Changes of rows of one old rowset, and the new locations of its rows."""

    rowset: RowSet
    locations: np.ndarray
    runs: dict[int, list[DeltaRun]] = field(default_factory=dict)
    keys: _Keys | None = None

    def key_cells(self, schema: TableSchema, rowids: np.ndarray) -> dict[int, Vector]:
        """Return the key cells of rows (int64, ascending), by column. Reads those that were not read before."""
        if self.keys is None or self.keys.columns != schema.key:
            self.keys = _Keys(schema.key, rowids[:0], {})
        new = np.setdiff1d(rowids, self.keys.rowids, assume_unique=True)
        if len(new):
            self.keys = self.keys.with_rows(new, self.rowset)
        return self.keys.cells_of(rowids)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """The key cells of rows of an old rowset, which never change."""

    columns: tuple[ColumnSchema, ...]
    rowids: np.ndarray
    """int64, in any order"""
    cells: dict[int, Vector]

    def with_rows(self, rowids: np.ndarray, rowset: RowSet) -> _Keys:
        """Return these and those of other rows, from the rowset's file."""
        cells = {}
        for column in self.columns:
            more = rowset.base_at(column, rowids)
            cells[column.id] = concat([self.cells[column.id], more]) if self.cells else more
        return _Keys(self.columns, np.concatenate([self.rowids, rowids]), cells)

    def cells_of(self, rowids: np.ndarray) -> dict[int, Vector]:
        """Return the cells of some of the rows, by column."""
        order = np.argsort(self.rowids)
        places = order[np.searchsorted(self.rowids[order], rowids)]
        return {column_id: cells.take(places) for column_id, cells in self.cells.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows that came back, and their later changes; rowids of ``later`` are positions in ``rowids``."""

    origin: _Origin
    rowids: np.ndarray
    births: np.ndarray
    cells: dict[int, Vector]
    later: dict[int, DeltaRun]


class RevivedRows:
    """Collects changes of rows that a compaction drops, and makes new rows of them.

    A change that stores such a row has a cell for every column that the table has at that time.
    """

    def __init__(self) -> None:
        self._origins: dict[int, _Origin] = {}

    def __bool__(self) -> bool:
        return bool(self._origins)

    def add(self, rowset: RowSet, locations: np.ndarray, column_id: int, run: DeltaRun) -> None:
        """Add changes of a column of rows of ``rowset``; ``fill`` writes the rows' new locations to ``locations``."""
        origin = self._origins.setdefault(rowset.slot, _Origin(rowset, locations))
        origin.runs.setdefault(column_id, []).append(run)

    def read_keys(self, schema: TableSchema) -> None:
        """Read the keys of the rows from their old files, for ``fill``. Raises StoreError."""
        for origin in self._origins.values():
            changed = [np.unique(run.rowids) for runs in origin.runs.values() for run in runs]
            origin.key_cells(schema, np.unique(np.concatenate(changed)).astype(np.int64))

    def fill(self, memrowset: MemRowSet, schema: TableSchema, encoder: KeyEncoder, lsn: int) -> dict[int, DeltaRun]:
        """Insert the rows into an empty MemRowSet of ``schema``, in commit order; return their later changes. Reads the
        keys that were not read before."""
        parts = [_rows(origin, schema) for origin in self._origins.values()]
        births = np.concatenate([part.births for part in parts])
        order = np.argsort(births, kind="stable")
        cells = {column.id: concat([part.cells[column.id] for part in parts]).take(order) for column in schema.columns}
        _insert(memrowset, cells, births[order], [column.id for column in schema.key], encoder, lsn)
        rowids = np.empty(len(order), np.int64)
        rowids[order] = np.arange(len(order))
        later: dict[int, list[DeltaRun]] = {}
        for part in parts:
            own, rowids = rowids[: len(part.rowids)], rowids[len(part.rowids) :]
            part.origin.locations[part.rowids] = pack(memrowset.slot, own)
            for column_id, run in part.later.items():
                moved = own[run.rowids]
                at = np.argsort(moved, kind="stable")
                run = DeltaRun(moved[at].astype(np.int32), run.timestamps[at], run.values.take(at))
                later.setdefault(column_id, []).append(run)
        return {column_id: merge_runs(runs) for column_id, runs in later.items()}


def _insert(
    memrowset: MemRowSet,
    cells: dict[int, Vector],
    births: np.ndarray,
    key_ids: list[int],
    encoder: KeyEncoder,
    lsn: int,
) -> None:
    """Insert rows in insert order, those of one commit at a time."""
    for timestamp in np.unique(births).tolist():
        first, last = (int(at) for at in np.searchsorted(births, (timestamp, timestamp + 1)))
        batch = {column_id: vector.slice(first, last) for column_id, vector in cells.items()}
        keys = encoder.encode([batch[column_id] for column_id in key_ids])
        memrowset.insert(batch, keys, timestamp, lsn)


def _rows(origin: _Origin, schema: TableSchema) -> _Rows:
    """Separate the changes of an old rowset's rows into the first of each, and later ones."""
    runs = {column_id: merge_runs(parts) for column_id, parts in origin.runs.items()}
    rowids, births = _first_changes(runs)
    runs[LIVE] = _with_deaths(runs.get(LIVE), rowids, births)
    cells = origin.key_cells(schema, rowids.astype(np.int64))
    later: dict[int, DeltaRun] = {}
    for column_id, run in runs.items():
        row = np.searchsorted(rowids, run.rowids)
        is_birth = run.timestamps == births[row]
        if column_id == LIVE:
            is_birth &= _are_alive(run)
        if column := schema.by_id.get(column_id):
            # A column that was added later has no cell in the first change: it shows the read default.
            at_birth, at = absent_cells(column, len(rowids)), np.flatnonzero(is_birth)
            cells[column_id] = patch(at_birth, row[at], run.values.take(at)) if len(at) else at_birth
        rest = np.flatnonzero(~is_birth)
        if len(rest) and (column_id == LIVE or column_id in schema.by_id):
            later[column_id] = DeltaRun(row[rest].astype(np.int32), run.timestamps[rest], run.values.take(rest))
    for column in schema.values:
        if column.id not in cells:
            cells[column.id] = absent_cells(column, len(rowids))
    return _Rows(origin, rowids, births, cells, later)


def _first_changes(runs: Mapping[int, DeltaRun]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (int32, ascending) of changes by column, and when the first of each was."""
    rowids = np.concatenate([run.rowids for run in runs.values()])
    timestamps = np.concatenate([run.timestamps for run in runs.values()])
    order = np.lexsort((timestamps, rowids))
    first = order[np.append(True, np.diff(rowids[order]) != 0)]
    return rowids[first], timestamps[first]


def _with_deaths(run: DeltaRun | None, rowids: np.ndarray, births: np.ndarray) -> DeltaRun:
    """Return the changes of liveness, with a death for each row that its first change does not store."""
    if run is None:
        run = DeltaRun(rowids[:0], births[:0], FixedVector(np.empty(0, np.uint8)))
    row = np.searchsorted(rowids, run.rowids)
    is_dead = np.ones(len(rowids), np.bool_)
    is_dead[row[run.timestamps == births[row]]] = False
    rows = np.flatnonzero(is_dead)
    if not len(rows):
        return run
    deaths = DeltaRun(rowids[rows], births[rows], FixedVector(np.zeros(len(rows), np.uint8)))
    return merge_runs([deaths, run])


def _are_alive(run: DeltaRun) -> np.ndarray:
    assert isinstance(run.values, FixedVector), "liveness is a number"
    return run.values.values.astype(np.bool_)
