"""Flush DeltaMemStores: writes the deltas of a DiskRowSet in memory as a REDO file.

 1. Under the write lock, set the DeltaMemStore aside and start a new one; note the newest timestamp F in the tablet.
 2. Wait until everything up to F is durable.
 3. Write the REDO file and commit it to the manifest.
 4. Under the write lock, replace the rowset with the store by one with the file.

A failure before the commit leaves the store frozen; the next flush takes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..delta import LIVE
from ..delta.file import ColumnEncoding, DeltaFile, DeltaFileWriter
from ..delta.memstore import DeltaMemStore
from ..delta.run import collapsed
from ..manifest import files
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..rowset.diskrowset import DiskRowSet
from ..tablet.tablet import Tablet
from .file_transaction import NewFiles, UncommittedFiles, commit_together, new_files
from .flush import UncommittedFlush
from .report import FlushReport

_FAILED = "the deltas in memory could not be flushed and stay in the log"


@dataclass(frozen=True, slots=True, eq=False)
class _DeltaMark:
    rowset: DiskRowSet
    store: DeltaMemStore
    timestamp: int
    lsn: int


def flush_deltas(tablet: Tablet, environment: Environment, ancient_history_mark: int = 0) -> FlushReport | None:
    """Flush the DeltaMemStores of all DiskRowSets; None if there are no deltas. One caller at a time for a tablet.

    Drops deltas of dropped columns, and deltas that no snapshot at or after the ancient history mark sees; earlier
    snapshots are rejected from then on. So a row that is updated often costs no more than its history.

    Raises:
        StorageFullError: the disk is full; nothing is lost.
        UnavailableError: the log or the manifest has failed.
    """
    return _flush(tablet, environment, _freeze(tablet), ancient_history_mark)


def settle_deltas(tablet: Tablet, environment: Environment, ancient_history_mark: int = 0) -> tuple[int, int]:
    """Flush the deltas of all DiskRowSets as of one moment; return its timestamp and log position.

    Then files hold what was committed up to that moment, and is durable, and memory what came later. Raises as
    ``flush_deltas``.
    """
    while any(rowset.deltas.frozen for rowset in tablet.version.disk):
        flush_deltas(tablet, environment, ancient_history_mark)
    with tablet.write_lock:
        moment = tablet.last_timestamp, tablet.last_lsn
        marks = _marks(tablet)
    environment.wait_until_settled(*moment)
    _flush(tablet, environment, marks, ancient_history_mark)
    return moment


def _flush(
    tablet: Tablet, environment: Environment, marks: list[_DeltaMark], ancient_history_mark: int
) -> FlushReport | None:
    reports: list[FlushReport] = []
    while marks:  # releases each store as soon as it is flushed
        with ExitStack() as held:
            staged = _stage(tablet, environment, marks.pop(), ancient_history_mark, held)
            commit_together(environment, [staged.files])
            reports.append(staged.report)
    if not reports:
        return None
    return FlushReport(sum(report.rows for report in reports), sum(report.bytes_written for report in reports))


def prepare_deltas(
    tablet: Tablet, environment: Environment, ancient_history_mark: int, held: ExitStack
) -> list[UncommittedFlush]:
    """Write the files of a flush of all deltas of a tablet: see ``flush.prepare_flush``. Raises as ``flush_deltas``."""
    return [_stage(tablet, environment, mark, ancient_history_mark, held) for mark in _freeze(tablet)]


def _freeze(tablet: Tablet) -> list[_DeltaMark]:
    with tablet.write_lock:
        return _marks(tablet)


def _marks(tablet: Tablet) -> list[_DeltaMark]:
    """Set the DeltaMemStores aside, under the write lock."""
    return [mark for rowset in reversed(tablet.version.disk) if (mark := _mark(tablet, rowset))]


def _mark(tablet: Tablet, rowset: DiskRowSet) -> _DeltaMark | None:
    was_frozen = rowset.deltas.frozen is not None
    store = rowset.deltas.freeze()
    if store is None:
        return None
    if not was_frozen:
        rowset.deltas.frozen_at = (tablet.last_timestamp, tablet.last_lsn)
    return _DeltaMark(rowset, store, *rowset.deltas.frozen_at)


def _stage(
    tablet: Tablet, environment: Environment, mark: _DeltaMark, ancient_history_mark: int, held: ExitStack
) -> UncommittedFlush:
    environment.wait_until_settled(mark.timestamp, mark.lsn)
    rowset = mark.rowset
    schema = tablet.schema
    known = {LIVE, *schema.by_id}
    counts = {column: count for column, count in mark.store.counts().items() if column in known}
    new = held.enter_context(new_files(tablet, environment, _FAILED))
    written = _write(mark, counts, ancient_history_mark, files.encodings(schema), environment, new)
    kept = {column: count for file in written for column, count in file.metadata.deltas.items()}
    floor = ancient_history_mark if kept != counts else 0
    redo = (*rowset.deltas.stores.redo, *written)

    def put() -> None:
        with tablet.write_lock:
            flushed = rowset.with_files(rowset.deltas.flushed(redo))
            flushed.durable_lsn = mark.lsn
            tablet.replace_diskrowset(rowset, flushed, floor)

    report = FlushReport(max(counts.values(), default=0), sum(file.size_bytes for file in written))
    return UncommittedFlush(UncommittedFiles(new, _edit(mark, redo, floor), put), report)


def _write(
    mark: _DeltaMark,
    counts: Mapping[int, int],
    ancient_history_mark: int,
    encodings: Mapping[int, ColumnEncoding],
    environment: Environment,
    new: NewFiles,
) -> tuple[DeltaFile, ...]:
    """Write the REDO file, with a sorted copy of one column in memory at a time; none if there is nothing to write."""
    if not counts:
        return ()
    file_id, path = new.name("redo")
    rowset_id = mark.rowset.rowset_id
    with DeltaFileWriter(environment.fs, path, file_id, "redo", rowset_id, encodings) as writer:
        for column_id, count in sorted(counts.items()):
            runs = mark.store.until({column_id: count})
            writer.add(column_id, [collapsed(runs.pop(column_id), ancient_history_mark)])
        writer.finish()
    return (DeltaFile.open(environment.fs, path, file_id, "redo", rowset_id, environment.page_cache),)


def _edit(mark: _DeltaMark, redo: Sequence[DeltaFile], history_floor: int) -> Callable[[TabletEntry], TabletEntry]:
    """Return the edit of the tablet's manifest entry after the files are written."""

    def edit(tablet: TabletEntry) -> TabletEntry:
        rowset = tablet.rowset(mark.rowset.rowset_id)
        update = {"redo": tuple(file.file_id for file in redo), "durable_lsn": mark.lsn}
        return tablet.with_rowset(rowset.model_copy(update=update), history_floor)

    return edit
