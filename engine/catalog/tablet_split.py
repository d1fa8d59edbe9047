"""Split a tablet in two by range, beside its writers.

 1. ``prepare`` flushes rows in memory. It rewrites DiskRowSets with rows of both sides as two, each on one side, by an
    ordinary merge; nothing else is rewritten. This happens within the old tablet, which a crash leaves intact. Then the
    two new tablets, not visible yet, adopt the DiskRowSets of their sides with files and deltas in memory, and index
    their keys. Rows that have come to the MemRowSet since are copied (`split_rows`). Rounds repeat until little is
    left.
 2. ``take_over`` copies the last few rows and changes under the write lock; then the new tablets are complete. The
    files stay in their directory, which the new tablets share.

The log still holds rows of the old tablet that are in no file: a replay brings them to the new ones (`ancestors` in
the manifest).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...schemas.errors import CorruptionError
from ...schemas.table.altered import TableState
from ...schemas.table.partition_schema import PartitionSchema, RangeSplit, TabletPartition
from ...schemas.table.table import TableSchema
from ..codecs.codec import PAGE_ROWS
from ..compaction.flush import flush_memrowset
from ..compaction.merge import compact
from ..compaction.merge_rows import RowFilter
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..partition.router import Router, cell_of
from ..rowset.diskrowset import DiskRowSet
from ..rowset.memrowset import MemRowSet
from ..tablet.attach import name_attached
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from ..vectors.vector import Vector
from .split_rows import SplitRows

_ROWS_IN_MEMORY = 1 << 15
"""The most rows to copy from memory to memory; more are flushed."""
LITTLE = 1 << 11
"""The most rows and changed cells to copy under the lock at first."""
_ROUNDS = 8
"""The most rounds, of flushes or of copies. After them, writers are faster than the split and must wait."""


class TabletSplit:
    """The split of one tablet by an alteration of its table. The caller holds its maintenance lock."""

    def __init__(self, tablet: Tablet, environment: Environment, state: TableState, split: RangeSplit) -> None:
        """``state`` is that of the table after the split."""
        self.tablet = tablet
        self._environment = environment
        self._split = split
        self._columns = state.partitions.range_keys(tablet.schema)
        self._sides = _router_of(state.partitions, split, tablet.schema)
        self._side_of: dict[int, int] = {}
        """By id, the side of each DiskRowSet whose rows are on one side."""
        self._adopted: list[DiskRowSet] = []
        self.halves = [self._half(state.schema, partition) for partition in self._partitions]
        """The two new tablets."""
        self._rows = self._copy_of(tablet.version.active)

    def prepare(self, little: int) -> None:
        """Write rows to disk, each DiskRowSet on one side, and fill the halves until ``little`` is left.

        Needs no lock.

        Raises:
            StorageFullError: the disk is full; the tablet is unchanged, or flushed and compacted.
            UnavailableError: the log or the manifest has failed.
        """
        tablet, environment = self.tablet, self._environment
        for _ in range(_ROUNDS):
            name_attached(tablet, environment)
            while self._rows_in_memory > _ROWS_IN_MEMORY or tablet.version.frozen:
                flush_memrowset(tablet, environment)
            while straddling := [rowset for rowset in tablet.version.disk if not self._is_on_one_side(rowset)]:
                for rowset in straddling:
                    compact(tablet, environment, {rowset.rowset_id}, parts=[self._of_side(0), self._of_side(1)])
            self._adopt(tablet.version)
            self._copy_rows(tablet.version, little)
            if self.is_ready(little):
                return

    def is_ready(self, little: int) -> bool:
        """Whether the new tablets can take over by copying ``little``; it stays so under the write lock."""
        version = self.tablet.version
        is_same = version.active is self._rows.source and version.disk == tuple(self._adopted)
        return is_same and not version.frozen and not version.attached and self._rows.missing <= little

    def take_over(self) -> None:
        """Complete the two new tablets, under the old one's write lock."""
        tablet = self.tablet
        self._rows.carry_over()
        for half in self.halves:
            half.last_timestamp, half.last_lsn = tablet.last_timestamp, tablet.last_lsn
            half.inserts_durable_lsn = tablet.inserts_durable_lsn
            half.version = replace(half.version, history_floor=tablet.version.history_floor)

    def entries(self, old: TabletEntry) -> tuple[TabletEntry, ...]:
        """Return the manifest's entries of the new tablets."""
        return tuple(
            old.model_copy(
                update={
                    "id": half.tablet_id,
                    "partition": half.partition,
                    "directory": half.directory_id,
                    "ancestors": half.ancestors,
                    "aliases": (),
                    "moved": None,
                    "rowsets": tuple(each for each in old.rowsets if self._side_of[each.id] == side),
                }
            )
            for side, half in enumerate(self.halves)
        )

    def give_up(self) -> None:
        """Release the memory of the halves' indexes, as they will not be used."""
        for half in self.halves:
            half.key_lookup.release()

    @property
    def _partitions(self) -> tuple[TabletPartition, TabletPartition]:
        whole, at = self.tablet.partition, self._split.at
        return whole.model_copy(update={"upper": at}), whole.model_copy(update={"lower": at})

    def _half(self, schema: TableSchema, partition: TabletPartition) -> Tablet:
        old, environment = self.tablet, self._environment
        ancestors, budget = (*old.ancestors, old.tablet_id), environment.key_index
        number, directory = environment.manifest.new_id(), old.directory_id
        return Tablet(number, schema, budget, partition, directory, ancestors, old.elsewhere)

    def _adopt(self, version: Version) -> None:
        """Give the halves the DiskRowSets that they lack, and index their keys.

        Rowsets they have stay valid: anything that would replace one waits for the maintenance lock.
        """
        for rowset in version.disk[len(self._adopted) :]:
            self.halves[self._side_of[rowset.rowset_id]].adopt(rowset)
            self._adopted.append(rowset)
        for half in self.halves:
            index_keys(half)

    def _copy_rows(self, version: Version, little: int) -> None:
        if version.active is not self._rows.source:  # the copied rows are on disk now
            for half in self.halves:
                slot = half.version.active.slot
                half.version = replace(half.version, active=half.new_memrowset())
                half.drop_slot(slot)
            self._rows = self._copy_of(version.active)
        for _ in range(_ROUNDS):
            if self._rows.carry_over() <= little // 2:
                return

    def _copy_of(self, source: MemRowSet) -> SplitRows:
        return SplitRows(source, [half.version.active for half in self.halves], self._sides, self.tablet.schema.columns)

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
        """Return the side that all rows are on, if zone maps of the first range column show it.

        Keys never change, so zone maps hold whatever deltas there are.
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
        """Return the side that all rows are on, None if they are on both."""
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


def index_keys(tablet: Tablet) -> None:
    """Index the keys of a tablet that a split has made, as far as memory allows, so that its first writers need not
    wait or search."""
    while True:
        try:
            tablet.key_lookup.build(tablet.version, tablet.write_lock)
        except CorruptionError:  # its rowset is excluded from now on: a search may not need the corrupt page
            continue
        return


def _router_of(partitions: PartitionSchema, split: RangeSplit, schema: TableSchema) -> Router:
    """Return a router that numbers rows by their side, 0 below the split and 1 from it on."""
    below, above = (each.model_copy(update={"hash": ()}) for each in split.halves)
    two = partitions.model_copy(update={"hash": (), "ranges": (below, above)})
    return Router(two, schema, list(two.tablets()))
