"""LogFreeing: frees the part of the log that no memory store needs, once its other content is saved elsewhere.

A log that grows while nobody writes also has memory stores flushed that keep too much of it, however small they are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ...schemas.service import MaintenanceKind
from ...schemas.write import Durability
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..manifest.environment import Environment
from ..manifest.manifest import CleanStopEntry, Manifest
from ..table.table import Table
from ..tablet.tablet import Tablet
from ..wal.store_log import StoreLog
from .op import MaintenanceOp, TabletOp, followed_by
from .together import perform_on_all, unless_all_fail


class LogFreeing:
    """Frees the log of one store. Thread safe."""

    def __init__(
        self,
        wal: StoreLog,
        log: CommitLog,
        environment: Environment,
        tables: Callable[[], list[Table]],
        writers: NumberedWrites,
        transaction_memory: TransactionMemory,
    ) -> None:
        self._wal = wal
        self._log = log
        self._environment = environment
        self._tables = tables
        self._writers = writers
        self._transaction_memory = transaction_memory
        self._freeing = threading.Lock()
        self._readers = 0
        """How many read the log, which stays as it is until then."""

    def free(self) -> None:
        """Free the log before the first position that a memory store needs.

        Raises:
            UnavailableError: the store is read-only, or log or manifest cannot be written.
            StorageFullError: the disk is full; nothing was freed.
        """
        with self._freeing:
            self._free()

    def operations(self, mark: Callable[[Table], int], flushed: Callable[[], None]) -> list[MaintenanceOp]:
        """Return what is due for a log that is never idle. ``mark`` returns a table's ancient history mark; ``flushed``
        is called after flushes, and frees the log."""

        def flush() -> None:
            with followed_by(flushed):
                self._flush_overdue(mark)

        due: list[MaintenanceOp] = []
        if self._wal.can_free_before(self.needed()[0]):
            due.append(TabletOp("free the log", lambda: 1.0, self.free))
        if any(self._overdue(table) for table in self._tables()):
            due.append(TabletOp("flush what keeps the log", lambda: 1.0, flush))
        return due

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Free nothing while the body reads the log."""
        with self._freeing:
            self._readers += 1
        try:
            yield
        finally:
            with self._freeing:
                self._readers -= 1

    def _overdue(self, table: Table) -> list[Tablet]:
        """Return the tablets whose memory stores keep too much of the log."""
        lsn = self._wal.overdue_lsn
        return [tablet for tablet in table.tablets if lsn and not tablet.quarantine and (_first(tablet) or lsn) < lsn]

    def _flush_overdue(self, mark: Callable[[Table], int]) -> None:
        """Flush them, also of tables that are not maintained: the log is everybody's. An error comes after all."""
        failure: Exception | None = None
        for table in self._tables():
            for kind in (MaintenanceKind.FLUSH, MaintenanceKind.FLUSH_DELTAS):
                is_gone = partial(_is_gone, table)
                work = perform_on_all(kind, self._overdue(table), self._environment, mark(table), is_gone)
                try:
                    deque(work, maxlen=0)
                except Exception as error:
                    failure = unless_all_fail(error, self._environment)
        if failure:
            raise failure

    def _free(self) -> None:
        if self._readers:
            return
        needed, in_files = self.needed()
        self._environment.latch.check()  # a commit that could not be applied is in no memory store
        self._environment.manifest.assume(lambda manifest: manifest.with_in_files(in_files))
        if self._wal.can_free_before(needed):
            self._save_answers(needed)
            last_ids = {table.table_id: table.auto_increment.last for table in self._tables()}
            last_changes = {table.table_id: table.last_change for table in self._tables()}

            def freed(manifest: Manifest) -> Manifest:
                return manifest.with_auto_ids(last_ids).with_last_changes(last_changes).with_log_from(needed)

            self._environment.manifest.commit(freed)
            self._wal.free_before(needed)

    def needed(self) -> tuple[int, dict[int, int]]:
        """Return the first position that memory stores need, and the last one that each tablet's files cover."""
        needed = self._wal.last_lsn + 1
        in_files: dict[int, int] = {}
        for tablet in [tablet for table in self._tables() for tablet in table.tablets]:
            with tablet.write_lock:
                first = tablet.first_unflushed_lsn()
                in_files[tablet.tablet_id] = tablet.last_lsn if first is None else first - 1
            needed = min(needed, first or needed)
        return needed, in_files

    def note_clean_stop(self, stop: CleanStopEntry, timestamp: int) -> None:
        """Write into the manifest where the log ends, what files cover, and the time. Raises as ``free``."""
        # In a read-only store, a commit may be missing from every memory store.
        in_files = {} if self._environment.latch.reason else self.needed()[1]
        edit = {"clean_stop": stop, "last_timestamp": timestamp}
        self._environment.manifest.commit(lambda manifest: manifest.with_in_files(in_files).model_copy(update=edit))

    def _save_answers(self, lsn: int) -> None:
        """Log again what the log before ``lsn`` says of numbered writes and of transactions.

        All writers up to ``lsn`` have finished, in every tablet.
        """
        for told in (self._writers, self._transaction_memory):
            with told.saved_before(lsn) as (note, positions):
                if note:
                    with self._log.commit([], [note]) as commit:
                        positions.append(commit.lsn)
                    self._log.acknowledge(commit, Durability.FSYNC)


def _first(tablet: Tablet) -> int | None:
    with tablet.write_lock:
        return tablet.first_unflushed_lsn()


def _is_gone(table: Table, tablet: Tablet) -> bool:
    return tablet not in table.tablets
