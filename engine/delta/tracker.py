"""DeltaTracker: all deltas of one rowset, and the cells that a snapshot sees through them.

    UNDO files        changes up to the base's timestamp: take the base back
    REDO files        changes after it, oldest file first: bring the base forward
    DeltaMemStores    the newest changes: at most one frozen (being written to a REDO file) and the active one

The stores are one tuple that is replaced as a whole, so that a reader works on one state without a lock. Setting the
active store aside changes nothing for readers and happens in place. A change of files makes a successor, for a new
DiskRowSet: removed files may hold history that a running scan needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..vectors.vector import Vector
from . import LIVE
from .file import DeltaFile
from .history import History, Stamps, within
from .memstore import DeltaLog, DeltaMemStore
from .patch import Patch, apply_all

ALL_ROWS = 1 << 31
"""A row number above all others."""


@dataclass(frozen=True, slots=True, eq=False)
class DeltaStores:
    """The stores of a rowset's deltas at one moment, oldest first."""

    undo: tuple[DeltaFile, ...]
    redo: tuple[DeltaFile, ...]
    memory: tuple[DeltaMemStore, ...]


class DeltaTracker:
    """The deltas of one rowset. Readers need no lock; changing the stores needs the tablet's write lock."""

    def __init__(self, base_timestamp: int, by_column: Mapping[int, int] | None = None) -> None:
        """The base shows the rows at ``base_timestamp``, except for the columns in ``by_column``."""
        self._base_timestamp = base_timestamp
        self._by_column = dict(by_column or {})
        self.newest_base = max(base_timestamp, *self._by_column.values()) if self._by_column else base_timestamp
        """The newest timestamp that the base shows of any column."""
        self.stores = DeltaStores((), (), (DeltaMemStore(),))
        self.frozen_at: tuple[int, int] = (0, 0)
        """The newest timestamp and log position in the tablet when the frozen store was set aside."""

    def load(self, undo: tuple[DeltaFile, ...], redo: tuple[DeltaFile, ...]) -> None:
        """Take over the delta files of a rowset while it opens, oldest first."""
        self.stores = replace(self.stores, undo=undo, redo=redo)

    def successor(
        self,
        undo: tuple[DeltaFile, ...] | None = None,
        redo: tuple[DeltaFile, ...] | None = None,
        by_column: Mapping[int, int] | None = None,
    ) -> DeltaTracker:
        """Return a tracker with other files, or other base timestamps of columns, and the same memory stores."""
        tracker = DeltaTracker(self._base_timestamp, self._by_column if by_column is None else by_column)
        stores = self.stores
        tracker.stores = replace(
            stores, undo=stores.undo if undo is None else undo, redo=stores.redo if redo is None else redo
        )
        tracker.frozen_at = self.frozen_at
        return tracker

    def without_memory(self) -> DeltaTracker:
        """Return a tracker with the same files and empty memory stores."""
        tracker = self.successor()
        tracker.stores = replace(tracker.stores, memory=(DeltaMemStore(),))
        return tracker

    def base_timestamp(self, column_id: int) -> int:
        """Return the base timestamp of a column: UNDO goes up to it, REDO starts after it."""
        return self._by_column.get(column_id, self._base_timestamp)

    @property
    def active(self) -> DeltaMemStore:
        """The store that takes new deltas."""
        return self.stores.memory[-1]

    @property
    def frozen(self) -> DeltaMemStore | None:
        """The store that is being written to a file, if any."""
        return self.stores.memory[0] if len(self.stores.memory) > 1 else None

    def patches(self, column_id: int, first: int, last: int, snapshot: int, is_scan: bool = True) -> list[Patch]:
        """Return how the base cells of rows [first, last) differ at ``snapshot``; later patches win.

        ``is_scan`` means that most of these rows are read, so that decoding whole pages is worth it.
        """
        stores = self.stores
        if snapshot < self._by_column.get(column_id, self._base_timestamp):
            return _undo_patches(stores, column_id, first, last, snapshot, is_scan)
        return _redo_patches(stores, column_id, first, last, snapshot, is_scan)

    def apply(self, column_id: int, base: Vector, first_row: int, snapshot: int, is_own: bool = False) -> Vector:
        """Return the cells of consecutive rows from ``first_row`` on as ``snapshot`` sees them.

        ``is_own`` allows overwriting the memory of ``base``.
        """
        for patch in self.patches(column_id, first_row, first_row + len(base), snapshot):
            base, is_own = patch.apply(base, first_row, is_own), True
        return base

    def apply_at(self, column_id: int, base: Vector, rows: np.ndarray, snapshot: int) -> Vector:
        """Return the cells of ``rows`` (ascending, distinct) as ``snapshot`` sees them."""
        if not len(rows):
            return base
        found = self.patches(column_id, int(rows[0]), int(rows[-1]) + 1, snapshot, is_scan=False)
        return apply_all((patch.at(rows) for patch in found), base, 0, False) if found else base

    def touches(self, column_id: int, snapshot: int, first_row: int = 0, last_row: int = ALL_ROWS) -> bool:
        """Whether cells of a column in rows [first_row, last_row) may differ from the base at ``snapshot``; if so, zone
        maps do not apply."""
        if self.in_files(column_id, snapshot, first_row, last_row):
            return True
        if snapshot < self.base_timestamp(column_id):
            return False
        logs = [log for store in self.stores.memory if (log := store.log(column_id))]
        return any(log.touches(first_row, last_row) for log in logs)

    def in_files(self, column_id: int, snapshot: int, first_row: int, last_row: int) -> bool:
        """Whether files may have deltas that bring cells of a column in rows [first_row, last_row) from the base to
        ``snapshot``."""
        stores = self.stores
        if snapshot < self.base_timestamp(column_id):
            undo = (file for file in stores.undo if file.last_timestamp > snapshot)
            return any(file.touches(column_id, first_row, last_row) for file in undo)
        redo = (file for file in stores.redo if file.first_timestamp <= snapshot)
        return any(file.touches(column_id, first_row, last_row) for file in redo)

    def is_changed(self, after: int, until: int) -> bool:
        """Whether there may be a change with ``after`` < timestamp <= ``until``."""
        stores = self.stores
        in_files = any(file.is_changed(after, until) for file in (*stores.undo, *stores.redo))
        return in_files or any(log.is_changed(after, until) for log in _logs(stores))

    def stamps(
        self, first_row: int, last_row: int, after: int, until: int, column_ids: Collection[int]
    ) -> list[Stamps]:
        """Return, for liveness and the given columns, which rows of [first_row, last_row) changed in (after, until],
        and when. Changes of dropped columns do not count, even if files still have them."""
        stores = self.stores
        files = [file for file in (*stores.undo, *stores.redo) if file.is_changed(after, until)]
        found = [
            file.stamps(column_id, first_row, last_row, after, until)
            for file in files
            for column_id in file.column_ids
            if column_id == LIVE or column_id in column_ids
        ]
        runs = [run for log in _logs(stores, column_ids) for run in log.runs(first_row, last_row)]
        found += [within(run.rowids, run.timestamps, after, until) for run in runs]
        return [stamps for stamps in found if stamps]

    def history(self, column_id: int, first_row: int, last_row: int, earliest: int, latest: int) -> History:
        """Return the history of rows [first_row, last_row) for all moments from ``earliest`` to ``latest``."""
        stores = self.stores
        undo = [file for file in reversed(stores.undo) if file.last_timestamp > earliest]
        redo = [file for file in stores.redo if file.first_timestamp <= latest]
        logs = [log for store in stores.memory if (log := store.log(column_id))]
        return History(
            [run for file in undo if (run := file.run(column_id, first_row, last_row))],
            [run for file in redo if (run := file.run(column_id, first_row, last_row))]
            + [run for log in logs for run in log.runs(first_row, last_row)],
        )

    def last_change(self, column_id: int) -> int:
        """Return the timestamp of the newest delta of a column; 0 when there is none."""
        stores = self.stores
        in_files = [file.last_change(column_id) for file in (*stores.undo, *stores.redo)]
        logs = [log for store in stores.memory if (log := store.log(column_id))]
        return max([*in_files, *(log.last_change for log in logs)], default=0)

    def changes_at_most(self, column_id: int, snapshot: int) -> int:
        """Return in how many cells of a column deltas may change the base to what ``snapshot`` sees, at most."""
        stores = self.stores
        if snapshot < self.base_timestamp(column_id):
            return sum(file.metadata.deltas.get(column_id, 0) for file in stores.undo)
        in_files = sum(file.metadata.deltas.get(column_id, 0) for file in stores.redo)
        return in_files + sum(len(log) for store in stores.memory if (log := store.log(column_id)))

    @property
    def row_changes(self) -> int:
        """About how many row changes there are, each counted once for all its columns."""
        in_files = sum(max(file.metadata.deltas.values(), default=0) for file in self.files)
        return in_files + sum(max(store.counts().values(), default=0) for store in self.stores.memory)

    def freeze(self) -> DeltaMemStore | None:
        """Set the active store aside for writing and start a new one; None if there is nothing to write."""
        if self.frozen:
            return self.frozen
        if not self.active:
            return None
        self.stores = replace(self.stores, memory=(self.active, DeltaMemStore()))
        return self.frozen

    def flushed(self, redo: tuple[DeltaFile, ...]) -> DeltaTracker:
        """Return a tracker without the frozen store, whose deltas are now in the files ``redo``."""
        tracker = self.successor(redo=redo)
        tracker.stores = replace(tracker.stores, memory=(self.active,))
        return tracker

    @property
    def first_lsn(self) -> int | None:
        """The oldest log position of a delta that is in no file; None if all are."""
        return next((store.first_lsn for store in self.stores.memory if store.first_lsn is not None), None)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the DeltaMemStores."""
        return sum(store.nbytes for store in self.stores.memory)

    @property
    def files(self) -> tuple[DeltaFile, ...]:
        return (*self.stores.undo, *self.stores.redo)

    def close(self) -> None:
        for file in self.files:
            file.close()


def _logs(stores: DeltaStores, column_ids: Collection[int] | None = None) -> list[DeltaLog]:
    """Return the logs in memory of liveness and of the given columns, by default all."""
    return [
        log
        for store in stores.memory
        for column_id in store.column_ids
        if (column_ids is None or column_id == LIVE or column_id in column_ids) and (log := store.log(column_id))
    ]


def _redo_patches(
    stores: DeltaStores, column_id: int, first: int, last: int, snapshot: int, is_scan: bool
) -> list[Patch]:
    patches: list[Patch] = []
    for file in stores.redo:
        if file.first_timestamp <= snapshot and (pages := file.pages(column_id)):
            patches += pages.redo(first, last, snapshot, is_scan)
    for store in stores.memory:
        if log := store.log(column_id):
            patches += log.patches(first, last, snapshot)
    return patches


def _undo_patches(
    stores: DeltaStores, column_id: int, first: int, last: int, snapshot: int, is_scan: bool
) -> list[Patch]:
    """Newest file first, so that the first change after the snapshot wins."""
    patches: list[Patch] = []
    for file in reversed(stores.undo):
        if file.last_timestamp > snapshot and (pages := file.pages(column_id)):
            patches += pages.undo(first, last, snapshot, is_scan)
    return patches
