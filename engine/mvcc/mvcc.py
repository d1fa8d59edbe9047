"""Which commits a reader sees.

VERSIONS.  Every batch of writes is one commit and gets one timestamp, which its rows carry for as long as history is
kept.  Nothing is overwritten: an update adds a version, and a reader picks, of each row, the newest version that it
may see.

SNAPSHOTS.  A snapshot is ONE integer T.  It sees exactly the commits with timestamp <= T.  There is no list of
exceptions (PostgreSQL's xip, Kudu's "applying" set): whoever holds T may hand it to another thread, write it into a
ticket or compare it with a page's smallest and largest timestamp, and always means the same rows.

That works only if no commit appears later at or below a T that was handed out.  A commit lives like this:

    start() -> 17       17 is in flight: its rows are being applied, its log record is being written
    ... apply the rows, wait until the log is on the disk ...
    finish(17)          17 is visible: to every snapshot from now on, and in every later life of the store

Whoever notices that the last of both has happened finishes it (`CommitLog`), whether or not the writer still waits.

and a snapshot is taken like this (time goes right, o = start, x = finish):

    13   o-------x
    15       o---------------------x
    16           o-----x
    18                   o--------------x
    snapshots   ^12  ^14  ^14      ^17  ^now

16 is finished long before 15, yet stays unseen until 15 is finished: snapshots are prefixes of the commits' order.
So T is one less than the smallest timestamp in flight, or simply now when nothing is in flight.

WHY SNAPSHOTS NEVER GO BACK.  Let S be a snapshot handed out earlier.  Every start() after it returned more than S,
because all timestamps and all "now" snapshots come from one clock that only goes up, read under one lock.  And all that
was in flight when S was handed out was greater than S, by the rule above.  So whatever is in flight later is greater
than S, and the next snapshot is at least S.

READING ONE'S OWN WRITES.  A writer's answer carries its timestamp t; after finish(t), a snapshot may still be below t
while an older commit is in flight.  A reader that must see t calls wait_for(t) and reads at t, not at snapshot().

FAILURE.  When the log cannot be written, commits whose rows were applied but whose record may or may not be on the disk
stay in flight for ever: only a restart will tell.  Snapshots then stand still just below the first of them, which is
right (readers see what is known to be durable), and waiting is pointless: poison() says so to all who wait.

WHAT THIS IS NOT.  It locks no rows and finds no conflicts: a tablet applies one batch at a time under its write lock.
It keeps no snapshot alive either: how far back T may lie is the history's matter (SnapshotTooOldError).
"""

from __future__ import annotations

from collections import OrderedDict

from ...schemas.errors import UnavailableError
from .. import threads
from .clock import Clock


class MvccManager:
    """Hands out timestamps to commits, and snapshots to readers.  Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight: OrderedDict[int, None] = OrderedDict()
        """The timestamps in flight, ascending, since the clock only goes up."""
        self._poison: str | None = None
        self._newest = 0
        """The newest timestamp handed out."""
        self._mutex = threads.Lock()
        self._changed = threads.Condition(self._mutex)
        self._waiting = 0
        """How many threads wait for a change."""

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    def start(self) -> int:
        """Return the timestamp of a new commit, greater than every timestamp and snapshot handed out before.

        No snapshot reaches it before ``finish`` or ``abort``; the caller owes exactly one of the two, or ``poison``.
        """
        return self.start_all(1)[0]

    def start_all(self, count: int) -> list[int]:
        """Return the timestamps of ``count`` new commits, ascending. Each is as one of ``start``."""
        timestamps: list[int] = []
        try:
            with self._mutex:
                for _ in range(count):
                    self._newest = self._clock.now()
                    timestamps.append(self._newest)
                    self._in_flight[self._newest] = None
        except BaseException:  # an interrupt: the caller will not know them
            self.abort(*(timestamp for timestamp in timestamps if timestamp in self._in_flight))
            raise
        return timestamps

    def finish(self, *timestamps: int) -> None:
        """Make commits visible: their rows are applied and, as far as was promised, durable."""
        with self._mutex:
            for timestamp in timestamps:
                del self._in_flight[timestamp]
            if self._waiting:
                self._changed.notify_all()

    def abort(self, *timestamps: int) -> None:
        """Forget commits of which nothing was applied.  Their timestamps are not used again."""
        self.finish(*timestamps)

    def now(self) -> int:
        """Return a timestamp that is no commit's, greater than every timestamp and snapshot handed out before."""
        with self._mutex:
            self._newest = self._clock.now()
            return self._newest

    def snapshot(self) -> int:
        """Return the newest T such that every commit <= T is finished and every later one will be > T."""
        with self._mutex:
            oldest = self._oldest()
            return self._clock.now() if oldest is None else oldest - 1

    def newest(self) -> int:
        """Return the newest snapshot that is known here, to compare other timestamps with. It need not be "now"."""
        return self.snapshot()

    def wait_for(self, timestamp: int, timeout: float | None = None) -> None:
        """Return when ``timestamp`` is a snapshot: nothing at or below it is in flight, nor ever will be.

        A timestamp in the future pushes the clock past it; how much future is believed is the caller's decision.
        ``timeout`` is in seconds.  Raises UnavailableError when it runs out, and at once when the log has failed, for
        then a commit that is in flight stays so.
        """
        with self._mutex:
            if timestamp > self._newest:
                self._clock.update(timestamp)
            if self._readable(timestamp):
                return
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._readable(timestamp) or self._poison, timeout)
            finally:
                self._waiting -= 1
            if self._readable(timestamp):
                return
            if self._poison:
                raise UnavailableError(f"timestamp {timestamp} will not become readable: {self._poison}")
            raise UnavailableError(f"timestamp {timestamp} was not readable after {timeout} s: commits are in flight")

    def check_now(self) -> None:
        """Raise UnavailableError if other processes may have newer commits: never in a directory, which is locked."""

    def poison(self, reason: str) -> None:
        """Let nobody wait for what is in flight: the log has failed.  The first ``reason`` stays.

        Snapshots go on: they stay below the commits whose fate is unknown.
        """
        with self._changed:
            self._poison = self._poison or reason
            self._changed.notify_all()

    def _readable(self, timestamp: int) -> bool:
        oldest = self._oldest()
        return oldest is None or oldest > timestamp

    def _oldest(self) -> int | None:
        return next(iter(self._in_flight), None)
