"""Flush DeltaMemStores: write the deltas of a DiskRowSet in memory as a REDO file.

 1. Under the write lock, set the DeltaMemStore aside and start a new one; note the newest timestamp F in the tablet.
 2. Wait until everything up to F is durable.
 3. Write the REDO file and commit it to the manifest.
 4. Under the write lock, put the file in the place of the store.

A failure before the commit leaves the store frozen; the next flush takes it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.errors import StorageFullError
from ..delta.file import DeltaFile, write_delta_file
from ..delta.memstore import DeltaMemStore
from ..fs.failures import named
from ..rowset.diskrowset import DiskRowSet
from ..tablet import files
from ..tablet.environment import Environment
from ..tablet.manifest import RowsetEntry, TabletEntry
from ..tablet.open import remove_orphans
from ..tablet.tablet import Tablet
from .flush import FlushReport


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    rowset: DiskRowSet
    store: DeltaMemStore
    timestamp: int
    lsn: int


def flush_deltas(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush the DeltaMemStores of all DiskRowSets; None when there are no deltas. One caller at a time for a tablet.

    Raises:
        StorageFullError: the disk is full; nothing is lost.
        UnavailableError: the log or the manifest has failed.
    """
    marks = [mark for rowset in tablet.version.disk if (mark := _freeze(tablet, rowset))]
    reports = [_flush(tablet, environment, mark) for mark in marks]
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


def _flush(tablet: Tablet, environment: Environment, mark: _Mark) -> FlushReport:
    environment.wait_until_settled(mark.timestamp, mark.lsn)
    fs, rowset = environment.fs, mark.rowset
    file_id = environment.manifest.new_id()
    path = files.path(tablet.tablet_id, file_id, "redo")
    runs = mark.store.until(mark.store.counts())
    try:
        with named("the deltas in memory could not be flushed and stay in the log"):
            write_delta_file(fs, path, file_id, "redo", rowset.rowset_id, runs, files.encodings(tablet.schema))
            fs.sync_directory(files.directory(tablet.tablet_id))
            file = DeltaFile.open(fs, path, file_id, environment.page_cache)
    except BaseException:
        remove_orphans(environment, path)
        raise
    _commit(tablet, environment, mark, file_id)
    with tablet.write_lock:
        rowset.deltas.flushed(file)
        rowset.durable_lsn = mark.lsn
    return FlushReport(max(len(run) for run in runs.values()), file.size_bytes)


def _commit(tablet: Tablet, environment: Environment, mark: _Mark, file_id: int) -> None:
    def with_redo(rowset: RowsetEntry) -> RowsetEntry:
        if rowset.id != mark.rowset.rowset_id:
            return rowset
        return rowset.model_copy(update={"redo": (*rowset.redo, file_id), "durable_lsn": mark.lsn})

    def edit(old: TabletEntry) -> TabletEntry:
        return old.model_copy(update={"rowsets": tuple(with_redo(rowset) for rowset in old.rowsets)})

    try:
        environment.manifest.commit(lambda manifest: manifest.with_tablet(tablet.tablet_id, edit))
    except StorageFullError:
        remove_orphans(environment, files.path(tablet.tablet_id, file_id, "redo"))
        raise
