"""Writes the log: many threads append, and one of those that wait writes and syncs for all, into a ``Sink``.

GROUP COMMIT.  The first thread that waits for its record leads: it takes all the records that are there, writes them as
one group, syncs, wakes whoever waits for them, and hands over to one of those whose records came in the meantime.  The
busier the log, the larger its groups; an idle log costs one sync for one record, and no other thread.  Group n+1 is
written only after the sync of group n has returned: the reader's rules rest on that.

The log has a thread for the records that nobody waits for.  It waits for them like any writer, a moment after they came
(``_LINGER_SECONDS``); at once when they are many bytes, when somebody waits for them without leading, or when a leader
was interrupted.  Python runs the handlers of signals in the main thread, so that a leader there may be stopped by an
exception (KeyboardInterrupt) that says nothing of the disk: its group is then written again, the same bytes in the same
place, by the next leader.  Not so while a group is taken or its commits are made visible: then the log fails.

ROOM.  ``reserve`` is the only place where a write waits for others or finds the disk full: before it the caller has
changed nothing.  It counts the most that the record can take (its "claim") and keeps two promises:

* ``_admitted``, all claims until they are durable, stays within the bound of the queue (one record alone may pass it);
* ``_claimed``, all claims until they are taken for writing, fits in what the sink has room for (``free_bytes``).

Only one thread at a time makes room (``_rolling``), so while it makes some the other claims can only shrink.

FAILURE.  After any error of a write or a sync nothing is written any more (a second sync that succeeds may lie): all
who wait get UnavailableError, and only a restart finds out what is on the disk.

NO ANSWER.  Where the sink is far away it may not know the outcome, and the group may be written again
(UnansweredError).  Then the group stays taken, and each that leads tries it again, the log's thread for as long as it
takes.  Whoever has waited, and heard nothing of it, for ``patience_seconds`` is told that the outcome is unknown.  Some
may not go on without it, and others wait for their locks (``OnSilence``): the log fails after ``failing_seconds``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic

from ...schemas.errors import UnavailableError
from .. import threads
from ..fs.filesystem import views_of
from ..mvcc.clock import elapsed_seconds
from .format import EncodedRecord, encode_record, footprint
from .group import Stamp, WriterCounters, fitting
from .interruption import is_interruption
from .reader import CleanStop
from .silence import OnSilence, Silence
from .sink import AnyGroup, LogLostError, Sink, UnansweredError, outcome_unknown, queue_stuck, why_it_failed
from .turn import UNLOGGED, Awaited, Position, Turn, Turns, held

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_logger = logging.getLogger(__name__)

GROUP_RECORDS_MAX = 1 << 16  # bounds what a reader holds in memory
_LINGER_SECONDS = 0.010  # how long a record is left to a writer that may come to wait for it
_LINGER_BYTES = 64 << 10  # so much is written at once, while its writer prepares the next
_RECHECK_SECONDS = 1.0  # a leader that is interrupted while it hands over may wake nobody, and count nothing


class LogWriter(Generic[AnyGroup]):
    """Writes the log for the threads that append. See the module's text. Any thread may call any method."""

    def __init__(
        self,
        sink: Sink[AnyGroup],
        last_lsn: int,
        queue_bytes: int,
        linger_seconds: float = 0.0,
        patience_seconds: float | None = None,
        failing_seconds: float | None = None,
    ) -> None:
        """``queue_bytes`` bounds the queue. A leader waits for others for ``linger_seconds``. See also ``Silence``."""
        self._sink = sink
        self._queue_bytes = queue_bytes
        self._linger_seconds = linger_seconds
        self._silence = Silence(sink, patience_seconds, failing_seconds)
        self._recheck_seconds = min(_RECHECK_SECONDS, patience_seconds or _RECHECK_SECONDS)
        self.counters = WriterCounters()
        self.last_lsn = self.written_lsn = self.durable_lsn = last_lsn  # appended; survive the process; on the disk
        self.failed: UnavailableError | None = None
        self.listener: Callable[[], None] = lambda: None
        """Called by the thread that has changed ``written_lsn``, ``durable_lsn`` or ``failed``, before those who wait
        for that go on. It must be quick and may not append."""
        self.gatherer: Callable[[], None] = lambda: None
        """Called before a group is written, by the thread that writes it, to ``append_at_once`` what waits for that.
        It may not wait for the log, nor for a lock that somebody may hold who does. What it raises stops the log."""

        # The leader's own.
        self._taken: AnyGroup | None = None
        self._done: list[AnyGroup] = []
        """What is on the disk and not counted yet."""
        self._repeatable = False
        """Whether what the leader is doing may be done again."""

        # Shared, under _mutex.
        self._mutex = threads.Lock()
        self._work = threads.Condition(self._mutex)
        self._space = threads.Condition(self._mutex)
        self._written = threads.Condition(self._mutex)
        self._lull = threads.Condition(self._mutex)
        self._queue: list[EncodedRecord] = []
        self._early_lsn = 0
        """Up to here somebody wants to know of records that they are written, before they are on the disk."""
        self.turns = Turns()
        self._is_idle = self._in_haste = self._is_gathering = False
        """Whether the log's thread waits for records; whether it shall not linger; whether a leader will take what is
        there."""
        self._admitted = self._claimed = 0
        self._reserved: dict[int, int] = {}
        self._closing = False
        self._thread: threads.Thread | None = None

        # Ordered before _mutex: who waits for space lets nobody past, who makes room does so alone.
        self._turn, self._rolling = threads.Lock(), threads.Lock()

    # --- what callers do ---

    def reserve(self, *sizes: int) -> None:
        """Wait for a place in the queue and take room on the disk for records of these ``sizes`` by this thread.

        The thread's next ``append`` uses it up; a thread that will not append calls ``release``.  The caller may hold
        no lock that an appending thread needs.  Raises StorageFullError (nothing has happened, the log goes on) and
        UnavailableError (the log has failed or is closed).
        """
        claim = sum(map(footprint, sizes))
        if self._reserves_at_once(claim):
            return
        began = elapsed_seconds()
        with held(self._turn, self._recheck_seconds, lambda: self._silence.check(began, queue_stuck)), self._mutex:
            if not self._has_place(claim):
                self._await_place(claim, began)
            self._check_open()
            self._admitted += claim
        self._claim_room(claim)
        with self._mutex:
            self._reserved[threads.get_ident()] = claim

    def release(self) -> None:
        """Give back what this thread reserved and did not use."""
        with self._mutex:
            self._give_back(self._reserved.pop(threads.get_ident(), 0))

    def append(self, payloads: Sequence[Sequence[BytesLike]], stamp: Stamp, is_awaited_early: bool = False) -> int:
        """Enqueue records, each the pieces of its payload, without others in between; return the lsn of the first.

        Lsns are dense and in the order of the calls, and so are the timestamps: ``stamp`` is called under the lock that
        gives the lsns, when nothing can fail any more. A crash may leave only the first of the records. The pieces are
        kept by reference until they are written: nobody may change them. What the thread reserved too little is
        reserved now, which may make a segment but does not wait for the queue. ``is_awaited_early``: somebody will wait
        by ``wait_written``. Raises as ``reserve`` does, and then no record is in the log.
        """
        pieces = [views_of(payload) for payload in payloads]
        claim = sum(footprint(sum(map(len, payload))) for payload in pieces)
        missing = claim - self._reserved.get(threads.get_ident(), 0)
        if missing > 0:
            with self._mutex:
                self._check_open()
                self._admitted += missing
            self._claim_room(missing)
        with self._mutex:
            reserved = self._reserved.pop(threads.get_ident(), 0) + max(missing, 0)
            self._give_back(reserved - claim)
            self._check_open(claim)
            return self._enqueue(pieces, stamp, is_awaited_early, claim)

    def append_at_once(self, payloads: Sequence[bytes], stamp: Stamp, is_awaited_early: bool = False) -> int | None:
        """Enqueue records for which nothing was reserved, like ``append``; None, with nothing done, if it would have
        to wait, or if there is no room in the segment."""
        claim = sum([footprint(len(payload)) for payload in payloads])
        with self._mutex:
            if not self._takes(claim):
                return None
            return self._enqueue([[payload] for payload in payloads], stamp, is_awaited_early, claim)

    def wait(self, lsn: int) -> None:
        """Return when a record is on the disk; UnavailableError if nobody can tell. Hold no lock of ``listener``."""
        if self.durable_lsn < lsn:
            self.wait_for(Position(lsn))

    def wait_for(self, awaited: Awaited, on_silence: OnSilence = OnSilence.ENDS) -> None:
        """Do the same for a record that may not be in the log yet: the ``gatherer`` sees to that."""
        began = elapsed_seconds()
        while self.durable_lsn < awaited.lsn:
            turn = Turn(awaited)
            try:
                if self._leads(turn):
                    self._write_next()
                else:
                    turn.wait(_RECHECK_SECONDS)
            finally:
                if self.turns.leader is turn:
                    self.turns.leader = None
                    self.hand_over()
                else:
                    self._leave(turn)
            if self.durable_lsn < awaited.lsn:
                self._check_patience(began, on_silence)

    def wait_written(self, lsn: int) -> None:
        """Return when the operating system has the record: it survives the process, not a power failure."""
        with self._written:
            if self.written_lsn < lsn:
                self._early_lsn = max(self._early_lsn, lsn)
                self._hasten()
            began = elapsed_seconds()
            while not self._written.wait_for(lambda: self.written_lsn >= lsn or self.failed, self._recheck_seconds):
                self._silence.check(began, outcome_unknown)
            if self.written_lsn < lsn:
                raise self._failure()

    def hurry(self) -> None:
        """Fail if there is no answer for ``patience_seconds`` from now on, whoever waits: somebody wants to close the
        log, or waits for those who wait for it."""
        self._silence.hurry()

    def close(self) -> CleanStop | None:
        """Write and sync all that was appended, then stop.

        None if there is no clean end to expect: the log has failed, or it still ends in the torn tail that was found
        when it was opened, because nothing was appended.
        """
        self.hurry()
        with self._mutex:
            self._closing = True
            self._hasten()
            self._space.notify_all()
            self._lull.notify_all()
        with self._rolling:
            if self._thread is not None:
                self._thread.join()
            try:
                self._sink.close(is_clean=self.failed is None)
            except OSError as error:
                self._fail(error)
        return None if self.failed else self._sink.clean_stop(self.durable_lsn)

    # --- room ---

    def _reserves_at_once(self, claim: int) -> bool:
        """Reserve if that takes no wait and no more room. Gives back what the thread reserved before."""
        with self._mutex:
            self._give_back(self._reserved.pop(threads.get_ident(), 0))
            if can_have := self._takes(claim):
                self._reserved[threads.get_ident()] = claim
            return can_have

    def _takes(self, claim: int) -> bool:
        """Count a claim if that takes no wait and no more room; under the mutex."""
        # Whoever waits for space comes first, and who makes room has counted what it must hold.
        if self._turn.locked() or self._rolling.locked() or self._refuses() or not self._has_place(claim):
            return False
        if self._claimed + claim > self._sink.free_bytes:
            return False
        self._admitted += claim
        self._claimed += claim
        return True

    def _enqueue(self, pieces: Sequence[Sequence[bytes | memoryview]], stamp: Stamp, is_early: bool, claim: int) -> int:
        """Give records their lsns and timestamps, under the mutex; if that fails, give back their ``claim``."""
        try:
            if self._thread is None:
                self._start_thread()
            encoded = list(map(encode_record, stamp(len(pieces)), pieces))
            last_lsn = self.last_lsn + len(encoded)
        except BaseException:
            self._give_back(claim)
            raise
        self._queue += encoded
        self.last_lsn = last_lsn  # no call is between the two: nothing interrupts them
        if is_early:
            self._early_lsn = last_lsn
        if self._claimed >= _LINGER_BYTES:
            self._hasten()
        elif self._is_idle and not self._is_gathering:
            self._work.notify()
        return last_lsn - len(encoded) + 1

    def _has_place(self, claim: int) -> bool:
        return self._admitted == 0 or self._admitted + claim <= self._queue_bytes

    def _claim_room(self, claim: int) -> None:
        """Add ``claim``, which is admitted, to what the sink has room for; make more if need be."""
        try:
            with self._rolling:
                with self._mutex:
                    self._check_open()
                    claimed = self._claimed + claim
                    fits = claimed <= self._sink.free_bytes
                if not fits:
                    self._make_room(claimed)
                with self._mutex:
                    self._claimed += claim
        except BaseException:
            with self._mutex:
                self._admitted -= claim
                self._space.notify_all()
            raise

    def _await_place(self, claim: int, began: float) -> None:
        """Wait until the queue has a place, under the mutex."""
        self._hasten()
        while not (self._refuses() or self._has_place(claim)):
            self._space.wait(self._recheck_seconds)
            self._count_done()
            self._silence.check(began, queue_stuck)

    def _make_room(self, claimed: int) -> None:
        try:
            self._sink.make_room(claimed, self._mutex)
        except OSError as error:
            self._fail(error)
            raise self._failure() from error

    def _give_back(self, claim: int) -> None:
        if claim:
            self._admitted -= claim
            self._claimed -= claim
            self._space.notify_all()

    # --- the log's thread ---

    def _start_thread(self) -> None:
        thread = threads.Thread(target=self._run, name="nyala-wal", daemon=True)
        thread.start()  # which fails where a process may have no more threads
        self._thread = thread

    def _run(self) -> None:
        try:
            while (lsn := self._next_unwaited()) is not None:
                self.wait_for(Position(lsn), OnSilence.LASTS)
        except BaseException as error:  # whatever it is, nobody may wait for this thread for ever
            self._fail(error)

    def _next_unwaited(self) -> int | None:
        """Return the last record, after the time in which its writer may have come to wait; None: there are no more."""
        with self._mutex:
            self._is_idle = True
            self._work.wait_for(lambda: self.durable_lsn < self.last_lsn or self._refuses())
            self._is_idle = False
            if self.failed or self.durable_lsn == self.last_lsn:
                return None
            lsn = self.last_lsn
            if self._work.wait_for(lambda: self._in_haste or self._refuses(), _LINGER_SECONDS):
                lsn = self.last_lsn
            self._in_haste = False
            return lsn

    def _hasten(self) -> None:
        """Have the log's thread write at once what there is; under the mutex."""
        self._in_haste = True
        self._work.notify()

    # --- leading ---

    def _leads(self, turn: Turn) -> bool:
        """Make the caller the leader, or let it wait; False too if its record is on the disk."""
        with self._mutex:
            if self.durable_lsn >= turn.awaited.lsn:
                turn.come()
                return False
            if self.failed:
                raise self._failure()
            return self.turns.enter(turn)

    def _leave(self, turn: Turn) -> None:
        """Wait no more, whether or not the turn has come."""
        if not turn.has_come:
            with self._mutex:
                self.turns.leave(turn)
        turn.pass_on()

    def hand_over(self) -> None:
        """Count what was written; wake the next leader, then those whose wait is over. Also amid a sync."""
        with self._mutex:
            self._count_done()
            if self._turn.locked():
                self._space.notify_all()
            if not self.turns.waiting:
                return
            served = self.turns.served(UNLOGGED if self.failed else self.durable_lsn)
        served[0].come()

    def _count_done(self) -> None:
        """Give the queue the places of what is on the disk; under the mutex, in whichever thread comes first."""
        while self._done:
            self.counters.add(self._done[0])
            self._admitted -= self._done[0].claims
            del self._done[0]

    def _write_next(self) -> None:
        """Write and sync all that waits. After a failure it says so in ``failed``; raises only what interrupts it."""
        try:
            self._repeatable = True
            if self._taken is None:
                self._is_gathering = True
                if self._linger_seconds and not self._sink.has_request:  # which waits for no other commits
                    self._linger()
                self.gatherer()
                self._take()
            if self._taken is not None:
                self._write(self._taken)
        except UnansweredError as error:
            _logger.warning("%s", error)
            with self._mutex:
                self._hasten()
        except LogLostError as error:
            self._fail(error)
        except BaseException as error:
            self._is_gathering = False  # before anything that may be interrupted, too
            if not self._repeatable or self._sink.in_doubt or not is_interruption(error):
                self._fail(error)
                return
            with self._mutex:
                self._hasten()
            raise
        finally:
            self._repeatable = False

    def _linger(self) -> None:
        """Let others join the group that is taken next."""
        with self._mutex:
            self._lull.wait_for(self._refuses, self._linger_seconds)

    def _take(self) -> None:
        """Take all that waits, and its place in the sink, if there is something to write."""
        with self._mutex:
            self._is_gathering = False
            if not (self._queue or self._sink.has_request) or self.failed:
                return
            records, claims = fitting(self._queue[:GROUP_RECORDS_MAX], self._sink.group_bytes)
            self._repeatable = False
            del self._queue[: len(records)]
            self._claimed -= claims
            first_lsn = self.last_lsn - len(self._queue) - len(records) + 1
            self._taken = self._sink.take(records, first_lsn, claims, not self._queue)
            self._repeatable = True
            if self._queue and self._is_idle:
                self._work.notify()

    def _write(self, group: AnyGroup) -> None:
        """Write and sync a group. While ``_repeatable``, all that it has changed may be changed again."""
        self._sink.write(group)
        last_lsn = group.first_lsn + len(group.records) - 1
        if self._early_lsn >= group.first_lsn and self._sink.survives_process(group):
            self._repeatable = False
            self.written_lsn = last_lsn
            self._tell(group)
            self._repeatable = True
        began = elapsed_seconds()
        self._sink.sync(group)
        self._repeatable = False
        self._silence.answered_at = elapsed_seconds()
        self.counters.sync_seconds.add(self._silence.answered_at - began)
        self._taken, self._sink.in_doubt = None, False
        self._done.append(group)
        self.written_lsn = self.durable_lsn = last_lsn
        self._tell(group)

    def _tell(self, group: AnyGroup) -> None:
        """Tell how far the log is; who comes to wait for that later sees it."""
        self.listener()
        if self._early_lsn >= group.first_lsn:
            with self._mutex:
                self._written.notify_all()

    # --- failure ---

    def _fail(self, error: BaseException) -> None:
        with self._mutex:
            if self.failed is None:
                locations = error.locations if isinstance(error, LogLostError) else None
                self.failed = UnavailableError(why_it_failed(error), locations=locations)
                self.failed.__cause__ = error
                _logger.error("%s", self.failed.message)
            for condition in (self._work, self._space, self._written, self._lull):
                condition.notify_all()
        self.listener()

    def _failure(self) -> UnavailableError:
        """Return the reason as a new exception: many threads raise it, each with a traceback of its own."""
        assert self.failed is not None
        failure = UnavailableError(self.failed.message, locations=self.failed.locations)
        failure.__cause__ = self.failed.__cause__
        return failure

    def _check_patience(self, began: float, on_silence: OnSilence) -> None:
        """Raise UnavailableError for whoever waits too long. The log fails if it is time for that."""
        if failure := self._silence.failure(began, on_silence):
            self._fail(failure)
        elif on_silence is OnSilence.ENDS:
            self._silence.check(began, outcome_unknown)

    def _refuses(self) -> bool:
        return self.failed is not None or self._closing

    def _check_open(self, claim: int = 0) -> None:
        """Raise UnavailableError if nothing may be appended, giving ``claim`` back first."""
        if self._refuses():
            self._give_back(claim)
            raise self._failure() if self.failed else UnavailableError("the log is closed")
