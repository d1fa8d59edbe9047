"""CommitLog: the order of commits, the same in the log and in time.

A commit is logged and given its timestamp in one step, so that log positions and timestamps rise together. It is
then applied to the stores, by the writer that holds the tablet's lock, and acknowledged when its log record is durable
and all commits before it are visible.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from ..schemas.errors import InternalError, StoreError, UnavailableError
from ..schemas.write import Durability
from .mvcc.mvcc import MvccManager
from .tablet.change import Change, pack_record
from .tablet.note import Note
from .wal.log import WriteAheadLog


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that is logged and not acknowledged yet."""

    timestamp: int
    lsn: int


class CommitLog:
    """The write-ahead log and the timestamps of what is in it. Thread safe."""

    def __init__(self, wal: WriteAheadLog, mvcc: MvccManager) -> None:
        self._wal = wal
        self._mvcc = mvcc
        self._order = threading.Lock()
        self._broken: str | None = None

    @property
    def read_only_reason(self) -> str | None:
        """Why nothing can be committed any more; None while all is well."""
        return self._broken or (str(self._wal.failed) if self._wal.failed else None)

    @contextmanager
    def commit(self, changes: Sequence[Change], notes: Sequence[Note] = ()) -> Iterator[Commit]:
        """Log changes and notes; the body applies the changes, under the write locks of their tablets.

        Raises:
            StorageFullError: before anything happened.
            UnavailableError: the log has failed; before anything happened.
        """
        if self._broken:
            raise UnavailableError(self._broken)
        payload: list[pa.Buffer | bytes] = pack_record(changes, notes)
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
        except BaseException as error:
            self._break(f"the store is read-only: a commit was logged and could not be applied ({error!r})")
            raise InternalError("a commit was logged and could not be applied; restart the store") from error

    def acknowledge(self, commit: Commit, durability: Durability) -> None:
        """Return when a commit is durable and visible. The caller holds no lock.

        Raises:
            UnavailableError: the log failed; whether the commit survives is known after a restart.
        """
        try:
            self._wait_for_log(commit, durability)
        except KeyboardInterrupt:
            # Every later commit waits until this one is visible: it may not stay in flight.
            self._wait_for_log(commit, durability)
            self._mvcc.finish(commit.timestamp)
            raise
        self._mvcc.finish(commit.timestamp)
        self._mvcc.wait_for(commit.timestamp)

    def acknowledge_again(self, commit: Commit, durability: Durability) -> None:
        """Return when a commit that somebody else acknowledges, or did, is durable and visible.

        Raises:
            UnavailableError: the log failed; whether the commit survives is known after a restart.
        """
        self._wait_for_log(commit, durability)
        self._mvcc.wait_for(commit.timestamp)

    def settle(self) -> int:
        """Return a timestamp at or below which nothing is in flight: what an answer without a commit rests on."""
        timestamp = self._mvcc.start()
        self._mvcc.finish(timestamp)
        self._mvcc.wait_for(timestamp)
        return timestamp

    def _wait_for_log(self, commit: Commit, durability: Durability) -> None:
        try:
            if durability is Durability.FSYNC:
                self._wal.wait(commit.lsn)
            else:
                self._wal.written(commit.lsn)
        except StoreError as error:
            self._mvcc.poison(error.message)
            raise

    def _break(self, reason: str) -> None:
        self._broken = reason
        self._mvcc.poison(reason)
