"""History GC: frees the disk space of what only snapshots before the ancient history mark can see.

* UNDO files whose last change is at or before the mark: snapshots at the mark or later need none of them.
* The insert timestamp of attached rowsets (`RowsetEntry.born`), once it is at or before the mark.
* DiskRowSets whose rows all died, or all expired, at or before the mark. Their keys leave the key index, as if they had
  never existed.

From then on snapshots below the mark are rejected (`TabletEntry.history_floor`, and `Version.history_floor` for scans
that are about to start); a running scan has pinned its version and continues.

Rowsets are dropped under the write lock, including the commit of the manifest, since a writer may revive a dead row: it
finds the row or not, but nothing between. Their deletes must be durable in the log before, because the log may never be
shorter than what files hold. A replay skips changes of a dropped row, or replays a later life and death of its key from
the insert that began it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from ..delta import LIVE
from ..delta.file import DeltaFile
from ..filter.expiry import Expiry
from ..manifest.environment import Environment
from ..manifest.interrupts import interrupts_later
from ..manifest.manifest import TabletEntry
from ..rowset.diskrowset import DiskRowSet
from ..tablet.key_lookup import MovedKeys, hashes_of
from ..tablet.open import remove_orphans
from ..tablet.tablet import Tablet
from .expired_rows import have_all_expired
from .file_transaction import new_files, read_only_if_half_done, retire
from .report import FlushReport
from .switch_over import keys_follow

_FAILED = "old history could not be dropped"


def gc(tablet: Tablet, environment: Environment, ancient_history_mark: int) -> FlushReport | None:
    """Drop the history of a tablet before the mark; None if there is none. The caller holds the maintenance lock.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the log or the manifest has failed.
    """
    rows, rowset_bytes = _drop_rowsets(tablet, environment, ancient_history_mark)
    undo_bytes = _drop_undo(tablet, environment, ancient_history_mark)
    births = _drop_births(tablet, environment, ancient_history_mark)
    return FlushReport(rows, 0, rowset_bytes + undo_bytes) if rowset_bytes or undo_bytes or births else None


def gain(tablet: Tablet, ancient_history_mark: int) -> int:
    """Return the bytes of the history that ``gc`` would drop. Cheap; under no lock."""
    disk = tablet.version.disk
    expiry = Expiry.of(tablet.schema)
    dead = [rowset for rowset in disk if _is_dead(rowset, expiry, ancient_history_mark)]
    ancient = [file for rowset in disk if rowset not in dead for file in _ancient(rowset, ancient_history_mark)]
    return sum(file.size_bytes for file in ancient) + sum(rowset.bytes_on_disk for rowset in dead)


def _ancient(rowset: DiskRowSet, mark: int) -> list[DeltaFile]:
    return [file for file in rowset.deltas.stores.undo if file.metadata.last_timestamp <= mark]


def _is_dead(rowset: DiskRowSet, expiry: Expiry | None, mark: int) -> bool:
    """Whether no row was alive at any time from ``mark`` on."""
    if not rowset.live.live_count:
        return rowset.deltas.last_change(LIVE) <= mark
    return have_all_expired(rowset, expiry, mark)


def _drop_undo(tablet: Tablet, environment: Environment, mark: int) -> int:
    """Drop ancient UNDO files; return their bytes."""
    ancient = {rowset: found for rowset in tablet.version.disk if (found := _ancient(rowset, mark))}
    if not ancient:
        return 0
    kept = {
        rowset.rowset_id: tuple(file for file in rowset.deltas.stores.undo if file not in found)
        for rowset, found in ancient.items()
    }

    def edit(entry: TabletEntry) -> TabletEntry:
        for rowset_id, undo in kept.items():
            update = {"undo": tuple(file.file_id for file in undo)}
            entry = entry.with_rowset(entry.rowset(rowset_id).model_copy(update=update), mark)
        return entry

    def put() -> None:
        with tablet.write_lock:
            for rowset in ancient:
                deltas = rowset.deltas.successor(undo=kept[rowset.rowset_id])
                tablet.replace_diskrowset(rowset, rowset.with_files(deltas), mark)

    dropped = [file for found in ancient.values() for file in found]
    freed = sum(file.size_bytes for file in dropped)
    with new_files(tablet, environment, _FAILED) as new:
        new.commit(edit, put, partial(retire, environment, dropped))
    return freed


def _drop_births(tablet: Tablet, environment: Environment, mark: int) -> int:
    """Forget insert timestamps of rowsets that are older than the mark; return how many."""
    old = [rowset for rowset in tablet.version.disk if rowset.born is not None and rowset.born <= mark]
    if not old:
        return 0

    def edit(entry: TabletEntry) -> TabletEntry:
        for rowset in old:
            entry = entry.with_rowset(entry.rowset(rowset.rowset_id).model_copy(update={"born": None}), mark)
        return entry

    def put() -> None:
        with tablet.write_lock:
            for rowset in old:
                tablet.replace_diskrowset(rowset, rowset.without_birth(), mark)

    with new_files(tablet, environment, _FAILED) as new:
        new.commit(edit, put)
    return len(old)


def _drop_rowsets(tablet: Tablet, environment: Environment, mark: int) -> tuple[int, int]:
    """Drop rowsets whose rows were all dead before the mark; return their rows and bytes."""
    expiry = Expiry.of(tablet.schema)
    candidates = [rowset for rowset in tablet.version.disk if _is_dead(rowset, expiry, mark)]
    if not candidates:
        return 0, 0
    with tablet.write_lock:
        timestamp, lsn = tablet.last_timestamp, tablet.last_lsn
    environment.wait_until_settled(timestamp, lsn)
    hashes = {rowset: list(hashes_of(rowset)) for rowset in candidates}
    with (
        ExitStack() as afterwards,  # an interruption leaves out nothing of it
        interrupts_later(),
        read_only_if_half_done(tablet.tablet_id, environment),
        tablet.write_lock,
    ):
        dead = [rowset for rowset in candidates if _is_dead(rowset, expiry, mark)]
        if not dead:
            return 0, 0
        gone = {rowset.rowset_id for rowset in dead}
        environment.manifest.commit(
            lambda manifest: manifest.with_tablet(tablet.tablet_id, lambda entry: entry.without_rowsets(gone, mark))
        )
        nowhere = {rowset: tablet.remove_diskrowset(rowset, mark) for rowset in dead}
        keys = [MovedKeys(rowset.slot, nowhere[rowset], hashes[rowset]) for rowset in dead]
        afterwards.callback(_remove_files, environment, dead)
        afterwards.callback(_forget_keys, tablet, environment, keys)
    return sum(len(rowset) for rowset in dead), sum(rowset.bytes_on_disk for rowset in dead)


def _remove_files(environment: Environment, dead: Iterable[DiskRowSet]) -> None:
    for rowset in dead:
        rowset.close()
        others = (*rowset.columns_files, *rowset.deltas.files)
        remove_orphans(environment, rowset.path, *(file.path for file in others))


def _forget_keys(tablet: Tablet, environment: Environment, keys: Sequence[MovedKeys]) -> None:
    """Remove the keys of dropped rowsets from the index, some at a time so that writers can run in between."""
    with keys_follow(tablet, environment):
        tablet.key_lookup.follow(keys, [], tablet.write_lock)
