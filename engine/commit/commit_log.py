"""CommitLog: the order of commits, the same in the log and in time.

A commit is logged and given its timestamp in one step, so that log positions and timestamps rise together. It is
then applied to the stores, by the writer that holds the tablet's lock. It is finished when it is applied and its log
record is as durable as was promised: by the writer or by the log's thread, whoever brings about the last of both. So
no commit waits for somebody to ask for the answer to an earlier one. It is acknowledged when it is durable and all
commits before it are visible.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush

import pyarrow as pa

from ...schemas.errors import InternalError
from ...schemas.write import Durability
from ..manifest.read_only_latch import ReadOnlyLatch
from ..mvcc.mvcc import MvccManager
from ..record.change import Attachment, Change, pack_record
from ..record.log_note import Note
from ..wal.log import WriteAheadLog


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is logged and not acknowledged yet."""

    timestamp: int
    lsn: int


class CommitLog:
    """The write-ahead log and the timestamps of what is in it. Thread safe."""

    def __init__(self, wal: WriteAheadLog, mvcc: MvccManager, latch: ReadOnlyLatch) -> None:
        self._wal = wal
        self._mvcc = mvcc
        self._order = threading.Lock()
        self._latch = latch
        self._applied: dict[Durability, list[tuple[int, int]]] = {durability: [] for durability in Durability}
        """Heaps of (lsn, timestamp): the commits that are applied and not yet durable enough to be visible."""
        self._finishing = threading.Lock()
        wal.listen(self._log_moved)

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing can be committed any more; None while all is well."""
        return self._latch.reason or (str(self._wal.failed) if self._wal.failed else None)

    @contextmanager
    def commit(
        self,
        changes: Sequence[Change],
        notes: Sequence[Note] = (),
        durability: Durability = Durability.FSYNC,
        attachments: Sequence[Attachment] = (),
    ) -> Iterator[Commit]:
        """Log changes, attachments and notes; the body applies the former, under the write locks of their tablets.

        After the body the commit becomes visible as soon as it is as durable as ``durability`` promises, and all
        before it are.

        Raises:
            StorageFullError: before anything happened.
            UnavailableError: the log has failed, or the store is made read-only; before anything happened.
        """
        self._latch.check()
        payload: list[pa.Buffer | bytes] = pack_record(changes, notes, attachments)
        self._wal.reserve(sum(len(piece) for piece in payload))
        with self._order:
            timestamp = self._mvcc.start()
            try:
                lsn = self._wal.append(timestamp, payload)
            except BaseException:
                self._mvcc.abort(timestamp)
                self._wal.release()
                raise
        try:
            yield Commit(timestamp, lsn)
            with self._finishing:
                heappush(self._applied[durability], (lsn, timestamp))
            self._finish_durable()
        except BaseException as error:
            why = "a commit was logged but could not be applied"
            self._latch.stop(f"{why} ({error!r})")
            self._mvcc.poison(why)
            raise InternalError(f"{why}; restart the store") from error

    def acknowledge(self, commit: Commit, durability: Durability) -> None:
        """Return when a commit is durable and visible. The caller holds no lock; any number of threads may wait.

        Raises:
            UnavailableError: the log failed; whether the commit survives is known after a restart.
        """
        if durability is Durability.FSYNC:
            self._wal.wait(commit.lsn)
        else:
            self._wal.written(commit.lsn)
        self._mvcc.wait_for(commit.timestamp)

    def settled(self, timestamp: int) -> None:
        """Return when an earlier commit, which others wait for too, is durable and visible. Raises as ``acknowledge``
        does."""
        self._mvcc.wait_for(timestamp)

    def settle(self) -> int:
        """Return a timestamp at or below which nothing is in flight: what an answer without a commit rests on."""
        timestamp = self._mvcc.now()
        self._mvcc.wait_for(timestamp)
        return timestamp

    def _log_moved(self) -> None:
        self._finish_durable()
        if failure := self._wal.failed:
            self._mvcc.poison(failure.message)

    def _finish_durable(self) -> None:
        """Make those of the applied commits visible that the log has as safe as was promised."""
        with self._finishing:
            due = _pop_until(self._applied[Durability.FSYNC], self._wal.durable_lsn)
            due += _pop_until(self._applied[Durability.OS], self._wal.written_lsn)
        if due:
            self._mvcc.finish(*due)


def _pop_until(heap: list[tuple[int, int]], lsn: int) -> list[int]:
    """Take the commits up to log position ``lsn`` out of a heap; return their timestamps."""
    timestamps: list[int] = []
    while heap and heap[0][0] <= lsn:
        timestamps.append(heappop(heap)[1])
    return timestamps
