"""Merge DiskRowSets into new ones whose key ranges do not overlap; every snapshot reads the same.

 1. Under the write lock, note the newest timestamp F in the tablet and how many deltas each rowset has in memory.
 2. Wait until everything up to F is durable.
 3. Pass over the rows in key order, once (`merge_rows`). The new base shows a row at F. Pages that do not mix with
    others' rows are copied in encoded form. New rowsets are cut at a target size, or where such pages begin.
 4. Commit the new files to the manifest instead of the old ones.
 5. Carry over the deltas that came after F and install the new version (`install`); remove the old files.

Rows that have been dead since the ancient history mark or earlier are dropped with all their history. UNDO deltas of
other rows at or before the mark are dropped, since no permitted snapshot needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..delta.run import DeltaRun
from ..manifest.environment import Environment
from ..tablet.tablet import Tablet
from .file_transaction import new_files
from .install import being_replaced, install_outputs
from .merge_rows import Merge, MergeInput, RowFilter
from .outputs import Moment, Outputs
from .report import FlushReport
from .switch_over import MovedRowSet

_FAILED = "rowsets could not be merged; the tablet is unchanged"
TARGET_BYTES = 64 << 20
TARGET_ROWS = 1 << 22


def compact(
    tablet: Tablet,
    environment: Environment,
    rowset_ids: Collection[int] | None = None,
    target_bytes: int = TARGET_BYTES,
    target_rows: int = TARGET_ROWS,
    ancient_history_mark: int = 0,
    parts: Sequence[RowFilter | None] = (None,),
) -> FlushReport | None:
    """Merge the DiskRowSets with these ids, by default all; None if there are none. The caller holds the maintenance
    lock. ``parts`` assign each row to one part; rows of different parts go to different rowsets.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the log or the manifest has failed.
    """
    moment, marked = _mark(tablet, rowset_ids)
    if not marked:
        return None
    environment.wait_until_settled(moment.timestamp, moment.lsn)
    inputs = [_input(one) for one in marked]
    with being_replaced(tablet, marked), new_files(tablet, environment, _FAILED) as new:
        outputs = Outputs(tablet, environment, new, moment, target_rows, target_bytes)
        try:
            merge = Merge(moment.schema, inputs, outputs, ancient_history_mark)
            for part in parts:
                merge.run(part)
            written = outputs.written
        finally:
            outputs.abort()
        for one in inputs:
            one.memory.clear()
        floor = ancient_history_mark if merge.is_history_lost else 0
        freed = install_outputs(tablet, environment, new, marked, written, moment.lsn, floor)
    rowsets = [output.rowset for output in written]
    size = sum(rowset.bytes_on_disk for rowset in rowsets)
    return FlushReport(sum(len(rowset) for rowset in rowsets), size, freed)


def _mark(tablet: Tablet, rowset_ids: Collection[int] | None) -> tuple[Moment, list[MovedRowSet]]:
    with tablet.write_lock:
        rowsets = [rowset for rowset in tablet.version.disk if rowset_ids is None or rowset.rowset_id in rowset_ids]
        marks = [rowset.deltas.active.counts() for rowset in rowsets]
        moment = Moment(tablet.last_timestamp, tablet.last_lsn, tablet.schema)
    nowhere = (np.full(len(rowset), -1, np.int64) for rowset in rowsets)
    return moment, list(map(MovedRowSet, rowsets, marks, nowhere))


def _input(moved: MovedRowSet) -> MergeInput:
    memory: dict[int, list[DeltaRun]] = {}
    deltas = moved.rowset.deltas
    stores = [deltas.frozen.until(deltas.frozen.counts())] if deltas.frozen else []
    for runs in [*stores, deltas.active.until(moved.mark)]:
        for column_id, run in runs.items():
            memory.setdefault(column_id, []).append(run)
    return MergeInput(moved, memory)
