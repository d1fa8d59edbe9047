"""Recovery: bring the tablets to where the log ends, whatever stopped the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..schemas.errors import CorruptionError, StorageFullError
from .auto_increment import AutoIncrement
from .options import StoreOptions
from .tablet.attach import logged_attachments, with_logged
from .tablet.change import unpack_attachments, unpack_changes, unpack_notes
from .tablet.environment import Environment
from .tablet.manifest import Manifest, ManifestFile
from .tablet.tablet import Tablet
from .upkeep import flush, flush_all_deltas
from .wal.log import WriteAheadLog
from .writers import Writers

log = logging.getLogger("nyala.recovery")


def check_log(wal: WriteAheadLog, manifest: Manifest) -> None:
    """Check that the log reaches back to what the files do not hold. Raises CorruptionError when it does not."""
    if wal.first_lsn > manifest.log_needed_from:
        why = f"the log starts at record {wal.first_lsn}, but is needed from record {manifest.log_needed_from} on"
        raise CorruptionError("wal", 0, why)


def assume_attached(wal: WriteAheadLog, manifest: ManifestFile) -> None:
    """Let the manifest name the rowsets that the log attaches and the manifest on disk may not name yet.

    This comes before anything else, so that their rows are there when the replay meets changes of them, and earlier
    ones of keys that they have now: those are of rows that were gone for good when the rowset was attached.
    """
    attached = logged_attachments(wal.peek())
    ids_used = max((entry.id for _, entry in attached), default=0)
    manifest.assume(lambda current: with_logged(current, attached), ids_used)


def replay(
    wal: WriteAheadLog,
    tablets: Mapping[int, Tablet],
    ids: Mapping[int, AutoIncrement],
    writers: Writers,
    environment: Environment,
    options: StoreOptions,
) -> tuple[int, int]:
    """Apply what the log holds and the files do not; returns the rows applied and the newest timestamp in the log.
    Answers to numbered writes go to ``writers``, the ids that rows were given to ``ids``, by tablet.

    Changes of tablets that were dropped since are passed over. Memory is bounded by flushing on the way.

    Raises:
        CorruptionError: the log is not what was written.
    """
    rows, newest, has_room = 0, 0, True
    for record in wal.replay():
        newest = max(newest, record.timestamp)
        for note in unpack_notes(record.payload, record.lsn):
            writers.restore(note, record.lsn, record.timestamp)
        for attachment in unpack_attachments(record.payload, record.lsn):
            if tablet := tablets.get(attachment.tablet_id):
                ids[tablet.tablet_id].restore_attached(attachment)
                with tablet.write_lock:
                    tablet.stand_at(record.timestamp, record.lsn)
        changed: dict[int, Tablet] = {}
        for change in unpack_changes(record.payload, record.lsn):
            if tablet := tablets.get(change.tablet_id):
                ids[change.tablet_id].restore(change)
                with tablet.write_lock:
                    rows += tablet.replay(change, record.timestamp, record.lsn)
                changed[tablet.tablet_id] = tablet
        # Not before all changes of the record are in: a flush says that it holds them.
        for tablet in changed.values():
            if has_room:
                has_room = _bound_memory(tablet, environment, options)
    if rows:
        log.info("replayed %d row changes from the log", rows)
    return rows, newest


def _bound_memory(tablet: Tablet, environment: Environment, options: StoreOptions) -> bool:
    """Flush in the middle of the replay what has grown large; all history is kept.

    Returns whether the disk has room: one that is full can still be read.
    """
    try:
        if tablet.version.active.nbytes > options.flush_bytes:
            flush(tablet, environment)
        if sum(rowset.deltas.memory_bytes for rowset in tablet.version.disk) > options.flush_deltas_bytes:
            flush_all_deltas(tablet, environment, 0)
    except StorageFullError as error:
        log.warning("the replay goes on in memory: %s", error.message)
        return False
    return True
