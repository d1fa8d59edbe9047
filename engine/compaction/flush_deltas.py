"""Flush DeltaMemStores: write the deltas of a DiskRowSet in memory as a REDO file.

 1. Under the write lock, set the DeltaMemStore aside and start a new one; note the newest timestamp F in the tablet.
 2. Wait until everything up to F is durable.
 3. Write the REDO file and commit it to the manifest.
 4. Under the write lock, put a rowset with the file in the place of the one with the store.

A failure before the commit leaves the store frozen; the next flush takes it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..delta import LIVE
from ..delta.file import ColumnEncoding, DeltaFile, write_delta_file
from ..delta.memstore import DeltaMemStore
from ..delta.run import DeltaRun, collapsed
from ..rowset.diskrowset import DiskRowSet
from ..tablet import files
from ..tablet.environment import Environment
from ..tablet.manifest import TabletEntry
from ..tablet.tablet import Tablet
from .flush import FlushReport
from .rewrite import NewFiles, new_files

_FAILED = "the deltas in memory could not be flushed and stay in the log"


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    rowset: DiskRowSet
    store: DeltaMemStore
    timestamp: int
    lsn: int


def flush_deltas(tablet: Tablet, environment: Environment, ancient_history_mark: int = 0) -> FlushReport | None:
    """Flush the DeltaMemStores of all DiskRowSets; None when there are no deltas. One caller at a time for a tablet.

    Deltas of columns that were dropped go. So do those that no snapshot at or after the ancient history mark sees, and
    earlier snapshots are refused then: a row that is updated again and again costs no more than its history is worth.

    Raises:
        StorageFullError: the disk is full; nothing is lost.
        UnavailableError: the log or the manifest has failed.
    """
    marks = [mark for rowset in tablet.version.disk if (mark := _freeze(tablet, rowset))]
    reports = [_flush(tablet, environment, mark, ancient_history_mark) for mark in marks]
    if not reports:
        return None
    return FlushReport(sum(report.rows for report in reports), sum(report.bytes_written for report in reports))


def _freeze(tablet: Tablet, rowset: DiskRowSet) -> _Mark | None:
    with tablet.write_lock:
        was_frozen = rowset.deltas.frozen is not None
        store = rowset.deltas.freeze()
        if store is None:
            return None
        if not was_frozen:
            rowset.deltas.frozen_at = (tablet.last_timestamp, tablet.last_lsn)
        return _Mark(rowset, store, *rowset.deltas.frozen_at)


def _flush(tablet: Tablet, environment: Environment, mark: _Mark, ancient_history_mark: int) -> FlushReport:
    environment.wait_until_settled(mark.timestamp, mark.lsn)
    rowset = mark.rowset
    schema = tablet.schema
    whole = mark.store.until(mark.store.counts())
    whole = {column_id: run for column_id, run in whole.items() if column_id == LIVE or column_id in schema.by_id}
    runs = {column_id: collapsed(run, ancient_history_mark) for column_id, run in whole.items()}
    floor = ancient_history_mark if any(len(runs[column_id]) < len(run) for column_id, run in whole.items()) else 0
    with new_files(tablet, environment, _FAILED) as new:
        written = _write(rowset, runs, files.encodings(schema), environment, new)
        redo = (*rowset.deltas.stores.redo, *written)
        _commit(new, mark, redo, floor)
        with tablet.write_lock:
            flushed = rowset.with_files(rowset.deltas.flushed(redo))
            flushed.durable_lsn = mark.lsn
            tablet.replace_diskrowset(rowset, flushed, floor)
    return FlushReport(max(map(len, whole.values()), default=0), sum(file.size_bytes for file in written))


def _write(
    rowset: DiskRowSet,
    runs: Mapping[int, DeltaRun],
    encodings: Mapping[int, ColumnEncoding],
    environment: Environment,
    new: NewFiles,
) -> tuple[DeltaFile, ...]:
    """Write the REDO file; none when there is nothing to write."""
    if not runs:
        return ()
    file_id, path = new.name("redo")
    write_delta_file(environment.fs, path, file_id, "redo", rowset.rowset_id, runs, encodings)
    return (DeltaFile.open(environment.fs, path, file_id, "redo", rowset.rowset_id, environment.page_cache),)


def _commit(new: NewFiles, mark: _Mark, redo: Sequence[DeltaFile], history_floor: int) -> None:
    def edit(tablet: TabletEntry) -> TabletEntry:
        rowset = tablet.rowset(mark.rowset.rowset_id)
        update = {"redo": tuple(file.file_id for file in redo), "durable_lsn": mark.lsn}
        return tablet.with_rowset(rowset.model_copy(update=update), history_floor)

    new.commit(edit)
