"""Tablet: one MemRowSet and many DiskRowSets that share a key space. Entry points: ``decide``, ``apply``, the version.

Locking. ``write_lock`` serialises writers, from the look-up of a batch's keys until its changes are in the stores, so
that a decision still holds when it is applied. Readers take it only to look up keys. A flush or compaction takes it
only for moments. ``key_lookup`` knows the locations of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...schemas.errors import CorruptionError, SnapshotTooOldError
from ...schemas.rows.operation import Operation
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import WHOLE, TabletPartition
from ...schemas.table.table import TableSchema
from .. import threads
from ..delta import LIVE
from ..filter.expiry import Expiry
from ..manifest.key_budget import KeyIndexBudget, unlimited
from ..record.change import Change, ChangeKind
from ..rowset.diskrowset import NEWEST, DiskRowSet
from ..rowset.location import by_slot, pack, rowids_of
from ..rowset.memrowset import FULL_ROWS, MemRowSet
from ..rowset.rowset import RowSet
from ..vectors.arrow import from_arrow, to_arrow
from ..vectors.keys.keys import KeyEncoder, KeyVector, hash_keys, take_keys
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import FixedVector, Vector, conformed
from .changed import changed_after
from .key_lookup import KeyLookup
from .ordering import ranks_of
from .outcome import Outcome, Shape, decide
from .slots import Slots
from .version import Version


class Tablet:
    """One open tablet. For thread safety see the module."""

    def __init__(
        self,
        tablet_id: int,
        schema: TableSchema,
        budget: KeyIndexBudget | None = None,
        partition: TabletPartition = WHOLE,
        directory_id: int | None = None,
        ancestors: tuple[int, ...] = (),
        elsewhere: str | None = None,
    ) -> None:
        """Make an empty tablet, whose key index takes memory from ``budget``; None is unlimited."""
        self.tablet_id = tablet_id
        self.directory_id = directory_id or tablet_id
        """The number of the directory with its files."""
        self.ancestors = ancestors
        """The tablets that it was split from."""
        self.elsewhere = elsewhere
        """The other server that has its rows, if any; this tablet is then empty, and stays so."""
        self.aliases: tuple[int, ...] = ()
        """The numbers that it had here before it moved to another server or back."""
        self.quarantine: CorruptionError | None = None
        """The error for scans and writes if its files cannot be opened; this tablet is then empty."""
        self.is_closed: Callable[[], bool] | None = None
        """Whether writers must retry later because it is about to move; None: it is not."""
        self.partition = partition
        """The part of the table's rows that it holds."""
        self.schema = schema
        self.encoder = KeyEncoder([physical_of(column.logical.arrow) for column in schema.key])
        self.write_lock = threads.Lock()
        self.maintenance_lock = threads.Lock()
        """Held by the running flush or compaction."""
        self.flush_failures: dict[str, str] = {}
        """Why its rows or changes in memory could not be flushed when that was last tried, by the kind of flush."""
        self.retired: str | None = None
        """Why no more maintenance may begin; set under the maintenance lock when the tablet is dropped or closed."""
        self.last_timestamp = 0
        """The newest commit in the stores."""
        self.last_lsn = 0
        self.inserts_durable_lsn = 0
        """New rows up to this log position are in base files."""
        self.in_files_lsn = 0
        """All changes up to this log position were in files when the tablet opened: a replay skips them."""
        self._slots = Slots(tablet_id)
        self.key_lookup = KeyLookup(self._slots, budget or unlimited())
        self.version = Version(self.new_memrowset())
        self.being_replaced: tuple[DiskRowSet, ...] = ()
        """The rowsets being merged, until the version has the new ones."""
        self.handed_out: str | None = None
        """The outside compaction that has rowsets of the tablet; until it ends, maintenance only flushes."""
        self.rows_read = 0
        """About how many rows scans and look-ups have read since the tablet was opened here."""
        self.rows_written = 0
        """How many rows writes have changed since then; those of a replay included."""
        self._watches: list[list[np.ndarray]] = []
        self._replayed_from: int | None = None

    # Rowsets and their slots

    def set_in_quarantine(self, why: CorruptionError) -> None:
        """Show and accept nothing from now on. The tablet must not be in use yet.

        Its files, and the log that they do not cover, are left for a repair.
        """
        floor = self.version.history_floor
        self.close()
        self._slots = Slots(self.tablet_id)
        self.key_lookup = KeyLookup(self._slots, unlimited())
        self.version = replace(Version(self.new_memrowset()), history_floor=floor)
        self.quarantine = why

    def check_sound(self) -> None:
        """Raise CorruptionError when the tablet is in quarantine."""
        if self.quarantine:
            raise CorruptionError(self.quarantine.path, self.quarantine.offset, self.quarantine.why)

    def new_memrowset(self, schema: TableSchema | None = None) -> MemRowSet:
        """Return an empty MemRowSet in its own slot, with ``schema`` instead of the tablet's if given."""
        memrowset = MemRowSet(self.free_slot(), (schema or self.schema).columns, self.encoder)
        self.take_slot(memrowset)
        return memrowset

    def set_aside(self, successor: MemRowSet) -> None:
        """Make ``successor`` the active MemRowSet, under the write lock; the old one waits to be flushed."""
        version = self.version
        active, frozen = version.active, version.frozen
        if len(active):
            active.complete_at_lsn = self.last_lsn
            frozen = (*frozen, active)
        else:
            self.drop_slot(active.slot)
        self.version = replace(version, active=successor, frozen=frozen)

    def make_room(self, lsn: int) -> None:
        """Set a full MemRowSet aside, under the write lock, if nothing of the commit ``lsn`` is applied yet."""
        if len(self.version.active) >= FULL_ROWS and lsn > self.last_lsn:
            self.set_aside(self.new_memrowset())

    def free_slot(self) -> int:
        """Return an unused slot. Raises UnavailableError if the tablet has too many rowsets."""
        return self._slots.free()

    def take_slot(self, rowset: RowSet) -> None:
        """Register ``rowset`` under its slot."""
        self._slots.take(rowset.slot, rowset)

    def drop_slot(self, slot: int) -> None:
        """Clear a slot that no location names."""
        self._slots.drop(slot)

    def rowset(self, slot: int) -> RowSet:
        """Return the rowset in a used slot."""
        return self._slots.rowset(slot)

    def rowset_at(self, slot: int) -> RowSet | None:
        """Return the rowset in a used slot, None if its rows have moved."""
        return self._slots.rowset_at(slot)

    def add_diskrowset(self, rowset: DiskRowSet) -> None:
        """Add a rowset while the tablet opens."""
        self.take_slot(rowset)
        self.version = replace(self.version, disk=(*self.version.disk, rowset))

    def adopt(self, rowset: DiskRowSet) -> None:
        """Take over a rowset of another tablet unchanged, with its memory stores, before this one is in use."""
        mine = rowset.with_files(rowset.deltas)
        mine.slot = self.free_slot()
        self.add_diskrowset(mine)

    def replace_diskrowset(self, old: DiskRowSet, new: DiskRowSet, history_floor: int = 0) -> None:
        """Replace ``old`` by ``new``, which has the same rows and slot; under the write lock.

        Running scans keep ``old``; snapshots below ``history_floor`` are rejected from now on.
        """
        self.take_slot(new)
        version = self.version
        self.version = replace(
            version,
            disk=tuple(new if rowset is old else rowset for rowset in version.disk),
            history_floor=max(version.history_floor, history_floor),
        )

    def remove_diskrowset(self, rowset: DiskRowSet, history_floor: int) -> np.ndarray:
        """Remove a rowset and its rows; under the write lock. Returns their new locations, all -1.

        Running scans keep it; snapshots below ``history_floor`` are rejected from now on.
        """
        nowhere = np.full(len(rowset), -1, np.int64)
        self.key_lookup.forward(rowset.slot, nowhere)
        version = self.version
        self.version = replace(
            version,
            disk=tuple(other for other in version.disk if other is not rowset),
            history_floor=max(version.history_floor, history_floor),
        )
        return nowhere

    # Rowsets that come from outside (`attach`), under the write lock

    def watch(self) -> list[np.ndarray]:
        """Return a list that collects the hashes of all keys added to the tablet from now on."""
        self._watches.append([])
        return self._watches[-1]

    def unwatch(self, watch: list[np.ndarray]) -> None:
        """Stop collecting in a list that ``watch`` returned."""
        self._watches = [other for other in self._watches if other is not watch]

    def attach(self, rowset: DiskRowSet, hashes: np.ndarray, timestamp: int, lsn: int) -> None:
        """Add a rowset that has a slot. All its keys, with these hashes, are new; all rows are inserted now."""
        rowset.bear(timestamp, lsn)
        self.version = replace(self.version, attached=(*self.version.attached, rowset))
        self._came(hashes)
        self.rows_written += len(hashes)
        self.last_timestamp = max(self.last_timestamp, timestamp)
        self.last_lsn = max(self.last_lsn, lsn)

    def name_attached(self, named: tuple[DiskRowSet, ...]) -> None:
        """Open the oldest attached rowsets to maintenance, since the manifest names them now."""
        version = self.version
        self.version = replace(version, disk=(*version.disk, *named), attached=version.attached[len(named) :])

    @property
    def is_watched(self) -> bool:
        """Whether new keys are collected."""
        return bool(self._watches)

    def _came(self, hashes: np.ndarray) -> None:
        for watch in self._watches:
            watch.append(hashes)

    # Look-ups, under the write lock

    def find(self, keys: KeyVector, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the location of each key (-1 if it has none) and whether its row is alive, expired or not."""
        locations = self.key_lookup.find(self.version, keys, hashes)
        return locations, self.are_stored(locations)

    def find_at(self, keys: KeyVector, hashes: np.ndarray, now: int) -> tuple[np.ndarray, np.ndarray]:
        """Do as ``find``, with rows that have expired at the moment ``now`` as dead."""
        locations, alive = self.find(keys, hashes)
        if (expiry := Expiry.of(self.schema)) is not None:
            stored = np.flatnonzero(alive)
            cells = self.newest_cells(expiry.column, locations[stored], expiry.column.logical.arrow)
            alive[stored] = ~expiry.are_gone(from_arrow(cells, expiry.physical), now)
        return locations, alive

    def are_stored(self, locations: np.ndarray) -> np.ndarray:
        """Return whether each location has a row that was not deleted, expired or not; -1 has none."""
        alive = np.zeros(len(locations), np.bool_)
        places = np.flatnonzero(locations >= 0)
        for slot, group in by_slot(locations[places]):
            rows = places[group]
            alive[rows] = self.rowset(slot).live.at(rowids_of(locations[rows]))
        return alive

    def changes_after(self, moment: int | None) -> Callable[[np.ndarray], np.ndarray] | None:
        """Return ``changed_after`` for a moment; None for None.

        Raises:
            SnapshotTooOldError: the tablet's history does not reach back to it.
        """
        if moment is None:
            return None
        if moment < self.version.history_floor:
            raise SnapshotTooOldError(
                f"if_timestamp {moment} is older than the history that the table keeps: read the rows again, and use "
                "the newer timestamp of that read"
            )
        return lambda locations: self.changed_after(locations, moment)

    def changed_after(self, locations: np.ndarray, moment: int) -> np.ndarray:
        """Return which rows at ``locations`` were inserted, changed or deleted after ``moment``; -1 counts as no."""
        changed = np.zeros(len(locations), np.bool_)
        known = np.flatnonzero(locations >= 0)
        for slot, group in by_slot(locations[known]):
            rows = known[group]
            changed[rows] = changed_after(self.rowset(slot), rowids_of(locations[rows]), moment, self.schema.by_id)
        return changed

    def decide(
        self,
        operation: Operation,
        keys: KeyVector,
        hashes: np.ndarray,
        first: np.ndarray,
        shape: Shape,
        now: int,
        unchanged_since: int | None = None,
        may_ignore_late: bool = True,
        order: pa.Array | None = None,
    ) -> Outcome:
        """Decide the outcome of a batch's rows; ``first``, ``shape`` and ``may_ignore_late`` as in `outcome.decide`.

        Rows that have expired at the moment ``now`` are as dead. Rows that changed after the timestamp
        ``unchanged_since`` are refused. ``order`` has the rows' cells of the column that orders changes, None if the
        batch has none.

        Raises:
            SnapshotTooOldError: the tablet's history does not reach back to it.
        """
        is_late = self.changes_after(unchanged_since)

        def find(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if len(rows) == len(hashes):
                return self.find_at(keys, hashes, now)
            return self.find_at(take_keys(keys, rows), hashes[rows], now)

        def ranked(rows: np.ndarray, locations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            assert order is not None, "asked for only then"
            assert self.schema.ordering is not None, "rows have an order"
            mine, theirs = ranks_of([order, self.newest_cells(self.schema.ordering, locations, order.type)])
            return mine, theirs

        ranker = None if order is None else ranked
        return decide(operation, first, find, shape, is_late, may_ignore_late, ranker, self.are_stored)

    def newest_cells(self, column: ColumnSchema, locations: np.ndarray, kind: pa.DataType) -> pa.Array:
        """Return the newest cells of a column, dead rows' included; NULL at location -1. They have the Arrow type
        ``kind``."""
        places = np.zeros(len(locations), np.int64)
        parts, count = [pa.nulls(1, kind)], 1
        rows = np.flatnonzero(locations >= 0)
        for slot, group in by_slot(locations[rows]):
            rowids, order = np.unique(rowids_of(locations[rows[group]]), return_inverse=True)
            parts.append(to_arrow(self.rowset(slot).gather(column, rowids, NEWEST), kind))
            places[rows[group]] = count + order
            count += len(rowids)
        return pa.concat_arrays(parts).take(pa.array(places))

    def newest_of(self, column: ColumnSchema, rows: np.ndarray, locations: np.ndarray) -> pa.Array:
        """Return the newest cells of a column at ``locations``, where ``rows`` of a batch have their keys."""
        del rows
        return self.newest_cells(column, locations, column.logical.arrow)

    # Changes, under the write lock

    def apply(self, change: Change, locations: np.ndarray, timestamp: int, lsn: int) -> None:
        """Apply a change to the stores. ``locations`` are those of its keys, -1 for a new row, or one that the same
        commit has stored before it deletes it."""
        self.apply_cells(change.kind, change.cells, locations, timestamp, lsn)

    def apply_cells(
        self,
        kind: ChangeKind,
        cells: Mapping[int, Vector],
        locations: np.ndarray,
        timestamp: int,
        lsn: int,
    ) -> None:
        """Apply a change of this kind, whose cells are given by column id; else like ``apply``."""
        self.make_room(lsn)
        if kind is ChangeKind.STORE:
            self._store(cells, locations, timestamp, lsn)
        elif kind is ChangeKind.UPDATE:
            self._append_deltas(cells, locations, timestamp, lsn, None)
        else:
            if (locations < 0).any():
                locations = self._with_stored(locations, [cells[column.id] for column in self.schema.key])
            self._append_deltas({}, locations, timestamp, lsn, False)
        self.rows_written += len(locations)
        self.last_timestamp = max(self.last_timestamp, timestamp)
        self.last_lsn = max(self.last_lsn, lsn)

    def insert(self, cells: Mapping[int, Vector], keys: KeyVector, timestamp: int | np.ndarray, lsn: int) -> None:
        """Append new rows with these keys to the active MemRowSet. In a replay each row has a ``timestamp`` (int64) of
        its own, ascending; else as ``apply``."""
        self.version.active.insert(cells, keys, timestamp, lsn)
        if self._watches:
            self._came(hash_keys(keys))

    # The log

    def replays(self, lsn: int) -> None:
        """Register that files may lack a change that the replay has reached."""
        self._replayed_from = self._replayed_from or lsn

    def stand_at(self, timestamp: int, lsn: int) -> None:
        """Set the position of the replay in the log.

        Some files may cover more; but a flush during the replay must not claim records that are still to come.
        """
        self.last_timestamp, self.last_lsn = timestamp, lsn

    # State

    @property
    def live_rows(self) -> int:
        return sum(rowset.live.live_count for rowset in self.version.rowsets())

    @property
    def size_bytes(self) -> int:
        """The bytes of its files, and of its unflushed rows and changes in memory."""
        return sum(rowset.bytes_on_disk for rowset in self.version.on_disk) + self.unflushed_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in memory or on disk to work on."""
        version = self.version
        return not (version.on_disk or version.frozen or len(version.active))

    @property
    def memory_bytes(self) -> int:
        version = self.version
        deltas = sum(rowset.deltas.memory_bytes for rowset in version.on_disk)
        return deltas + sum(memrowset.nbytes for memrowset in version.in_memory)

    @property
    def unflushed_bytes(self) -> int:
        """The bytes that flushes free: empty stores take memory too."""
        version = self.version
        deltas = sum(rowset.deltas.memory_bytes for rowset in version.on_disk)
        return deltas + sum(memrowset.nbytes for memrowset in version.in_memory if len(memrowset))

    @property
    def flushing_bytes(self) -> int:
        """Bytes that running work takes, or will take by its end: sorted copies of changes being flushed, and of
        changes carried over to new rowsets. Rows are flushed a page at a time."""
        version = self.version
        stores = [rowset.deltas.frozen for rowset in version.disk]
        deltas = sum(store.nbytes for store in stores if store is not None)
        known = {id(rowset) for rowset in version.rowsets()}
        coming = [place for place in self._slots.taken() if isinstance(place, DiskRowSet) and id(place) not in known]
        carried = sum(rowset.deltas.memory_bytes for rowset in coming)
        being_replaced = sum(rowset.deltas.memory_bytes for rowset in (*self.being_replaced, *version.frozen))
        return deltas + max(carried, being_replaced)

    def first_unflushed_lsn(self) -> int | None:
        """Return the oldest log position that a memory store, or a repair, still needs; under the write lock."""
        if self.quarantine:
            return self._replayed_from
        version = self.version
        positions = [memrowset.first_lsn for memrowset in version.in_memory]
        positions += [rowset.deltas.first_lsn for rowset in version.on_disk]
        positions += [rowset.durable_lsn for rowset in version.attached]
        return min((lsn for lsn in positions if lsn is not None), default=None)

    def close(self) -> None:
        """Close the files and release the index's memory."""
        self.key_lookup.release()
        for rowset in self.version.on_disk:
            rowset.close()

    # Inner workings

    def _store(self, cells: Mapping[int, Vector], locations: np.ndarray, timestamp: int, lsn: int) -> None:
        new = np.flatnonzero(locations < 0)
        if len(new) == len(locations):
            self._insert(cells, timestamp, lsn)
            return
        if len(new):
            first = {column_id: vector.take(new) for column_id, vector in cells.items()}
            self._insert(first, timestamp, lsn)
        old = np.flatnonzero(locations >= 0)
        revived = {column_id: vector.take(old) for column_id, vector in cells.items()}
        self._append_deltas(revived, locations[old], timestamp, lsn, True)

    def _with_stored(self, locations: np.ndarray, key: Sequence[Vector]) -> np.ndarray:
        """Return ``locations`` with those of keys that this commit has stored: in the active MemRowSet, or in a rowset
        that came with it. No older file is read for the others: the commit is logged, and a read may fail."""
        new = np.flatnonzero(locations < 0)
        keys = self.encoder.encode([vector.take(new) for vector in key])
        active, hashes = self.version.active, hash_keys(keys)
        rows = active.find(keys, hashes)
        completed = locations.copy()
        completed[new] = pack(active.slot, rows) if (rows >= 0).all() else self.find(keys, hashes)[0]
        return completed

    def _insert(self, cells: Mapping[int, Vector], timestamp: int, lsn: int) -> None:
        keys = self.encoder.encode([cells[column.id] for column in self.schema.key])
        self.insert(cells, keys, timestamp, lsn)

    def _append_deltas(
        self,
        cells: Mapping[int, Vector],
        locations: np.ndarray,
        timestamp: int,
        lsn: int,
        alive: bool | None,
    ) -> None:
        """Add new cells, and a new liveness unless ``alive`` is None, for rows with a location."""
        values = {column.id: column for column in self.schema.values if column.id in cells}
        if not values and alive is None:
            return  # all of its columns were dropped after it was logged
        for slot, group in by_slot(locations):
            rowset, rowids = self.rowset(slot), rowids_of(locations[group])
            whole = len(group) == len(locations)
            columns: dict[int, tuple[PhysicalType, Vector]] = {}
            for column_id, column in values.items():
                physical = physical_of(column.logical.arrow)
                part = cells[column_id] if whole else cells[column_id].take(group)
                columns[column_id] = (physical, conformed(part, physical))
            if alive is not None:
                columns[LIVE] = (PhysicalType.BOOL, FixedVector(np.full(len(group), alive, np.uint8)))
                rowset.live.set(rowids, alive)
            timestamps = FixedVector(np.full(len(group), timestamp, np.int64))
            rowset.deltas.active.append(FixedVector(rowids.astype(np.int32)), timestamps, columns, lsn)
