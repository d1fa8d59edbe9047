"""Rows whose keys come back while a compaction drops their old, long dead rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...schemas.table.table import TableSchema
from ..delta import LIVE
from ..delta.run import DeltaRun, merge_runs
from ..rowset.location import pack
from ..rowset.memrowset import MemRowSet
from ..rowset.native.absent import absent_cells
from ..rowset.rowset import RowSet
from ..vectors.keys.keys import KeyEncoder
from ..vectors.vector import Vector, concat, patch


@dataclass(slots=True, eq=False)
class _Origin:
    """Changes of rows of one old rowset, and the new locations of its rows."""

    rowset: RowSet
    locations: np.ndarray
    runs: dict[int, list[DeltaRun]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows that came back, and their later changes; rowids of ``later`` are positions in ``rowids``."""

    origin: _Origin
    rowids: np.ndarray
    births: np.ndarray
    cells: dict[int, Vector]
    later: dict[int, DeltaRun]


class RevivedRows:
    """Collects changes of rows that a compaction drops and whose keys come back, and makes new rows of them.

    The first change of such a row brings it back, with a cell for every column that the table has at that time.
    """

    def __init__(self) -> None:
        self._origins: dict[int, _Origin] = {}

    def __bool__(self) -> bool:
        return bool(self._origins)

    def add(self, rowset: RowSet, locations: np.ndarray, column_id: int, run: DeltaRun) -> None:
        """Add changes of a column of rows of ``rowset``; ``fill`` writes the rows' new locations to ``locations``."""
        origin = self._origins.setdefault(rowset.slot, _Origin(rowset, locations))
        origin.runs.setdefault(column_id, []).append(run)

    def fill(self, memrowset: MemRowSet, schema: TableSchema, encoder: KeyEncoder, lsn: int) -> dict[int, DeltaRun]:
        """Insert the rows into an empty MemRowSet of ``schema``, in commit order; return their later changes."""
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
    """Separate the changes of an old rowset's rows into those that brought them back, and later ones."""
    runs = {column_id: merge_runs(parts) for column_id, parts in origin.runs.items()}
    is_first = np.append(True, runs[LIVE].rowids[1:] != runs[LIVE].rowids[:-1])
    born = runs[LIVE].take(np.flatnonzero(is_first))
    cells = {column.id: origin.rowset.base_at(column, born.rowids.astype(np.int64)) for column in schema.key}
    later: dict[int, DeltaRun] = {}
    for column_id, run in runs.items():
        row = np.searchsorted(born.rowids, run.rowids)
        is_birth = run.timestamps == born.timestamps[row]
        if column := schema.by_id.get(column_id):
            # A column that was added later has no cell in the first change: it shows the read default.
            at_birth, births = absent_cells(column, len(born)), np.flatnonzero(is_birth)
            cells[column_id] = patch(at_birth, row[births], run.values.take(births)) if len(births) else at_birth
        rest = np.flatnonzero(~is_birth)
        if len(rest) and (column_id == LIVE or column_id in schema.by_id):
            later[column_id] = DeltaRun(row[rest].astype(np.int32), run.timestamps[rest], run.values.take(rest))
    for column in schema.values:
        if column.id not in cells:
            cells[column.id] = absent_cells(column, len(born))
    return _Rows(origin, born.rowids, born.timestamps, cells, later)
