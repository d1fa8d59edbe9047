"""CommitLog: the order of commits, the same in the log and in time.

A commit is logged and gets its timestamp in one step, so that log positions and timestamps rise together. The writer,
which holds the tablet's lock, then applies it to the stores. A commit is finished when it is applied and its log record
is as durable as promised; its writer or the one that synced the log finishes it, depending on which condition is met
last. So no commit waits until somebody asks for the answer to an earlier one. A commit is acknowledged when it is
durable and all earlier commits are visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol

from ...schemas.errors import InternalError
from ...schemas.rows.write import Durability
from ...schemas.table.table import TableSchema
from .. import threads
from ..manifest.interrupts import interrupts_later
from ..manifest.read_only_latch import ReadOnlyLatch
from ..mvcc.mvcc import MvccManager
from ..record.change import Attachment, Change, pack_record
from ..record.log_note import Note
from ..wal.group import Stamp
from ..wal.turn import Awaited
from ..wal.writer import LogWriter
from .commit_authors import CommitAuthors, Origin
from .row_stamps import RowStamps


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is logged and not acknowledged yet."""

    timestamp: int
    lsn: int


_CROWD = 8
"""With fewer, commits are made beside a sync sooner than after it."""


class Gathered(Awaited, Protocol):
    """A waiting commit that a gatherer makes, or leaves out, before the log writes a group."""

    @property
    def timestamp(self) -> int:
        """0 if there is none."""
        ...


class CommitLog:
    """The write-ahead log and the timestamps of what is in it. Thread safe."""

    def __init__(self, wal: LogWriter[Any], mvcc: MvccManager, latch: ReadOnlyLatch) -> None:
        self._wal = wal
        self._mvcc = mvcc
        self._latch = latch
        self.authors = CommitAuthors()
        """Who made the newest commits."""
        self.stamps = RowStamps(mvcc.now)
        """Until when rows stay the newest ones."""
        self._to_sync: list[tuple[int, int]] = []
        """A heap of (lsn, timestamp): applied commits that are visible once they are synced."""
        self._to_write: list[tuple[int, int]] = []
        """The same for those that the operating system must have."""
        self._finishing = threads.Lock()
        wal.listener = self._log_moved

    @property
    def read_only_reason(self) -> str | None:
        """Why commits are impossible; None if they are possible."""
        return self._latch.reason or (str(self._wal.failed) if self._wal.failed else None)

    def now(self, *schemas: TableSchema, is_needed: bool = False) -> int:
        """Return a moment after all commits so far; 0 if it is not needed, since rows expire in no table with these
        schemas, and none computes defaults."""
        return self._mvcc.now() if is_needed or any(schema.reads_clock for schema in schemas) else 0

    @property
    def is_crowded(self) -> bool:
        """Whether many threads wait for the log."""
        return len(self._wal.turns.waiting) >= _CROWD

    @contextmanager
    def commit(
        self,
        changes: Sequence[Change],
        notes: Sequence[Note] = (),
        durability: Durability = Durability.FSYNC,
        attachments: Sequence[Attachment] = (),
        origin: Origin | None = None,
    ) -> Iterator[Commit]:
        """Log changes, attachments and notes; the body applies the first two, under the write locks of their tablets.

        After the body, the commit becomes visible as soon as it is as durable as ``durability`` promises and all
        earlier commits are visible. Its ``origin`` is kept; None: it changes no rows.

        Raises:
            StorageFullError: before anything happened.
            UnavailableError: the log has failed, or the store is read-only; before anything happened.
        """
        record = pack_record(changes, notes, attachments)
        self._latch.check()
        timestamps: list[int] = []
        try:
            self._wal.reserve(sum(map(len, record)))
        except BaseException as error:
            self._give_up(timestamps, error)
            raise
        with interrupts_later():  # in the body memory and log differ
            try:
                lsn = self._wal.append([record], self._stamp(timestamps), durability is not Durability.FSYNC)
                commit = Commit(timestamps[0], lsn)
                yield commit
                if origin is not None:
                    self.authors.add((commit.timestamp, origin))
                self._keep([commit], durability)
            except BaseException as error:
                self._give_up(timestamps, error)
                raise

    def commit_rows(
        self,
        payloads: Sequence[bytes],
        durability: Durability,
        apply: Callable[[Sequence[Commit]], None],
        may_wait: bool,
    ) -> bool:
        """Log small records as one commit each, which ``apply`` applies; it keeps their origins in ``authors``. Else as
        ``commit``, with all of them logged or none.

        Unless they ``may_wait``: False, with nothing done, if the log has no room for them now.
        """
        self._latch.check()
        timestamps: list[int] = []
        stamp, is_early = self._stamp(timestamps), durability is not Durability.FSYNC
        try:
            first = self._wal.append_at_once(payloads, stamp, is_early)
            if first is None:
                if not may_wait:
                    return False
                self._wal.reserve(*map(len, payloads))
                first = self._wal.append([[payload] for payload in payloads], stamp, is_early)
            commits = [Commit(timestamp, lsn) for lsn, timestamp in enumerate(timestamps, first)]
            apply(commits)
            self._keep(commits, durability)
        except BaseException as error:
            self._give_up(timestamps, error)
            raise
        return True

    def _stamp(self, timestamps: list[int]) -> Stamp:
        """Return what gives timestamps to records that are logged; they come in the list."""

        def stamp(count: int) -> list[int]:
            timestamps.extend(self._mvcc.start_all(count))
            return timestamps

        return stamp

    def _give_up(self, timestamps: list[int], error: BaseException) -> None:
        """Undo what led to a commit. If it has timestamps, it may be logged, as a signal's handler may raise anywhere:
        stop the store then."""
        if timestamps:
            raise self._not_applied(error) from error
        self._wal.release()

    def _keep(self, commits: Sequence[Commit], durability: Durability) -> None:
        """Make applied commits visible, now or when they are durable."""
        is_to_sync = durability is Durability.FSYNC
        heap = self._to_sync if is_to_sync else self._to_write
        with self._finishing:
            for commit in commits:
                heappush(heap, (commit.lsn, commit.timestamp))
        if commits[0].lsn <= (self._wal.durable_lsn if is_to_sync else self._wal.written_lsn):
            self._finish_durable()

    def _not_applied(self, error: BaseException) -> InternalError:
        """Forbid changes, since memory lacks what the log has; return the error to raise."""
        why = "a commit was logged but could not be applied"
        self._latch.stop(f"{why} ({error!r})")
        self._mvcc.poison(why)
        return InternalError(f"{why}; restart the store")

    def acknowledge(self, commit: Commit | Gathered, durability: Durability) -> None:
        """Wait until a commit is durable and visible. The caller holds no lock; any number of threads may wait.

        Raises:
            UnavailableError: the log failed; whether the commit survives is known after a restart.
        """
        if durability is Durability.FSYNC:
            self._wal.wait(commit.lsn)
        else:
            self._wal.wait_written(commit.lsn)
        self._mvcc.wait_for(commit.timestamp)

    def gather_by(self, gatherer: Callable[[], None]) -> None:
        """Call ``gatherer`` before the log writes a group (`LogWriter.gatherer`). Its commits may not wait."""
        self._wal.gatherer = gatherer

    def wait_for(self, awaited: Gathered) -> None:
        """Wait until a commit that a gatherer makes, or leaves out, is durable and visible. Raises as ``acknowledge``
        does."""
        self._wal.wait_for(awaited)
        if awaited.timestamp:
            self._mvcc.wait_for(awaited.timestamp)

    def settled(self, timestamp: int) -> None:
        """Wait until an earlier commit, for which others wait too, is durable and visible. Raises as ``acknowledge``
        does."""
        self._mvcc.wait_for(timestamp)

    def settle(self) -> int:
        """Return a timestamp at or below which nothing is in flight: the base of an answer without a commit."""
        timestamp = self._mvcc.now()
        self._mvcc.wait_for(timestamp)
        return timestamp

    def _log_moved(self) -> None:
        self._finish_durable()
        if failure := self._wal.failed:
            self._mvcc.poison(failure.message)

    def _finish_durable(self) -> None:
        """Make applied commits visible whose log records are as durable as promised."""
        with self._finishing:
            due = _pop_until(self._to_sync, self._wal.durable_lsn) if self._to_sync else []
            if self._to_write:
                due += _pop_until(self._to_write, self._wal.written_lsn)
        if due:
            self._mvcc.finish(*due)


def _pop_until(heap: list[tuple[int, int]], lsn: int) -> list[int]:
    """Remove the commits up to log position ``lsn`` from a heap; return their timestamps."""
    timestamps: list[int] = []
    while heap and heap[0][0] <= lsn:
        timestamps.append(heappop(heap)[1])
    return timestamps
