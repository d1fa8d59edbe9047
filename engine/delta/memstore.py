"""DeltaMemStore: the deltas of one rowset that are not in a file yet.

Each column has an append-only log of cells. Their rows and timestamps are in a RowLog, which columns share as long as
they change together. When a commit changes only some of them, both groups continue with their own copies: a reader may
still hold the old log, which must not get entries without a cell in one of its columns. One thread appends, under the
tablet's write lock. Readers take no lock of its: they see a prefix of each log, and the rest is later than any snapshot
they may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..vectors.growable import GrowableColumn
from ..vectors.physical import PhysicalType
from ..vectors.raw_cell import RawCell, one_cell
from ..vectors.vector import FixedVector, Vector, conformed, stored_as
from .cells import DeltaCells
from .patch import Patch
from .row_log import RowLog, SortedRun
from .run import DeltaRun

_NEWEST = (1 << 63) - 1


class DeltaLog:
    def __init__(self, column_id: int, physical: PhysicalType) -> None:
        self.column_id = column_id
        self.rows = RowLog()
        """The log with the column's rows; replaced by an equal one when others no longer share it."""
        self.values = GrowableColumn(physical)

    def __len__(self) -> int:
        return self.rows.count

    def append(self, values: Vector) -> None:
        """Add cells; their rows are appended separately. The column may have been widened since the last call."""
        physical = stored_as(values)
        if physical.width > self.values.physical.width:  # concurrent readers may use either width
            wider = GrowableColumn(physical)
            wider.append(conformed(self.values.view(len(self.values)), physical))
            self.values = wider
        self.values.append(conformed(values, self.values.physical))

    def run(self, first: int, last: int) -> DeltaRun:
        """Return entries [first, last) as a sorted run."""
        rows = self.rows
        rowids, order = rows.order(first, last)
        return DeltaRun(rowids, rows.timestamps(first, last)[order], self._cells(first, last).take(order))

    def patches(self, first_row: int, last_row: int, snapshot: int) -> list[Patch]:
        """Return what ``snapshot`` sees of rows [first_row, last_row), oldest patches first."""
        found: list[Patch] = []
        for run in self.rows.runs(snapshot):
            if run.rows.bounds[1] <= snapshot:
                found.append(run.whole.get(self.column_id) or self._whole(run))
            elif rows := run.rows.redo(first_row, last_row, snapshot):
                found.append(Patch(rows, self._cells_of(run)))
        return found

    def runs(self, first_row: int, last_row: int) -> list[DeltaRun]:
        """Return the deltas of rows [first_row, last_row) in runs that are not empty, oldest first."""
        found: list[DeltaRun] = []
        for run in self.rows.runs(_NEWEST):
            low, high = run.rows.all.window(first_row, last_row)
            if low < high:
                places = run.rows.all.places[low:high]
                cells = self._cells_of(run).values.take(places)
                found.append(DeltaRun(run.rows.all.rowids[low:high], run.rows.timestamps[places], cells))
        return found

    def touches(self, first_row: int, last_row: int) -> bool:
        """Whether there is a delta of rows [first_row, last_row)."""
        windows = (run.rows.all.window(first_row, last_row) for run in self.rows.runs(_NEWEST))
        return any(low < high for low, high in windows)

    @property
    def last_change(self) -> int:
        """The timestamp of the newest delta; 0 if there is none."""
        rows = self.rows
        return int(rows.timestamps(0, rows.count).max(initial=0))

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there is a delta with ``after`` < timestamp <= ``until``."""
        rows = self.rows
        timestamps = rows.timestamps(0, rows.count)
        return bool(((timestamps > after) & (timestamps <= until)).any())

    def _cells(self, first: int, last: int) -> Vector:
        return self.values.view(last).slice(first, last)

    def _whole(self, run: SortedRun) -> Patch:
        """Make and keep the patch for snapshots that see the whole run."""
        patch = run.whole[self.column_id] = Patch(run.rows.last, self._cells_of(run))
        return patch

    def _cells_of(self, run: SortedRun) -> DeltaCells:
        cells = run.cells.get(self.column_id)
        if cells is None:
            cells = run.cells[self.column_id] = DeltaCells(self._cells(run.first, run.last))
        return cells


class DeltaMemStore:
    """The deltas of one rowset in memory, by column id."""

    def __init__(self) -> None:
        self._logs: dict[int, DeltaLog] = {}
        self.first_lsn: int | None = None
        """The log position of the oldest delta; this store does not need the log before it."""

    def __bool__(self) -> bool:
        return self.first_lsn is not None

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        logs = list(self._logs.values())
        return sum(log.values.nbytes for log in logs) + sum(rows.nbytes for rows in {log.rows for log in logs})

    @property
    def column_ids(self) -> list[int]:
        """The columns with deltas."""
        return list(self._logs)

    def log(self, column_id: int) -> DeltaLog | None:
        """Return the deltas of a column, or None when it has none."""
        return self._logs.get(column_id)

    def append(
        self,
        rowids: Vector,
        timestamps: Vector,
        columns: Mapping[int, tuple[PhysicalType, Vector]],
        lsn: int,
    ) -> None:
        """Add one commit's new cells for ``rowids``, column by column. The caller holds the tablet's write lock."""
        for rows, logs in self._rows_of(columns):
            for log in logs:
                log.append(columns[log.column_id][1])
            rows.append(rowids, timestamps)
            rows.publish()
            for log in logs:
                log.rows = rows
                self._logs[log.column_id] = log
        if self.first_lsn is None:
            self.first_lsn = lsn

    def append_row(
        self, row: int, timestamp: int, columns: Mapping[int, tuple[PhysicalType, RawCell]], lsn: int
    ) -> None:
        """Add one commit's new raw cells for one row, like ``append``."""
        logs = [self._logs[column_id] for column_id in columns if column_id in self._logs]
        if len(logs) < len(columns) or not self._change_together(logs, columns):
            vectors = {number: (physical, one_cell(cell, physical)) for number, (physical, cell) in columns.items()}
            rowids = FixedVector(np.array([row], np.int32))
            self.append(rowids, FixedVector(np.array([timestamp], np.int64)), vectors, lsn)
            return
        GrowableColumn.append_cells([log.values for log in logs], [cell for _, cell in columns.values()])
        for rows in {log.rows for log in logs}:
            rows.append_row(row, timestamp)
        if self.first_lsn is None:
            self.first_lsn = lsn

    def _change_together(self, logs: Sequence[DeltaLog], columns: Mapping[int, tuple[PhysicalType, RawCell]]) -> bool:
        """Whether these columns share their rows with no others, and their cells are as wide as they were."""
        shared = {log.rows for log in logs}
        return all(
            log.rows not in shared if column_id not in columns else log.values.physical is columns[column_id][0]
            for column_id, log in self._logs.items()
        )

    def counts(self) -> dict[int, int]:
        """Return the number of deltas of each column now, a mark for ``between``."""
        return {column_id: len(log) for column_id, log in list(self._logs.items())}

    def between(self, mark: Mapping[int, int], later: Mapping[int, int]) -> dict[int, DeltaRun]:
        """Return the deltas added between two marks, column by column.

        Marks may be taken during appends; then they may have some columns of a commit and not others.
        """
        spans = {column_id: (mark.get(column_id, 0), count) for column_id, count in later.items()}
        return {
            column_id: self._logs[column_id].run(first, last)
            for column_id, (first, last) in spans.items()
            if first < last
        }

    def until(self, mark: Mapping[int, int]) -> dict[int, DeltaRun]:
        """Return the deltas that existed when ``mark`` was taken, column by column."""
        return self.between({}, mark)

    def _rows_of(self, columns: Mapping[int, tuple[PhysicalType, Vector]]) -> list[tuple[RowLog, list[DeltaLog]]]:
        """Return the logs of rows to append to, each with the columns that share it from now on."""
        groups: dict[RowLog, list[DeltaLog]] = {}
        new = RowLog()
        for column_id, (physical, _) in columns.items():
            known = self._logs.get(column_id)
            rows = new if known is None else known.rows
            groups.setdefault(rows, []).append(DeltaLog(column_id, physical) if known is None else known)
        return [(self._parted(rows, logs), logs) for rows, logs in groups.items()]

    def _parted(self, rows: RowLog, logs: list[DeltaLog]) -> RowLog:
        """Return the log for ``logs`` to continue with; other columns that share ``rows`` get one too."""
        others = [log for log in self._logs.values() if log.rows is rows and log not in logs]
        if not others:
            return rows
        theirs = rows.copy()
        for log in others:
            log.rows = theirs
        return rows.copy()
