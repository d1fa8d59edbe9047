"""Flush a MemRowSet: write its rows as a DiskRowSet that every snapshot reads the same.

 1. Under the write lock, set the MemRowSet aside and start a new one. Its rows are complete now; updates and deletes
    of them go on into its DeltaMemStore. Take a mark of that store and the newest timestamp F in the tablet.
 2. Wait until everything up to F is durable.
 3. Write the rows in key order as they are at F (base file) and what takes each back to before (UNDO file): the insert
    of a row is undone by making it dead before its timestamp.
 4. Commit both files to the manifest, together with those of other tablets where several are flushed (`prepare_flush`).
    A crash before leaves the rows to the log, a crash after finds them in the files.
 5. Carry over the deltas that came after the mark, their rows renumbered, and install the new version (`switch_over`).

A failure before 4 removes the files and leaves the MemRowSet as it was, frozen; the next flush takes it again. One
between 4 and the new version makes the store read-only, for the rows are in the files and in memory then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from ...schemas.table.table import TableSchema
from ..codecs.codec import PAGE_ROWS
from ..delta import LIVE
from ..delta.run import DeltaRun, invert
from ..fs.far import FarFileSystem
from ..fs.together import SyncTogether
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..manifest.rowset_entry import RowsetEntry
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import pack
from ..rowset.memrowset import MemRowSet
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from ..vectors.keys.keys import take_keys
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector, zeros
from .file_transaction import NewFiles, UncommittedFiles, commit_together, new_files
from .outputs import Moment, OutputRowSet, OutputWriter
from .report import FlushReport
from .switch_over import MovedRowSet, SwitchOver

_FAILED = "the rows in memory could not be flushed and stay in the log"


@dataclass(frozen=True, slots=True, eq=False)
class _FlushMark:
    """The moment at which a MemRowSet is written."""

    moved: MovedRowSet
    timestamp: int
    lsn: int
    schema: TableSchema

    @property
    def memrowset(self) -> MemRowSet:
        assert isinstance(self.moved.rowset, MemRowSet), "it has not moved yet"
        return self.moved.rowset


def flush_memrowset(tablet: Tablet, environment: Environment) -> FlushReport | None:
    """Flush the oldest MemRowSet of a tablet; None when there are no rows. One caller at a time for a tablet.

    Raises:
        StorageFullError: the disk is full; nothing is lost.
        UnavailableError: the log or the manifest has failed.
    """
    with ExitStack() as outermost, ExitStack() as held:
        if isinstance(environment.fs, FarFileSystem):  # the base file is put while the UNDO file is written
            environment = replace(environment, fs=outermost.enter_context(SyncTogether(environment.fs)))
        staged = prepare_flush(tablet, environment, held)
        if staged is None:
            return None
        commit_together(environment, [staged.files])
        return staged.report


@dataclass(frozen=True, slots=True, eq=False)
class UncommittedFlush:
    """A flush whose files are written and not yet in the manifest."""

    files: UncommittedFiles
    report: FlushReport


def prepare_flush(tablet: Tablet, environment: Environment, held: ExitStack) -> UncommittedFlush | None:
    """Write what the flush of the oldest MemRowSet writes; None when there are no rows.

    The files stand to be committed until ``held`` is closed: those that are not by then are removed. Raises as
    ``flush_memrowset``.
    """
    mark = _freeze(tablet)
    if mark is None:
        return None
    environment.wait_until_settled(mark.timestamp, mark.lsn)
    order = mark.memrowset.key_order(0, len(mark.memrowset))
    assert order is not None, "a MemRowSet stands in the order of arrival"
    new = held.enter_context(new_files(tablet, environment, _FAILED))
    rowset, staged = _write(tablet, environment, mark, order, new)
    return UncommittedFlush(staged, FlushReport(len(rowset), rowset.bytes_on_disk))


def _freeze(tablet: Tablet) -> _FlushMark | None:
    with tablet.write_lock:
        version = tablet.version
        if not version.frozen:
            if not len(version.active):
                return None
            tablet.set_aside(tablet.new_memrowset())
            version = tablet.version
        oldest = version.frozen[0]
        tablet.free_slot()  # if there is none left for the new rowset, nothing is written
        moved = MovedRowSet(oldest, oldest.deltas.active.counts(), np.full(len(oldest), -1, np.int64))
        return _FlushMark(moved, tablet.last_timestamp, tablet.last_lsn, tablet.schema)


def _write(
    tablet: Tablet, environment: Environment, mark: _FlushMark, order: np.ndarray, new: NewFiles
) -> tuple[DiskRowSet, UncommittedFiles]:
    """Write base and UNDO file; say what is to be committed, and how the rowset comes in the place of the MemRowSet."""
    writer = OutputWriter(tablet, environment, new, Moment(mark.timestamp, mark.lsn, mark.schema))
    try:
        output = write_rows(mark.memrowset, mark.moved.mark, mark.schema, order, writer)
    finally:
        writer.abort()
    entry, rowset = output.entry, output.rowset
    new.take_slot(rowset)
    mark.moved.locations[order] = pack(rowset.slot, np.arange(len(order)))
    switch_over = SwitchOver(tablet, [mark.moved], [rowset], mark.lsn)
    switch_over.catch_up()

    def put() -> None:
        switch_over.put(lambda version: _with_rowset(tablet, version, mark, rowset), environment)

    def follow() -> None:
        switch_over.follow(environment)

    return rowset, UncommittedFiles(new, lambda old: _with_entry(old, mark, entry), put, follow)


def write_rows(
    memrowset: MemRowSet, mark: Mapping[int, int], schema: TableSchema, order: np.ndarray, writer: OutputWriter
) -> OutputRowSet:
    """Flush rows of a MemRowSet: write base and UNDO file, in the ``order`` of their keys, a page after the other, and
    open them.

    ``mark`` says how many deltas they hold.

    The columns are those of the table now: the rows may have been stored before it was altered.
    """
    count = len(order)
    new_rowid = np.empty(count, np.int32)
    new_rowid[order] = np.arange(count, dtype=np.int32)
    redo = {column_id: _renumbered(run, new_rowid) for column_id, run in memrowset.deltas.active.until(mark).items()}
    keys, inserted_at = memrowset.keys(count), memrowset.inserted_at(count)
    for first in range(0, count, PAGE_ROWS):
        rows = order[first : first + PAGE_ROWS]
        changes = {column_id: _of_rows(run, first, first + len(rows)) for column_id, run in redo.items()}
        births = _births(inserted_at[rows], changes.get(LIVE))
        alive, undo = invert(zeros(PhysicalType.BOOL, len(rows)), births)
        assert isinstance(alive, FixedVector)
        writer.append(LIVE, None, undo)
        for column in schema.columns:
            cells = memrowset.base_at(column, rows)
            writer.append(column.id, *invert(cells, changes.get(column.id, _no_run(cells))))
        writer.end_run(take_keys(keys, rows), alive.values.astype(np.bool_))
    return writer.finish()


def _of_rows(run: DeltaRun, first: int, last: int) -> DeltaRun:
    """Return the deltas of rows [first, last), counted from the first."""
    part = run.slice(first, last)
    return DeltaRun(part.rowids - np.int32(first), part.timestamps, part.values)


def _no_run(cells: Vector) -> DeltaRun:
    return DeltaRun(np.empty(0, np.int32), np.empty(0, np.int64), cells.slice(0, 0))


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


def _with_entry(old: TabletEntry, mark: _FlushMark, entry: RowsetEntry) -> TabletEntry:
    complete = max(old.inserts_durable_lsn, mark.memrowset.complete_at_lsn)
    return old.model_copy(update={"rowsets": (*old.rowsets, entry), "inserts_durable_lsn": complete})


def _with_rowset(tablet: Tablet, version: Version, mark: _FlushMark, rowset: DiskRowSet) -> Version:
    tablet.inserts_durable_lsn = max(tablet.inserts_durable_lsn, mark.memrowset.complete_at_lsn)
    return replace(version, frozen=version.frozen[1:], disk=(*version.disk, rowset))
