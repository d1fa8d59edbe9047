"""Recovery: brings the tablets to the end of the log, however the store stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...schemas.errors import CorruptionError, StorageFullError
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..maintenance.replay_cost import ReplayedLog
from ..maintenance.upkeep import flush, flush_all_deltas
from ..manifest.environment import Environment
from ..manifest.makers import with_makers
from ..manifest.manifest import Manifest, ManifestFile
from ..mvcc.clock import elapsed_seconds
from ..options import StoreOptions
from ..tablet.attach import logged_attachments, with_logged
from ..tablet.tablet import Tablet
from ..wal.records import gathered
from ..wal.store_log import StoreLog
from .log_replay import LoggedTablets, LogReplay, quarantining

log = logging.getLogger("nyala.recovery")

_AT_ONCE_BYTES = 8 << 20
"""Records are applied in parts of so many bytes, in memory a few times as many."""
_FLUSH_SHARE = 8
"""A part has at most this fraction of what is flushed at once."""


def check_log(first_lsn: int, manifest: Manifest) -> None:
    """Check that a log that starts at ``first_lsn`` reaches back to what the files lack. Raises CorruptionError if it
    does not."""
    if first_lsn > manifest.log_needed_from:
        why = f"the log starts at record {first_lsn}, but records from {manifest.log_needed_from} are needed"
        raise CorruptionError("wal", 0, why)


def assume_attached(wal: StoreLog, manifest: ManifestFile) -> None:
    """Add the rowsets that the log attaches, and that the manifest on disk may lack, to the manifest in memory.

    This runs before the replay, which needs their rows for later changes. The replay may also meet earlier changes of
    their keys: those belong to rows that were removed for good before the rowset was attached.
    """
    attached = logged_attachments(wal.peek())
    ids_used = max((entry.id for _, entry in attached), default=0)
    manifest.assume(lambda current: with_makers(with_logged(current, attached), wal.makers), ids_used)


def replay(
    wal: StoreLog,
    tablets: LoggedTablets,
    writers: NumberedWrites,
    transaction_memory: TransactionMemory,
    environment: Environment,
    options: StoreOptions,
) -> tuple[ReplayedLog, int]:
    """Apply the part of the log that files lack; return what that took, and the newest timestamp in the log. Answers
    to numbered writes go to ``writers``, transactions to ``transaction_memory``.

    Skips changes of dropped tablets and of tablets in quarantine, for which the log keeps them. A tablet with a damaged
    file goes into quarantine. Flushes bound the memory.

    Raises:
        CorruptionError: the log is not what was written.
    """
    replaying, has_room = LogReplay(tablets, writers, transaction_memory, environment.damage), True
    first_lsn, seconds = wal.first_lsn, 0.0
    for records in gathered(wal.replay(), min(_AT_ONCE_BYTES, options.flush_bytes // _FLUSH_SHARE)):
        began = elapsed_seconds()
        changed = replaying.apply(records)
        seconds += elapsed_seconds() - began
        # Only after all changes of the records are applied: a flush claims to hold them.
        for tablet in changed:
            if has_room:
                with quarantining(tablet, environment.damage):
                    has_room = _bound_memory(tablet, environment, options)
    if replaying.rows:
        log.info("replayed %d row changes from the log", replaying.rows)
    last_lsn = first_lsn + replaying.records - 1
    return ReplayedLog(first_lsn, last_lsn, replaying.rows, replaying.payload_bytes, seconds), replaying.newest


def end_with_log(manifest: ManifestFile, last_lsn: int) -> None:
    """Let the manifest claim nothing of positions after the end of the log: other records take them from now on. Raises
    StorageFullError and UnavailableError."""
    tablets = (tablet for table in manifest.current.tables for tablet in table.tablets)
    if any(tablet.in_files_lsn > last_lsn for tablet in tablets):
        manifest.commit(lambda current: current.within_log(last_lsn))


@contextmanager
def saying_what_to_do(check_held: Callable[[], None]) -> Iterator[None]:
    """Add the next step to errors about a damaged log or manifest, which prevent opening. It is no damage if
    ``check_held`` raises, since another process has taken the store over meanwhile."""
    try:
        yield
    except CorruptionError as error:
        check_held()
        step = "the store was not opened and is unchanged: `nyala repair` shows what can be saved"
        raise CorruptionError(error.path, error.offset, f"{error.why}; {step}") from error


def _bound_memory(tablet: Tablet, environment: Environment, options: StoreOptions) -> bool:
    """Flush stores that have grown large during the replay; all history is kept.

    Returns whether the disk has room: a store on a full disk can still be read.
    """
    try:
        if tablet.version.active.nbytes > options.flush_bytes:
            flush(tablet, environment)
        if sum(rowset.deltas.memory_bytes for rowset in tablet.version.disk) > options.flush_deltas_bytes:
            flush_all_deltas(tablet, environment, 0)
    except StorageFullError as error:
        log.warning("the replay of the log continues in memory, without flushes: %s", error.message)
        return False
    return True
