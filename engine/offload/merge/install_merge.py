"""Installs a merge that was done outside the store.

The store handed out rowsets as their files showed them at one timestamp F (`prepared`). A worker merges them with the
store's own code (`merge_rows`), while the store continues to write and flush. When the files come back (`put_merged`):

 1. The rowsets must still be those handed out, except for newer REDO files. If not, nothing happens.
 2. Their changes in memory are flushed, up to a timestamp F2.
 3. The outputs get their names in the tablet's directory. Their keys show where each row is now (`row_places`), and
    that there are no other rows.
 4. The newer REDO files are rewritten for the outputs, and rows that came back get a rowset (`concurrent_deltas`).
 5. The outputs replace the rowsets, and concurrent changes are carried over, as in any merge (`install`).

A failure before 5 leaves the tablet unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....schemas.errors import ConflictError
from ...compaction.file_transaction import NewFiles, new_files
from ...compaction.flush import flush_memrowset
from ...compaction.flush_deltas import settle_deltas
from ...compaction.install import being_replaced, install_outputs
from ...compaction.outputs import Moment, OutputRowSet
from ...compaction.report import FlushReport
from ...compaction.switch_over import MovedRowSet
from ...delta.file import DeltaFile
from ...manifest.environment import Environment
from ...manifest.rowset_entry import RowsetEntry
from ...rowset.diskrowset import DiskRowSet
from ...tablet.open import open_rowset, unlink_quietly
from ...tablet.tablet import Tablet
from .concurrent_deltas import LaterDeltas, write_later, write_returned
from .row_places import place_rows

_FAILED = "rowsets merged outside the server could not be installed; the table is unchanged"


@dataclass(frozen=True, slots=True)
class OutsideMerge:
    """An outside merge: the rowsets handed out, and the outputs that came back."""

    rowsets: tuple[RowsetEntry, ...]
    timestamp: int
    """F: outputs show the rows as of this timestamp."""
    ancient_history_mark: int
    outputs: tuple[tuple[int, int | None], ...]
    """The ids of base and UNDO file of each output, in key order."""
    is_history_lost: bool
    """Whether the merge dropped anything that snapshots before the mark can see."""


def prepared(tablet: Tablet, environment: Environment, ancient_history_mark: int) -> int:
    """Prepare a tablet for an outside merge: flush everything in memory; return a timestamp F that all DiskRowSets
    show. Raises as ``settle_deltas``.

    The caller holds the maintenance lock. Later changes are in memory, or in newer files.
    """
    for _ in range(len(tablet.version.frozen) + 1):
        flush_memrowset(tablet, environment)
    return settle_deltas(tablet, environment, ancient_history_mark)[0]


def put_merged(
    tablet: Tablet, environment: Environment, merged: OutsideMerge, bring: Callable[[int, str, str], None]
) -> FlushReport:
    """Install an outside merge: replace the rowsets handed out by its outputs. The caller holds the maintenance lock,
    and has checked each file by itself; ``bring(file id, kind, path)`` moves one to its path.

    Raises:
        ConflictError: the rowsets have changed since they were handed out.
        InvalidArgumentError: the files are not a merge of them.
        StorageFullError, UnavailableError: nothing changed.
    """
    check_current(tablet, environment, merged.rowsets)
    moment = Moment(*settle_deltas(tablet, environment), tablet.schema)
    with new_files(tablet, environment, _FAILED) as new:
        try:
            outputs = [_opened(tablet, environment, new, bring, *ids) for ids in merged.outputs]
            moved = _placed(tablet, merged, [output.rowset for output in outputs])
            lost = merged.is_history_lost or any((one.locations < 0).any() for one in moved)
            with being_replaced(tablet, moved):
                written = _with_later(tablet, environment, new, merged, moment, moved, outputs)
                floor = merged.ancient_history_mark if lost else 0
                freed = install_outputs(tablet, environment, new, moved, written, moment.lsn, floor)
        except BaseException:
            for file_id in (each for ids in merged.outputs for each in ids if each is not None):
                environment.page_cache.discard_file(file_id)  # another attempt may reuse these file numbers
            raise
    rowsets = [output.rowset for output in written]
    size = sum(rowset.bytes_on_disk for rowset in rowsets)
    return FlushReport(sum(map(len, rowsets)), size, freed)


def check_current(tablet: Tablet, environment: Environment, handed_out: Sequence[RowsetEntry]) -> None:
    """Check that rowsets handed out to an outside merge have not changed, except for newer REDO files.

    Raises:
        ConflictError: they have, or the tablet is gone.
    """
    entry = environment.manifest.current.tablet(tablet.tablet_id)
    by_id = {rowset.id: rowset for rowset in entry.rowsets} if entry and not tablet.retired else {}
    for old in handed_out:
        now = by_id.get(old.id)
        if now is None or now != old.model_copy(
            update={"redo": (*old.redo, *now.redo[len(old.redo) :]), "durable_lsn": now.durable_lsn}
        ):
            raise ConflictError(
                f"tablet {tablet.tablet_id} was compacted, split or dropped after its rowsets were handed out to be "
                "merged: nothing was applied; start a new compaction"
            )


def _opened(
    tablet: Tablet,
    environment: Environment,
    new: NewFiles,
    bring: Callable[[int, str, str], None],
    base_id: int,
    undo_id: int | None,
) -> OutputRowSet:
    for file_id, kind in ((base_id, "base"), (undo_id, "undo")):
        if file_id is not None:
            path = new.brought(file_id, kind)
            unlink_quietly(environment.fs, path)  # may be left by a failed attempt
            bring(file_id, kind, path)
    entry = RowsetEntry(id=base_id, undo=() if undo_id is None else (undo_id,), durable_lsn=0)
    return OutputRowSet(entry, open_rowset(tablet, environment, entry, slot=-1))


def _placed(tablet: Tablet, merged: OutsideMerge, outputs: Sequence[DiskRowSet]) -> list[MovedRowSet]:
    """Return the rowsets that were handed out, with the new locations of their rows."""
    by_id = {rowset.rowset_id: rowset for rowset in tablet.version.disk}
    inputs = [by_id[entry.id] for entry in merged.rowsets]
    locations = place_rows(inputs, outputs, merged.timestamp, merged.ancient_history_mark)
    return [MovedRowSet(rowset, {}, places) for rowset, places in zip(inputs, locations, strict=True)]


def _with_later(
    tablet: Tablet,
    environment: Environment,
    new: NewFiles,
    merged: OutsideMerge,
    moment: Moment,
    moved: Sequence[MovedRowSet],
    outputs: Sequence[OutputRowSet],
) -> list[OutputRowSet]:
    """Return the outputs with the changes that were flushed since the rowsets were handed out."""
    later = [
        LaterDeltas(one, one.rowset.deltas.stores.redo[len(entry.redo) :])
        for one, entry in zip(moved, merged.rowsets, strict=True)
    ]
    written = [
        _brought_forward(output, write_later(later, number, output.rowset, moment.schema, environment, new), moment)
        for number, output in enumerate(outputs)
    ]
    returned = write_returned(later, len(written), tablet, environment, new, moment)
    return [*written, returned] if returned else written


def _brought_forward(output: OutputRowSet, redo: DeltaFile | None, moment: Moment) -> OutputRowSet:
    rowset = output.rowset
    if redo:
        rowset.deltas.load(rowset.deltas.stores.undo, (redo,))
    rowset.durable_lsn = moment.lsn
    rowset.load_liveness()
    update = {"redo": (redo.file_id,) if redo else (), "durable_lsn": moment.lsn}
    return replace(output, entry=output.entry.model_copy(update=update))
