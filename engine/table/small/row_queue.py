"""RowQueue: single rows that wait to be written by whoever leads the log.

Where many threads wait for the log, a thread puts its row here and waits, too. The thread that writes the next group
first commits all rows that are here, one tablet after the other, so that they share locks, a place in the log and warm
code. Each remains a commit of its own. Where few wait, threads commit their rows themselves, beside the sync of others;
but numbered rows, which come over sockets to threads that are cold, are always worth a place here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ....schemas.errors import InternalError, StoreError, UnavailableError
from ....schemas.rows.write import Durability
from ... import threads
from ...commit.commit_log import CommitLog
from ...tablet.tablet import Tablet
from ...wal.interruption import is_interruption
from .row_commit import RowWrite, commit_rows


class RowQueue:
    """The single rows of all tables of a store that wait in the plan lane. Thread safe."""

    def __init__(self, log: CommitLog, is_written: Callable[[Tablet, int], None]) -> None:
        """``is_written`` is called when rows were written to a tablet whose MemRowSet had so many before."""
        self._log = log
        self._is_written = is_written
        self._gathering = threads.Lock()
        """Held by the leader while it settles rows, and to take rows out."""
        self._rows: deque[RowWrite] = deque()
        """Those that wait, behind settled ones."""
        log.gather_by(self._gather)

    def write(self, row: RowWrite) -> None:
        """Return when a row is settled: durable and visible, or left to its thread, with nothing done.

        Raises:
            InternalError, UnavailableError: as ``PendingWrite.result``.
        """
        try:
            self._rows.append(row)
            self._log.wait_for(row)
        finally:
            if not row.is_settled:  # by an interruption, or since the log has failed
                self._withdraw(row)
        if row.error is not None:
            raise row.error

    def write_each(self, rows: Sequence[RowWrite]) -> None:
        """Return when rows are settled, as ``write``, which keep their errors."""
        try:
            self._rows.extend(rows)
            for row in rows:
                try:
                    self._log.wait_for(row)
                except UnavailableError as error:
                    row.error = error
        finally:
            for row in rows:
                if not row.is_settled:
                    self._withdraw(row)

    def _withdraw(self, row: RowWrite) -> None:
        """Leave a row to its thread; one that a leader is about to commit is waited for, and may have a commit then."""
        with self._gathering:
            if row in self._rows and not row.is_settled:
                self._rows.remove(row)
                row.leave()

    def _gather(self) -> None:
        """Commit and settle what waits, without waiting for anything."""
        rows = self._rows
        by_tablet: dict[Tablet, list[RowWrite]] = {}
        with self._gathering:
            for row in list(rows):
                if not row.is_settled:
                    by_tablet.setdefault(row.planned.tablet, []).append(row)
            for tablet, those in by_tablet.items():
                self._commit(tablet, those)
            while rows and rows[0].is_settled:
                rows.popleft()

    def _commit(self, tablet: Tablet, rows: list[RowWrite]) -> None:
        """Commit rows of one tablet; leave them to their threads if its lock is taken, perhaps for long."""
        before = len(tablet.version.active)
        has: list[bool] = []
        try:
            has.extend(map(tablet.write_lock.acquire, [False]))  # one step for an interruption
            for those in _rounds(rows) if has[0] else [rows]:
                self._commit_round(those, has[0])
        finally:
            if has and has[0]:
                tablet.write_lock.release()
        self._is_written(tablet, before)

    def _commit_round(self, rows: list[RowWrite], is_locked: bool) -> None:
        """Commit rows of different keys, or leave them to their threads."""
        try:
            if is_locked:
                commit_rows(rows, self._log, Durability.FSYNC, may_wait=False)
        except InternalError as error:  # logged and perhaps applied: nobody may try again
            for row in rows:
                row.fail(error)
            if error.__cause__ is not None and not isinstance(error.__cause__, Exception):
                raise error.__cause__ from None  # Ctrl-C, which came for this thread, whoever's rows these are
        except Exception as error:  # nothing was logged: each finds out by itself whether the error is its own
            if not isinstance(error, StoreError) and is_interruption(error):
                raise
        for row in rows:
            if not row.is_settled:
                row.leave()


def _rounds(rows: Sequence[RowWrite]) -> list[list[RowWrite]]:
    """Return the rows in lists without two of one key, those of a key in their order."""
    rounds: list[list[RowWrite]] = []
    seen: dict[object, int] = {}
    for row in rows:
        key = row.planned.key.cell
        number = seen.get(key, 0)
        seen[key] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(row)
    return rounds
