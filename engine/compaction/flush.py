"""Flush a MemRowSet: write its rows as a DiskRowSet that every snapshot reads the same.

 1. Under the write lock, set the MemRowSet aside and start a new one. Its rows are complete now; updates and deletes
    of them go on into its DeltaMemStore. Take a mark of that store and the newest timestamp F in the tablet.
 2. Wait until everything up to F is durable.
 3. Write the rows in key order as they are at F (base file) and what takes each back to before (UNDO file): the insert
    of a row is undone by making it dead before its timestamp.
 4. Commit both files to the manifest. A crash before leaves the rows to the log, a crash after finds them in the files.
 5. Carry over the deltas that came after the mark, their rows renumbered, and put the new version in place (`swap`).

A failure before 4 removes the files and leaves the MemRowSet as it was, frozen; the next flush takes it again. One
between 4 and the end of 5 halts the store, for the rows are in the files and in memory then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...schemas.table import TableSchema
from ..delta import LIVE
from ..delta.file import write_delta_file
from ..delta.run import DeltaRun, invert
from ..rowset.base_file import write_base_file
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import pack
from ..rowset.memrowset import MemRowSet
from ..tablet import files
from ..tablet.environment import Environment
from ..tablet.manifest import RowsetEntry, TabletEntry
from ..tablet.open import open_rowset
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from ..vectors.keys import take_keys
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector, zeros
from .rewrite import NewFiles, new_files
from .swap import MovedRowSet, Swap

_FAILED = "the rows in memory could not be flushed and stay in the log"


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """The moment at which a MemRowSet is written."""

    memrowset: MemRowSet
    deltas: dict[int, int]
    timestamp: int
    lsn: int
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush or compaction wrote, and what it made unnecessary; ``rows`` are rows or deltas."""

    rows: int
    bytes_written: int
    bytes_freed: int = 0


def flush_memrowset(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush the oldest MemRowSet of a tablet; None when there are no rows. One caller at a time for a tablet.

    Raises:
        StorageFullError: the disk is full; nothing is lost.
        UnavailableError: the log or the manifest has failed.
    """
    mark = _freeze(tablet)
    if mark is None:
        return None
    environment.wait_until_settled(mark.timestamp, mark.lsn)
    order = mark.memrowset.key_order(0, len(mark.memrowset))
    assert order is not None, "a MemRowSet stands in the order of arrival"
    rowset = _write(tablet, environment, mark, order)
    return FlushReport(len(rowset), rowset.size_bytes + sum(file.size_bytes for file in rowset.deltas.files))


def _freeze(tablet: Tablet) -> _Mark | None:
    with tablet.write_lock:
        version = tablet.version
        if not version.frozen:
            if not len(version.active):
                return None
            tablet.set_aside(tablet.new_memrowset())
            version = tablet.version
        oldest = version.frozen[0]
        tablet.free_slot()  # if there is none left for the new rowset, nothing is written
        counts = oldest.deltas.active.counts()
        return _Mark(oldest, counts, tablet.last_timestamp, tablet.last_lsn, tablet.schema)


def _write(tablet: Tablet, environment: Environment, mark: _Mark, order: np.ndarray) -> DiskRowSet:
    """Write base and UNDO file, commit them, and put the rowset in the place of the MemRowSet."""
    with new_files(tablet, environment, _FAILED) as new:
        entry, rowset = _write_files(tablet, environment, mark, order, new)
        new.take_slot(rowset)
        swap = Swap(tablet, [_moved(mark, rowset, order)], [rowset], mark.lsn)
        swap.catch_up()
        new.commit(lambda old: _with_entry(old, mark, entry))
        swap.put(lambda version: _with_rowset(tablet, version, mark, rowset), environment.halt)
    return rowset


def _write_files(
    tablet: Tablet, environment: Environment, mark: _Mark, order: np.ndarray, new: NewFiles
) -> tuple[RowsetEntry, DiskRowSet]:
    """Write base and UNDO file and open them."""
    cells, undo = _at_mark(mark, order)
    alive = cells.pop(LIVE)
    assert isinstance(alive, FixedVector)
    keys = take_keys(mark.memrowset.keys(len(order)), order)
    encodings, version = files.encodings(mark.schema), mark.schema.version
    live = alive.values.astype(np.bool_)
    fs = environment.fs
    (base_id, base_path), (undo_id, undo_path) = new.name("base"), new.name("undo")
    entry = RowsetEntry(id=base_id, undo=(undo_id,), durable_lsn=mark.lsn)
    write_base_file(fs, base_path, base_id, cells, live, keys, encodings, mark.timestamp, version)
    write_delta_file(fs, undo_path, undo_id, "undo", base_id, undo, encodings)
    rowset = open_rowset(tablet, environment, entry, slot=-1)
    if not live.all():
        rowset.live.load(live)
    return entry, rowset


def _at_mark(mark: _Mark, order: np.ndarray) -> tuple[dict[int, Vector], dict[int, DeltaRun]]:
    """Return the cells of every column at the mark, in key order, and the UNDO run of every column that changed.

    The columns are those of the table now: the rows may have been stored before it was altered.
    """
    memrowset, count = mark.memrowset, len(order)
    new_rowid = np.empty(count, np.int32)
    new_rowid[order] = np.arange(count, dtype=np.int32)
    redo = {
        column_id: _renumbered(run, new_rowid) for column_id, run in memrowset.deltas.active.until(mark.deltas).items()
    }
    cells: dict[int, Vector] = {}
    undo: dict[int, DeltaRun] = {}
    for column in mark.schema.columns:
        vector = memrowset.base(column, 0, count).take(order)
        if column.id in redo:
            vector, undo[column.id] = invert(vector, redo[column.id])
        cells[column.id] = vector
    births = _births(memrowset.inserted_at(count)[order], redo.get(LIVE))
    cells[LIVE], undo[LIVE] = invert(zeros(PhysicalType.BOOL, count), births)
    return cells, undo


def _births(inserted_at: np.ndarray, changes: DeltaRun | None) -> DeltaRun:
    """Return the liveness of rows as changes of rows that were never there: born when inserted, then ``changes``."""
    rowids = np.arange(len(inserted_at), dtype=np.int32)
    born = FixedVector(np.ones(len(inserted_at), np.uint8))
    if changes is None:
        return DeltaRun(rowids, inserted_at, born)
    assert isinstance(changes.values, FixedVector)
    all_rowids = np.concatenate([rowids, changes.rowids])
    order = np.argsort(all_rowids, kind="stable")
    timestamps = np.concatenate([inserted_at, changes.timestamps])[order]
    values = np.concatenate([born.values, changes.values.values])[order]
    return DeltaRun(all_rowids[order], timestamps, FixedVector(values))


def _renumbered(run: DeltaRun, new_rowid: np.ndarray) -> DeltaRun:
    rowids = new_rowid[run.rowids]
    order = np.argsort(rowids, kind="stable")
    return DeltaRun(rowids[order], run.timestamps[order], run.values.take(order))


def _with_entry(old: TabletEntry, mark: _Mark, entry: RowsetEntry) -> TabletEntry:
    complete = max(old.inserts_durable_lsn, mark.memrowset.complete_at_lsn)
    return old.model_copy(update={"rowsets": (*old.rowsets, entry), "inserts_durable_lsn": complete})


def _moved(mark: _Mark, rowset: DiskRowSet, order: np.ndarray) -> MovedRowSet:
    locations = np.empty(len(order), np.int64)
    locations[order] = pack(rowset.slot, np.arange(len(order)))
    return MovedRowSet(mark.memrowset, dict(mark.deltas), locations)


def _with_rowset(tablet: Tablet, version: Version, mark: _Mark, rowset: DiskRowSet) -> Version:
    tablet.inserts_durable_lsn = max(tablet.inserts_durable_lsn, mark.memrowset.complete_at_lsn)
    return replace(version, frozen=version.frozen[1:], disk=(*version.disk, rowset))
