"""Installs written rowsets instead of those whose rows they have: slots, manifest, version, old files.

Until the outputs have slots, the locations of old rows use the numbers of outputs. For what writers and readers see,
see `switch_over`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ..codecs.codec import PAGE_ROWS
from ..manifest.environment import Environment
from ..manifest.manifest import TabletEntry
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import ROWID_BITS, rowids_of
from ..tablet.open import remove_orphans
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from .file_transaction import NewFiles
from .outputs import OutputRowSet
from .switch_over import MovedRowSet, SwitchOver


@contextmanager
def being_replaced(tablet: Tablet, moved: Sequence[MovedRowSet]) -> Iterator[None]:
    """Count twice the memory of changes in rowsets that a compaction replaces, until the switch-over: they will be
    carried over."""
    tablet.being_replaced = tuple(map(_on_disk, moved))
    try:
        yield
    finally:
        tablet.being_replaced = ()


def install_outputs(
    tablet: Tablet,
    environment: Environment,
    new: NewFiles,
    moved: Sequence[MovedRowSet],
    written: Sequence[OutputRowSet],
    lsn: int,
    history_floor: int,
) -> int:
    """Commit the outputs of a compaction, whose files hold all changes up to log position ``lsn``, instead of the old
    rowsets, and switch over; return the bytes of files that were removed. Locations in ``moved`` use the numbers of
    outputs. Raises as ``NewFiles.commit``."""
    targets = [output.rowset for output in written]
    for rowset in targets:
        new.take_slot(rowset)
    slots = np.array([rowset.slot for rowset in targets], np.int64)
    for one in moved:
        _point_to_slots(one.locations, slots)
    switch_over = SwitchOver(tablet, moved, targets, lsn)
    switch_over.catch_up()
    old = {_on_disk(one).rowset_id for one in moved}
    freed = sum(_on_disk(one).bytes_on_disk for one in moved)

    def put() -> None:
        switch_over.put(lambda version: _replaced(version, old, written, history_floor), environment)

    def follow() -> None:
        try:
            switch_over.follow(environment)
        finally:
            _remove_merged(environment, moved)

    new.commit(lambda entry: _with_outputs(entry, old, written, history_floor), put, follow)
    return freed


def _remove_merged(environment: Environment, moved: Sequence[MovedRowSet]) -> None:
    """Remove the files of rowsets that a compaction has replaced. Running scans may still read them."""
    for rowset in map(_on_disk, moved):
        files = [*rowset.columns_files, *rowset.deltas.files]
        rowset.close()
        remove_orphans(environment, rowset.path, *(file.path for file in files))


def _on_disk(moved: MovedRowSet) -> DiskRowSet:
    assert isinstance(moved.rowset, DiskRowSet)
    return moved.rowset


def _point_to_slots(locations: np.ndarray, slots: np.ndarray) -> None:
    """Replace output numbers by slots in locations, some rows at a time, as there may be many."""
    for first in range(0, len(locations), PAGE_ROWS):
        some = locations[first : first + PAGE_ROWS]
        kept = np.flatnonzero(some >= 0)
        old = some[kept]
        some[kept] = (slots[old >> ROWID_BITS] << ROWID_BITS) | rowids_of(old)


def _with_outputs(
    tablet: TabletEntry, old: Collection[int], written: Sequence[OutputRowSet], history_floor: int
) -> TabletEntry:
    rowsets = [entry for entry in tablet.rowsets if entry.id not in old] + [output.entry for output in written]
    floor = max(tablet.history_floor, history_floor)
    return tablet.model_copy(update={"rowsets": tuple(rowsets), "history_floor": floor})


def _replaced(version: Version, old: Collection[int], written: Sequence[OutputRowSet], history_floor: int) -> Version:
    rowsets = [rowset for rowset in version.disk if rowset.rowset_id not in old] + [output.rowset for output in written]
    return replace(version, disk=tuple(rowsets), history_floor=max(version.history_floor, history_floor))
