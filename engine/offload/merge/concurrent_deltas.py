"""Changes that were flushed while an outside merge of rowsets ran, moved to the outputs of the merge.

The newer REDO files of the merged rowsets are rewritten as one per output, with their rows renumbered. Both sides are
in key order, so a page of an output needs a contiguous range of rows of each file. Rows that the merge dropped and that
have come back since get a rowset of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....schemas.table.table import TableSchema
from ...codecs.codec import PAGE_ROWS
from ...compaction.file_transaction import NewFiles
from ...compaction.flush import write_rows
from ...compaction.outputs import Moment, OutputRowSet, OutputWriter
from ...compaction.revived_rows import RevivedRows
from ...compaction.switch_over import MovedRowSet, append_changes
from ...delta import LIVE
from ...delta.file import DeltaFile, DeltaFileWriter
from ...delta.run import DeltaRun, merge_runs
from ...manifest import files
from ...manifest.environment import Environment
from ...rowset.diskrowset import DiskRowSet
from ...rowset.location import ROWID_BITS, pack, rowids_of
from ...rowset.memrowset import MemRowSet
from ...tablet.tablet import Tablet
from ...vectors.vector import FixedVector


class LaterDeltas:
    """The REDO ``files`` of a rowset that were flushed during an outside merge, oldest first, and the present locations
    of its rows."""

    def __init__(self, moved: MovedRowSet, delta_files: Sequence[DeltaFile]) -> None:
        self.moved = moved
        self._files = delta_files
        self._reached = np.maximum.accumulate(moved.locations) if len(delta_files) else moved.locations
        """Ascending: the location of each row, or of the last row before it that has one."""

    def column_ids(self, schema: TableSchema) -> set[int]:
        """Return the changed columns that still exist, liveness among them."""
        return {column for file in self._files for column in file.column_ids}.intersection((LIVE, *schema.by_id))

    def between(self, column_id: int, low: int, high: int) -> DeltaRun | None:
        """Return the deltas of rows with locations in [low, high), renumbered; None if there are none."""
        first, last = (int(at) for at in np.searchsorted(self._reached, (low, high)))
        run = self._run(column_id, first, last)
        if run is None:
            return None
        places = self.moved.locations[run.rowids]
        run = run if (places >= 0).all() else run.take(np.flatnonzero(places >= 0))
        return DeltaRun(rowids_of(places[places >= 0]).astype(np.int32), run.timestamps, run.values)

    def of_lost_rows(self, schema: TableSchema, history_floor: int) -> dict[int, DeltaRun]:
        """Return the deltas of dropped rows by column, for each row from the change that brought it back.

        Flushes drop what no snapshot from the history floor on sees. So the first change of a row may be a delete, and
        the cell that it came back with may carry a later value.
        """
        alive = self._of_lost(LIVE)
        if alive is None:
            return {}
        assert isinstance(alive.values, FixedVector)
        births = np.flatnonzero(alive.values.values)
        if not len(births):
            return {}
        rowids, first = np.unique(alive.rowids[births], return_index=True)
        born = alive.timestamps[births[first]]
        found: dict[int, DeltaRun] = {}
        for column_id in self.column_ids(schema):
            run = self._of_lost(column_id)
            if run is None:
                continue
            place = np.minimum(np.searchsorted(rowids, run.rowids), len(rowids) - 1)
            came_back = (rowids[place] == run.rowids) & (run.timestamps >= born[place])
            if came_back.any():
                run, born_at = run.take(np.flatnonzero(came_back)), born[place[came_back]]
                unseen = np.append(True, run.rowids[1:] != run.rowids[:-1]) & (run.timestamps <= history_floor)
                found[column_id] = DeltaRun(run.rowids, np.where(unseen, born_at, run.timestamps), run.values)
        return found

    def _of_lost(self, column_id: int) -> DeltaRun | None:
        """Return the deltas of a column for dropped rows; None if there are none."""
        lost = self.moved.locations < 0
        if not lost.any():
            return None
        runs: list[DeltaRun] = []
        for first in range(0, len(lost), PAGE_ROWS):
            if lost[first : first + PAGE_ROWS].any() and (run := self._run(column_id, first, first + PAGE_ROWS)):
                runs.append(run.take(np.flatnonzero(lost[run.rowids])))
        return merge_runs(runs) if any(map(len, runs)) else None

    def _run(self, column_id: int, first: int, last: int) -> DeltaRun | None:
        runs = [run for file in self._files if (run := file.run(column_id, first, last))]
        return merge_runs(runs) if runs else None


def write_later(
    later: Sequence[LaterDeltas],
    number: int,
    rowset: DiskRowSet,
    schema: TableSchema,
    environment: Environment,
    new: NewFiles,
) -> DeltaFile | None:
    """Write the changes made during an outside merge to output ``number`` as its REDO file, a page of rows at a
    time."""
    columns = sorted(set[int]().union(*(one.column_ids(schema) for one in later)))
    if not columns:
        return None
    file_id, path = new.name("redo")
    encodings = files.encodings(schema)
    with DeltaFileWriter(environment.fs, path, file_id, "redo", rowset.rowset_id, encodings) as writer:
        for column_id in columns:
            writer.add(column_id, _pieces(later, column_id, number, len(rowset)))
        if writer.is_empty:
            return None
        writer.finish()
    return DeltaFile.open(environment.fs, path, file_id, "redo", rowset.rowset_id, environment.page_cache)


def _pieces(later: Sequence[LaterDeltas], column_id: int, number: int, row_count: int) -> Iterator[DeltaRun]:
    for first in range(0, row_count, PAGE_ROWS):
        low = (number << ROWID_BITS) + first
        high = low + min(PAGE_ROWS, row_count - first)
        runs = [run for one in later if (run := one.between(column_id, low, high))]
        if runs:
            yield merge_runs(runs)


def write_returned(
    later: Sequence[LaterDeltas],
    number: int,
    tablet: Tablet,
    environment: Environment,
    new: NewFiles,
    moment: Moment,
) -> OutputRowSet | None:
    """Write the rows that came back during an outside merge as output ``number``, as of ``moment``, and set their
    locations."""
    returned, rowids = RevivedRows(), list[np.ndarray]()
    for one in later:
        runs = one.of_lost_rows(moment.schema, tablet.version.history_floor)
        for column_id, run in runs.items():
            returned.add(one.moved.rowset, one.moved.locations, column_id, run)
        rowids.append(np.unique(runs[LIVE].rowids) if runs else np.empty(0, np.int32))
    if not returned:
        return None
    memrowset = MemRowSet(0, moment.schema.columns, tablet.encoder)
    for column_id, run in returned.fill(memrowset, moment.schema, tablet.encoder, moment.lsn).items():
        append_changes(memrowset, column_id, run, moment.lsn)
    order = memrowset.key_order(0, len(memrowset))
    assert order is not None, "a MemRowSet stands in the order of arrival"
    writer = OutputWriter(tablet, environment, new, moment)
    try:
        output = write_rows(memrowset, memrowset.deltas.active.counts(), moment.schema, order, writer)
    finally:
        writer.abort()
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for one, rows in zip(later, rowids, strict=True):
        one.moved.locations[rows] = pack(number, place[rowids_of(one.moved.locations[rows])])
    return output
