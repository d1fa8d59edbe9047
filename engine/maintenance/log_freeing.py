"""LogFreeing: frees the part of the log that no memory store needs, once its other content is saved elsewhere.

Whatever keeps too much of the log is flushed, however small it is: of a log that grows while nobody writes, and where a
crash would take too long to replay (`replay_cost`). The oldest needs come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

from ...schemas.protocol.service import MaintenanceKind
from ...schemas.rows.write import Durability
from .. import threads
from ..commit.commit_log import CommitLog
from ..commit.numbered_writes import NumberedWrites
from ..commit.transaction_memory import TransactionMemory
from ..manifest.environment import Environment
from ..manifest.manifest import CleanStopEntry, Manifest
from ..table.table import Table
from ..tablet.tablet import Tablet
from .op import MaintenanceOp, TabletOp, followed_by
from .replay_cost import ReplayCost
from .together import perform_on_all, unless_all_fail

_OVERDUE_SCORE = 3.0
"""Above flushes of stores that are large, and of what an earlier flush left."""
_FLUSHED_AT_ONCE = 256


class _Need(NamedTuple):
    """What a replay would begin with in a tablet, and what its memory stores begin with, if they have anything."""

    replayed_from: int
    unflushed_from: int | None
    table: Table
    tablet: Tablet


class LogFreeing:
    """Maintains the log of one store: frees the part that nothing needs. Thread safe."""

    def __init__(
        self,
        log: CommitLog,
        environment: Environment,
        tables: Callable[[], list[Table]],
        writers: NumberedWrites,
        transaction_memory: TransactionMemory,
        cost: ReplayCost,
    ) -> None:
        self._wal = environment.wal
        self._cost = cost
        self._looking = threads.Lock()
        self._log = log
        self._environment = environment
        self._tables = tables
        self._writers = writers
        self._transaction_memory = transaction_memory
        self._freeing = threads.Lock()
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

    def operations(
        self, mark: Callable[[Table], int], flushed: Callable[[], None], is_never_idle: bool
    ) -> list[MaintenanceOp]:
        """Return what is due for the log, which grows while nobody writes if it ``is_never_idle``. ``mark`` returns a
        table's ancient history mark; ``flushed`` is called after flushes, and frees the log."""

        def flush() -> None:
            with followed_by(flushed):
                self._flush_overdue(mark)

        due: list[MaintenanceOp] = []
        if is_never_idle and self._wal.can_free_before(self.needed()[0]):
            due.append(TabletOp("free the log", lambda: 1.0, self.free))
        if self._overdue(self._overdue_lsn()):
            due.append(TabletOp("flush what keeps the log", lambda: _OVERDUE_SCORE, flush))
        return due

    def replay_seconds(self) -> float:
        """Return about how long the next opening would replay the log if the process died now."""
        with self._looking:
            self._cost.look()
            first = min((need.replayed_from for need in self._needs()), default=None)
            return 0.0 if first is None else self._cost.seconds_from(first)

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

    def _needs(self) -> Iterator[_Need]:
        """Yield what tablets need of the log, as the manifest on disk has them."""
        entries = {entry.id: entry for table in self._environment.manifest.written.tables for entry in table.tablets}
        for table in self._tables():
            for tablet in table.tablets:
                if tablet.quarantine or tablet.elsewhere is not None:
                    continue
                with tablet.write_lock:
                    last_lsn, unflushed_from = tablet.last_lsn, tablet.first_unflushed_lsn()
                entry = entries.get(tablet.tablet_id)
                covered = 0 if entry is None else entry.covered_lsn
                if covered < last_lsn:
                    yield _Need(covered + 1, unflushed_from, table, tablet)

    def _overdue_lsn(self) -> int:
        """Return the record before which whatever needs the log keeps too much of it; 0: there is none."""
        with self._looking:
            self._cost.look()
            return max(self._wal.overdue_lsn, self._cost.overdue_lsn)

    def _overdue(self, lsn: int) -> list[_Need]:
        """Return the needs of records before ``lsn``, the oldest first."""
        if not lsn:
            return []
        sound = (need for need in self._needs() if not need.tablet.flush_failures)  # others have work of their own
        return sorted((need for need in sound if need.replayed_from < lsn), key=lambda need: need.replayed_from)

    def _flush_overdue(self, mark: Callable[[Table], int]) -> None:
        """Flush the oldest, also of tables that are not maintained: the log is everybody's. Then have the manifest say
        what files hold. An error comes after all."""
        lsn = self._overdue_lsn()
        unflushed = (need for need in self._overdue(lsn) if (need.unflushed_from or lsn) < lsn)
        by_table: dict[Table, list[Tablet]] = {}
        for need in islice(unflushed, _FLUSHED_AT_ONCE):
            by_table.setdefault(need.table, []).append(need.tablet)
        failure: Exception | None = None
        for table, tablets in by_table.items():
            for kind in (MaintenanceKind.FLUSH, MaintenanceKind.FLUSH_DELTAS):
                work = perform_on_all(kind, tablets, self._environment, mark(table), partial(_is_gone, table))
                try:
                    deque(work, maxlen=0)
                except Exception as error:
                    failure = unless_all_fail(error, self._environment)
        in_files = self.needed()[1]
        self._environment.latch.check()  # a commit that could not be applied is in no memory store
        self._environment.manifest.commit(lambda manifest: manifest.with_in_files(in_files))
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
            mvcc = self._environment.mvcc
            last_changes = {table.table_id: table.settled_change(mvcc) for table in self._tables()}

            def freed(manifest: Manifest) -> Manifest:
                return manifest.with_auto_ids(last_ids).with_last_changes(last_changes).with_log_from(needed)

            self._environment.manifest.commit(freed)
            self._wal.free_before(needed)

    def needed(self) -> tuple[int, dict[int, int]]:
        """Return the first position that memory stores need, and the last one that each tablet's files cover.

        Neither is past the durable end of the log: a record behind it may be lost, and its position be taken again by
        one that no file holds.
        """
        durable = self._wal.writer.durable_lsn
        needed = durable + 1
        in_files: dict[int, int] = {}
        for tablet in [tablet for table in self._tables() for tablet in table.tablets]:
            with tablet.write_lock:
                first = tablet.first_unflushed_lsn()
                last = tablet.last_lsn if first is None else first - 1
            in_files[tablet.tablet_id] = min(last, durable)
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
                        pass
                    self._log.acknowledge(commit, Durability.FSYNC)
                    positions.append(commit.lsn)  # now, and no earlier: the wait may be interrupted


def _is_gone(table: Table, tablet: Tablet) -> bool:
    return tablet not in table.tablets
