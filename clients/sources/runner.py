"""The runner: copies a source into a database, and then applies its changes, exactly once.

The copy is one transaction of the store. After it, every transaction of the store has whole transactions of the source,
and the position after them. The next batch is read while one is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from ...schemas.errors import InvalidArgumentError, RowErrors, UnavailableError
from ...schemas.rows.operation import Operation
from ..api.database import Database
from .applying import Applier
from .positions import POSITIONS, Position, Positions, State, listed, lost_race
from .source import BatchLimits, Snapshot, SnapshotPart, Source, SourceBatch, SourceChangedError, SourceTable
from .staging import StagedCommit
from .targets import check_target, prepare

PATIENCE_SECONDS = 300.0
"""How long a runner tries to reach a source or a store again before it gives up."""
PAUSES_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
_CAREFUL_TRANSACTIONS = 1_000
"""After one that failed, so many transactions are applied one by one, to find it."""
_CONFIRM_SECONDS = 2.0
_IDLE_SECONDS = 10.0
"""How often the position is written while nothing concerns the tables."""


@dataclass(frozen=True)
class Progress:
    """How far the runner of a source is."""

    state: State
    rows: int = 0
    """Rows copied, or changes applied, by this run."""
    transactions: int = 0
    parts: int = 0
    """Parts of the snapshot that are copied."""
    parts_in_all: int = 0
    position: str | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    """From the commit in the source to the commit in the store, for the last transaction."""
    lag_messages: int | None = None
    """How many messages follow that the source has; of databases None."""
    rejects: int = 0
    """Messages that could not be applied."""
    note: str = ""
    """Why the runner waits, if it does."""


Report = Callable[[Progress], None]


class Runner:
    """Mirrors one source into a database."""

    def __init__(
        self,
        database: Database,
        source: Source,
        report: Report = lambda progress: None,
        limits: BatchLimits | None = None,
        workers: int = 2,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """``workers`` read the parts of the snapshot. ``report`` is called, in one thread, whenever there is news.

        Raises:
            InvalidArgumentError: several servers share the tables of the database.
        """
        self._database = database
        self._source = source
        self._report = report
        self._limits = limits or BatchLimits()
        self._workers = workers
        self._patience_seconds = patience_seconds
        self._stopped = threading.Event()
        self._positions = Positions(database)
        self._reached_at: float | None = None
        self._rows = 0
        self._transactions = 0
        self._positions.check_one_server()

    def stop(self) -> None:
        """Let the run end after its current batch. Thread safe."""
        self._stopped.set()

    def run(self, until_caught_up: bool = False, again: bool = False) -> Position:
        """Copy the source, unless the store already follows it, and apply its changes until ``stop``, or until all are
        applied that the source had at the start. Return the position in the end; after a ``stop`` during the copy that
        has the state ``COPYING``, and the next run begins the copy again.

        With ``again`` the tables are copied anew, whatever the store has.

        Raises:
            ConflictError: another runner of the source was first, or a table changed in a way that cannot be mirrored.
            UnavailableError: the source or the store could not be reached for a while.
        """
        attempt, limits = 0, self._limits
        while True:
            begun = self._reached_at
            try:
                position = self._positions.read(self._source.name)
                if position is not None and self._reached_at is None:
                    begun = self._reached_at = time.monotonic()  # an earlier run has reached it
                if again or position is None or position.state is State.COPYING:
                    position = self._copy(position, again)
                    again = False
                    self._reached_at = time.monotonic()
                if (position := self._follow(position, until_caught_up, limits)) is not None:
                    return position
                limits = self._limits
            except _StoppedError as stopped:
                return stopped.claim
            except SourceChangedError:
                if not limits.seconds:
                    raise
                limits = replace(limits, seconds=0.0)  # one transaction after the other, up to the one that fails
                self._source.close()
            except UnavailableError as error:
                if self._reached_at != begun:
                    attempt = 0
                self._wait(error, attempt)
                attempt += 1
                if self._stopped.is_set():
                    raise

    def _wait(self, error: UnavailableError, attempt: int) -> None:
        """Wait before the next attempt to reach source and store; not if no run has ever reached the source: then its
        address may be wrong."""
        if self._reached_at is None or time.monotonic() - self._reached_at > self._patience_seconds:
            raise error
        self._source.close()
        self._report(Progress(State.FOLLOWING, self._rows, self._transactions, note=f"waiting: {error.message}"))
        self._stopped.wait(PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)])

    # The copy

    def _copy(self, before: Position | None, again: bool) -> Position:
        """Copy the rows of all tables in one commit, with the position; return it."""
        tables = self._source.tables()
        self._reached_at = time.monotonic()
        check_tables(tables)
        may_replace = {table.target for table in before.tables} if before else set()
        for table in tables:
            check_target(self._database, table, again and table.target in may_replace)
        if before is not None:
            self._source.abandon(before.memo)
        memo = self._source.new_memo()
        claim = Position(source=self._source.name, kind=self._source.kind, tables=tables, memo=memo)
        claim = self._advance(StagedCommit(self._database._store), before, claim)
        for table in tables:
            prepare(self._database, table, again and table.target in may_replace)
        staging = StagedCommit(self._database._store)
        try:
            with self._source.snapshot(memo, tables) as snapshot:
                self._stage_snapshot(snapshot, tables, staging)
            if self._stopped.is_set():
                raise _StoppedError(claim)
            copied = claim.model_copy(update={"state": State.FOLLOWING, "position": snapshot.position})
            return self._advance(staging, claim, copied)
        except BaseException:
            staging.abort()
            raise

    def _stage_snapshot(self, snapshot: Snapshot, tables: Sequence[SourceTable], staging: StagedCommit) -> None:
        about = {table.name: self._database._store.describe_table(table.target) for table in tables}

        def stage(part: SnapshotPart) -> None:
            for batch in part.read():
                if self._stopped.is_set():
                    return
                staging.write(about[part.table], batch, Operation.INSERT)

        parts = len(snapshot.parts)
        with ThreadPoolExecutor(self._workers, "nyala-copy") as pool:
            waiting = {pool.submit(stage, part) for part in snapshot.parts}
            try:
                while waiting:
                    ended, waiting = wait(waiting, 1.0, FIRST_EXCEPTION)
                    for each in ended:
                        each.result()
                    copied = parts - len(waiting)
                    self._report(Progress(State.COPYING, staging.rows, parts=copied, parts_in_all=parts))
            finally:
                for each in waiting:
                    each.cancel()

    # The changes

    def _follow(self, position: Position, until_caught_up: bool, limits: BatchLimits) -> Position | None:
        """Apply changes, and return the position in the end. None: it was one transaction after the other, and none
        failed; go on with the usual limits."""
        self._check_same(position)
        assert position.position is not None, "a source that is followed has a position"
        applier, begun = Applier(self._database, position.tables), self._transactions
        with ThreadPoolExecutor(1, "nyala-apply") as pool:
            following = _Following(self, pool, applier, position)
            changes = self._source.changes(position.memo, position.tables, position.position, limits)
            try:
                for batch in changes:
                    self._reached_at = time.monotonic()
                    following.take(batch)
                    if self._stopped.is_set() or (until_caught_up and batch.is_caught_up):
                        break
                    if not limits.seconds and self._transactions - begun >= _CAREFUL_TRANSACTIONS:
                        following.finish()
                        self._source.close()
                        return None
                return following.finish()
            except BaseException:
                following.abandon()
                raise

    def _check_same(self, position: Position) -> None:
        """Check that the runner is asked for the tables that the store has of the source."""
        if dict(self._source.chosen) != {table.name: table.target for table in position.tables}:
            raise InvalidArgumentError(
                f"the source {position.source!r} mirrors {listed(position.tables)}: name the same tables, give another "
                "--source for other tables, or copy all tables with --again"
            )

    def _advance(self, staging: StagedCommit, before: Position | None, after: Position) -> Position:
        """Commit what is staged with a position, which takes the place of the one before; return it."""
        commit = before.commit + 1 if before else 1
        after = after.model_copy(update={"commit": commit, "applied_at": datetime.now(UTC)})
        about = self._positions.about
        if before is not None:
            staging.write(about, before.key(), Operation.DELETE)
        staging.write(about, after.row(), Operation.INSERT)
        try:
            staging.commit()
        except RowErrors as error:
            raise lost_race(self._source.name, error) or error from None
        return after


class _StoppedError(Exception):
    """The runner was stopped during the copy."""

    def __init__(self, claim: Position) -> None:
        super().__init__()
        self.claim = claim


class _Following:
    """A runner's way through the changes: one batch is committed in a thread while the next one is read."""

    def __init__(self, runner: Runner, pool: ThreadPoolExecutor, applier: Applier, position: Position) -> None:
        self._runner = runner
        self._pool = pool
        self._applier = applier
        self._position = position
        self._staging = StagedCommit(runner._database._store)
        self._running: Future[None] | None = None
        self._lag: tuple[int | None, float | None] = (None, None)
        self._confirmed_at = 0.0

    def take(self, batch: SourceBatch) -> None:
        """Take the next batch, when the one before it is applied."""
        if not batch.steps and not batch.transactions and self._is_recent(batch):
            if self._running is not None and self._running.done():
                self._settle()
            if time.monotonic() - self._confirmed_at > _CONFIRM_SECONDS:
                if batch.position is not None and self._running is None:
                    self._lag = (0, 0.0)
                self._confirm()
            return
        self._settle()
        self._running = self._pool.submit(self._apply, batch)

    def _is_recent(self, batch: SourceBatch) -> bool:
        """Whether a batch without changes is not worth a commit."""
        applied_at = self._position.applied_at
        if batch.position is None or batch.position == self._position.position or applied_at is None:
            return True
        return (datetime.now(UTC) - applied_at).total_seconds() < _IDLE_SECONDS

    def _apply(self, batch: SourceBatch) -> None:
        """Stage a batch, and commit if it ends a transaction of the source."""
        runner = self._runner
        for step in batch.steps:
            self._applier.apply(step, self._staging)
        runner._rows += batch.changes
        if batch.position is None:
            return
        update = {
            "position": batch.position,
            "source_time": batch.source_time or self._position.source_time,
            "behind_bytes": batch.behind_bytes,
            "tables": list(self._applier.tables.values()),
        }
        staging, self._staging = self._staging, StagedCommit(runner._database._store)
        self._position = runner._advance(staging, self._position, self._position.model_copy(update=update))
        runner._transactions += batch.transactions
        seconds = (datetime.now(UTC) - batch.source_time).total_seconds() if batch.source_time else None
        self._lag = (batch.behind_bytes, seconds)

    def _settle(self) -> None:
        """Wait until the batch that is being applied is committed; tell the source meanwhile that we are alive."""
        if self._running is None:
            return
        while not wait([self._running], _CONFIRM_SECONDS).done:
            self._confirm()
        running, self._running = self._running, None
        running.result()
        self._confirm()

    def _confirm(self) -> None:
        position = self._confirmed
        self._runner._source.confirm(position)
        self._confirmed_at = time.monotonic()
        lag_bytes, lag_seconds = self._lag
        runner = self._runner
        runner._report(
            Progress(
                State.FOLLOWING,
                runner._rows,
                runner._transactions,
                position=position,
                lag_bytes=lag_bytes,
                lag_seconds=lag_seconds,
            )
        )

    @property
    def _confirmed(self) -> str:
        assert self._position.position is not None
        return self._position.position

    def finish(self) -> Position:
        """Wait for the last batch; discard a transaction that has not come to its end; return the position."""
        self._settle()
        self.abandon()
        self._confirm()
        return self._position

    def abandon(self) -> None:
        """Discard a transaction that has not come to its end, once nothing is being staged."""
        if self._running is not None:
            wait([self._running])
        if not self._staging.is_empty:
            self._staging.abort()


def check_tables(tables: Sequence[SourceTable]) -> None:
    """Check that no two tables of a source have one target. Raises InvalidArgumentError."""
    for target, same in groupby(sorted(tables, key=lambda each: each.target), key=lambda each: each.target):
        names = [table.name for table in same]
        if len(names) > 1:
            raise InvalidArgumentError(
                f"{' and '.join(names)} would both be the table {target!r}: give one of them another name with --as"
            )
        if target == POSITIONS:
            raise InvalidArgumentError(
                f"{names[0]} would be the table {POSITIONS!r}, which has the positions of sources: give {names[0]} "
                "another name with --as"
            )
