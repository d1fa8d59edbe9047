"""Divide a tablet in two by range, beside its writers: what it takes before and while two tablets take its place.

 1. ``prepare``: rows in memory are flushed, and DiskRowSets that have rows of both sides are rewritten as two, each on
    one side, by a merge like any other. That is all that is rewritten, it is done within the old tablet, and a crash
    leaves that tablet. What was written meanwhile is left for another round, until there is little.
 2. Under the write lock, ``take_over``: the two new tablets get the DiskRowSets of their sides as they are, files,
    deltas in memory and all; the few rows that came to the MemRowSet since are copied with their changes, by the
    timestamps that they have. The files stay in the directory that they are in, which the new tablets share.

The log still tells of rows of the old tablet that are in no file: a replay brings them to the new ones (`ancestors` in
the manifest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...schemas.partition_schema import PartitionSchema, RangeSplit, TabletPartition
from ...schemas.table import TableSchema
from ..codecs.codec import PAGE_ROWS
from ..delta.run import DeltaRun
from ..partition.router import Router, cell_of
from ..rowset.diskrowset import DiskRowSet
from ..rowset.memrowset import MemRowSet
from ..tablet.attach import name_attached
from ..tablet.environment import Environment
from ..tablet.manifest import TabletEntry
from ..tablet.tablet import Tablet
from ..vectors.keys import take_keys
from ..vectors.vector import FixedVector, Vector, stored_as
from .flush import flush_memrowset
from .merge import RowFilter, compact

_ROWS_IN_MEMORY = 1 << 11
"""So many rows may be copied under the lock."""
_ROUNDS = 8
"""After so many rounds writers are faster than we are, and wait once."""


class Division:
    """The division of one tablet, by whoever holds its maintenance lock."""

    def __init__(
        self, tablet: Tablet, environment: Environment, partitions: PartitionSchema, split: RangeSplit
    ) -> None:
        """``partitions`` are those of the table after the split."""
        self.tablet = tablet
        self._environment = environment
        self._split = split
        self._columns = partitions.range_keys(tablet.schema)
        self._sides = _router_of(partitions, split, tablet.schema)
        self._side_of: dict[int, int] = {}
        """The side of each DiskRowSet whose rows are on one, by its id."""

    @property
    def partitions(self) -> tuple[TabletPartition, TabletPartition]:
        """What the two new tablets hold."""
        whole, at = self.tablet.partition, self._split.at
        return whole.model_copy(update={"upper": at}), whole.model_copy(update={"lower": at})

    def prepare(self) -> None:
        """Bring rows to disk, each DiskRowSet on one side, until there is little left. Needs no lock.

        Raises:
            StorageFullError: the disk is full; the tablet is as it was, or flushed and compacted.
            UnavailableError: the log or the manifest has failed.
        """
        tablet, environment = self.tablet, self._environment
        for _ in range(_ROUNDS):
            name_attached(tablet, environment)
            while self._rows_in_memory > _ROWS_IN_MEMORY or tablet.version.frozen:
                flush_memrowset(tablet, environment)
            for rowset in tablet.version.disk:
                if not self._is_on_one_side(rowset):
                    compact(tablet, environment, {rowset.rowset_id}, parts=[self._of_side(0), self._of_side(1)])
            if self.is_ready:
                return

    @property
    def is_ready(self) -> bool:
        """Whether the new tablets can take over what there is; it stays so under the write lock."""
        version = self.tablet.version
        is_little = self._rows_in_memory <= 2 * _ROWS_IN_MEMORY and not version.frozen
        return is_little and not version.attached and all(each.rowset_id in self._side_of for each in version.disk)

    def take_over(self, heirs: Sequence[Tablet]) -> None:
        """Fill the two new tablets, which nobody knows yet, under the old one's write lock."""
        tablet = self.tablet
        for heir in heirs:
            heir.last_timestamp, heir.last_lsn = tablet.last_timestamp, tablet.last_lsn
            heir.inserts_durable_lsn = tablet.inserts_durable_lsn
            heir.version = replace(heir.version, history_floor=tablet.version.history_floor)
        for rowset in tablet.version.disk:
            heirs[self._side_of[rowset.rowset_id]].adopt(rowset)
        for memrowset in tablet.version.in_memory:
            if len(memrowset):
                self._copy(memrowset, [heir.version.active for heir in heirs])

    def entries(self, old: TabletEntry, heirs: Sequence[Tablet]) -> tuple[TabletEntry, ...]:
        """Return the manifest's entries of the new tablets."""
        return tuple(
            old.model_copy(
                update={
                    "id": heir.tablet_id,
                    "partition": heir.partition,
                    "directory": heir.directory_id,
                    "ancestors": heir.ancestors,
                    "rowsets": tuple(each for each in old.rowsets if self._side_of[each.id] == side),
                }
            )
            for side, heir in enumerate(heirs)
        )

    @property
    def _rows_in_memory(self) -> int:
        return sum(map(len, self.tablet.version.in_memory))

    def _is_on_one_side(self, rowset: DiskRowSet) -> bool:
        if rowset.rowset_id not in self._side_of:
            side = self._side_by_zones(rowset)
            if side is None:
                side = self._side_by_rows(rowset)
            if side is None:
                return False
            self._side_of[rowset.rowset_id] = side
        return True

    def _side_by_zones(self, rowset: DiskRowSet) -> int | None:
        """Return the side that all rows are on as far as zone maps of the first range column tell.

        Keys never change, hence these are true whatever deltas there are.
        """
        column = self._columns[0]
        at = cell_of(self._split.at[0], column)
        zones = rowset.zone_maps(column.id, 0, len(rowset))
        if zones and all(type(zone.max) is type(at) and zone.max < at for zone in zones):  # type: ignore[operator]
            return 0
        if zones and all(type(zone.min) is type(at) and zone.min > at for zone in zones):  # type: ignore[operator]
            return 1
        return None

    def _side_by_rows(self, rowset: DiskRowSet) -> int | None:
        """Return the side that all rows are on, None for both."""
        seen: set[int] = set()
        for first in range(0, len(rowset), PAGE_ROWS):
            last = min(first + PAGE_ROWS, len(rowset))
            cells = {column.id: rowset.base(column, first, last) for column in self._columns}
            seen |= set(np.unique(self._sides.numbers_of_cells(cells, last - first)).tolist())
            if len(seen) > 1:
                return None
        return seen.pop()

    def _of_side(self, side: int) -> RowFilter:
        def wanted(cells: Mapping[int, Vector], count: int) -> np.ndarray:
            return self._sides.numbers_of_cells(cells, count) == side

        return wanted

    def _copy(self, memrowset: MemRowSet, targets: Sequence[MemRowSet]) -> None:
        """Copy rows and changes of a MemRowSet to those of the new tablets."""
        schema, count = self.tablet.schema, len(memrowset)
        cells = {column.id: memrowset.base(column, 0, count) for column in schema.columns}
        sides = self._sides.numbers_of_cells(cells, count)
        changes = memrowset.deltas.active.until(memrowset.deltas.active.counts())
        for side, target in enumerate(targets):
            rows = np.flatnonzero(sides == side)
            if not len(rows):
                continue
            chosen = {column_id: vector.take(rows) for column_id, vector in cells.items()}
            keys, born = take_keys(memrowset.keys(count), rows), memrowset.inserted_at(count)[rows]
            place = np.full(count, -1, np.int32)
            place[rows] = target.insert(chosen, keys, born, memrowset.first_lsn or 0)
            for column_id, run in changes.items():
                _append(target, column_id, run, place, memrowset.deltas.active.first_lsn or 0)
            target.live.set(place[rows[~memrowset.live.at(rows)]], False)


def _append(target: MemRowSet, column_id: int, run: DeltaRun, place: np.ndarray, lsn: int) -> None:
    """Add those changes whose rows have a place; runs are sorted by row, and places keep their order."""
    mine = run.take(np.flatnonzero(place[run.rowids] >= 0))
    if mine:
        columns = {column_id: (stored_as(mine.values), mine.values)}
        target.deltas.active.append(FixedVector(place[mine.rowids]), FixedVector(mine.timestamps), columns, lsn)


def _router_of(partitions: PartitionSchema, split: RangeSplit, schema: TableSchema) -> Router:
    """Return what numbers rows by their side, 0 below the split and 1 from it on."""
    below, above = (each.model_copy(update={"hash": ()}) for each in split.halves)
    two = partitions.model_copy(update={"hash": (), "ranges": (below, above)})
    return Router(two, schema, list(two.tablets()))
