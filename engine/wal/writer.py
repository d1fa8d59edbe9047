"""Writes the log: many threads append, and one of those that wait writes and syncs for all.

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
* ``_claimed``, all claims until they are taken for writing, fits in the free space of the NEWEST segment.  The writer
  always writes to the newest segment, so a record that was admitted has its room, whatever others do.  When a new
  claim does not fit, a new segment is made that holds all claims, old and new, and becomes the newest.

Only one thread at a time makes room (``_rolling``), so while it makes a file the other claims can only shrink.

FAILURE.  After any error of a write or a sync nothing is written any more (a second sync that succeeds may lie): all
who wait get UnavailableError, and only a restart finds out what is on the disk.  So too when somebody has deleted,
replaced or cut the file: it is looked at before each acknowledgement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...schemas.errors import StorageFullError, UnavailableError
from ..fs.failures import is_full
from ..fs.filesystem import FileSystem, views_of
from .format import (
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    EncodedRecord,
    encode_group,
    encode_record,
    footprint,
    seed_of,
)
from .group import LogEnd, Stamp, TakenGroup, WriterCounters
from .interruption import is_interruption
from .options import WalOptions
from .reader import CleanStop
from .segments import NewSegment, SegmentList
from .turn import UNLOGGED, Awaited, Position, Turn, Turns

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_logger = logging.getLogger(__name__)

GROUP_RECORDS_MAX = 1 << 16  # bounds what a reader holds in memory
_LINGER_SECONDS = 0.010  # how long a record is left to a writer that may come to wait for it
_LINGER_BYTES = 64 << 10  # so much is written at once, while its writer prepares the next
_RECHECK_SECONDS = 1.0  # a leader that is interrupted while it hands over may wake nobody, and count nothing


class LogWriter:
    """See the module's text.  Any thread may call any method."""

    def __init__(self, fs: FileSystem, directory: str, options: WalOptions, end: LogEnd, segments: SegmentList) -> None:
        self._fs, self._directory = fs, directory
        self._options = options
        self._store_uuid = end.store_uuid
        self._segments = segments
        self.counters = WriterCounters()
        self.last_lsn = self.written_lsn = self.durable_lsn = end.last_lsn
        self.failed: UnavailableError | None = None
        self.listener: Callable[[], None] = lambda: None
        self.gatherer: Callable[[], None] = lambda: None

        # The leader's own.
        self._crc, self._tail_cut = end.crc, end.tail_cut
        self._current: NewSegment | None = None
        self._taken: TakenGroup | None = None
        self._done: list[TakenGroup] = []
        """What is on the disk and not counted yet."""
        self._repeatable = False
        """Whether what the leader is doing may be done again."""

        # Shared, under _mutex.
        self._mutex = threading.Lock()
        self._work = threading.Condition(self._mutex)
        self._space = threading.Condition(self._mutex)
        self._written = threading.Condition(self._mutex)
        self._queue: list[EncodedRecord] = []
        self._early_lsn = 0
        """Up to here somebody wants to know of records that they are written, before they are on the disk."""
        self.turns = Turns()
        self._is_idle = self._in_haste = self._is_gathering = False
        """Whether the log's thread waits for records; whether it shall not linger; whether a leader will take what is
        there."""
        self._admitted = self._claimed = 0
        self._reserved: dict[int, int] = {}
        self._newest: NewSegment | None = None
        self._newborn: list[NewSegment] = []
        self._closing = False
        self._thread: threading.Thread | None = None

        # Ordered before _mutex: who waits for space lets nobody past, who makes room does so alone.
        self._turn, self._rolling = threading.Lock(), threading.Lock()
        self._next_number = end.next_segment

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
        with self._turn, self._mutex:
            if not self._has_place(claim):
                self._hasten()
            while not (self._refuses() or self._has_place(claim)):
                self._space.wait(_RECHECK_SECONDS)
                self._count_done()
            self._check_open()
            self._admitted += claim
        self._claim_room(claim)
        with self._mutex:
            self._reserved[threading.get_ident()] = claim

    def release(self) -> None:
        """Give back what this thread reserved and did not use."""
        with self._mutex:
            self._give_back(self._reserved.pop(threading.get_ident(), 0))

    def append(self, payloads: Sequence[Sequence[BytesLike]], stamp: Stamp, is_awaited_early: bool = False) -> int:
        """Enqueue records, each the pieces of its payload; return the lsn of the first.

        Lsns are dense and in the order of the calls, and so are the timestamps: ``stamp`` is called under the lock that
        gives the lsns, when nothing can fail any more. The pieces are kept by reference until they are written: nobody
        may change them. What the thread reserved too little is reserved now, which may make a segment but does not wait
        for the queue. ``is_awaited_early``: somebody wants to know when the records are written, before they are on the
        disk. Raises as ``reserve`` does, and then no record is in the log.
        """
        pieces = [views_of(payload) for payload in payloads]
        claim = sum(footprint(sum(map(len, payload))) for payload in pieces)
        missing = claim - self._reserved.get(threading.get_ident(), 0)
        if missing > 0:
            with self._mutex:
                self._check_open()
                self._admitted += missing
            self._claim_room(missing)
        with self._mutex:
            reserved = self._reserved.pop(threading.get_ident(), 0) + max(missing, 0)
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
        """Return when the record is on the disk; UnavailableError if that cannot be known any more. The caller may hold
        no lock that the listener takes."""
        if self.durable_lsn < lsn:
            self.wait_for(Position(lsn))

    def wait_for(self, awaited: Awaited) -> None:
        """Do the same for a record that may not be in the log yet: the ``gatherer`` sees to that."""
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
                    self._hand_over()
                else:
                    self._leave(turn)

    def wait_written(self, lsn: int) -> None:
        """Return when the operating system has the record: it survives the process, not a power failure."""
        with self._written:
            if self.written_lsn < lsn:
                self._early_lsn = max(self._early_lsn, lsn)
                self._hasten()
            self._written.wait_for(lambda: self.written_lsn >= lsn or self.failed)
            if self.written_lsn < lsn:
                raise self._failure()

    def close(self) -> CleanStop | None:
        """Write and sync all that was appended, then stop.

        None if there is no clean end to expect: the log has failed, or it still ends in the torn tail that was found
        when it was opened, because nothing was appended.
        """
        with self._mutex:
            self._closing = True
            self._hasten()
            self._space.notify_all()
        with self._rolling:
            if self._thread is not None:
                self._thread.join()
            try:
                if self._current is not None:
                    self._current.file.close()
                    self._current = None
                if self.failed is None:
                    self._discard_unborn()
            except OSError as error:
                self._fail(error)
        return None if self.failed or self._tail_cut else CleanStop(self.durable_lsn, self._crc)

    # --- room ---

    def _reserves_at_once(self, claim: int) -> bool:
        """Reserve if that takes no wait and no new segment. Gives back what the thread reserved before."""
        with self._mutex:
            self._give_back(self._reserved.pop(threading.get_ident(), 0))
            if can_have := self._takes(claim):
                self._reserved[threading.get_ident()] = claim
            return can_have

    def _takes(self, claim: int) -> bool:
        """Count a claim if that takes no wait and no new segment; under the mutex."""
        # Whoever waits for space comes first, and who makes a segment has counted what it must hold.
        if self._turn.locked() or self._rolling.locked() or self._refuses() or not self._has_place(claim):
            return False
        if self._newest is None or self._claimed + claim > self._newest.free_bytes:
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
        return self._admitted == 0 or self._admitted + claim <= self._options.queue_bytes

    def _claim_room(self, claim: int) -> None:
        """Add ``claim``, which is admitted, to what the newest segment has room for; make one that has if need be."""
        try:
            with self._rolling:
                with self._mutex:
                    self._check_open()
                    fits = self._newest is not None and self._claimed + claim <= self._newest.free_bytes
                    needed = SEGMENT_HEADER_BYTES + self._claimed + claim
                if not fits:
                    self._roll(max(needed, self._options.segment_bytes))
                with self._mutex:
                    self._claimed += claim
        except BaseException:
            with self._mutex:
                self._admitted -= claim
                self._space.notify_all()
            raise

    def _roll(self, size: int) -> None:
        try:
            segment = NewSegment.create(self._fs, self._directory, self._next_number, size)
        except OSError as error:
            if is_full(error):
                raise StorageFullError(f"the disk has no room for a log segment of {size:,} bytes") from error
            self._fail(error)
            raise self._failure() from error
        self._next_number += 1
        with self._mutex:
            self._newest = segment
            self._newborn.append(segment)

    def _give_back(self, claim: int) -> None:
        if claim:
            self._admitted -= claim
            self._claimed -= claim
            self._space.notify_all()

    def _discard_unborn(self) -> None:
        """A clean log has no segment without a header."""
        for segment in self._newborn:
            segment.discard()
        if self._newborn:
            self._fs.sync_directory(self._directory)
        self._newborn = []

    # --- the log's thread ---

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="nyala-wal", daemon=True)
        thread.start()  # which fails where a process may have no more threads
        self._thread = thread

    def _run(self) -> None:
        try:
            while (lsn := self._next_unwaited()) is not None:
                self.wait(lsn)
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

    def _hand_over(self) -> None:
        """Count what was written; wake the next leader, then those whose records are on the disk."""
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
                self.gatherer()
                self._take()
            if self._taken is not None:
                self._write(self._taken)
        except BaseException as error:
            self._is_gathering = False  # before anything that may be interrupted, too
            if not self._repeatable or not is_interruption(error):
                self._fail(error)
                return
            with self._mutex:
                self._hasten()
            raise
        finally:
            self._repeatable = False

    def _take(self) -> None:
        """Take all that waits, and its place in the newest segment, if there is something to write."""
        with self._mutex:
            self._is_gathering = False
            if not self._queue or self.failed:
                return
            self._repeatable = False
            records = self._queue[:GROUP_RECORDS_MAX]
            del self._queue[: len(records)]
            newborn, self._newborn = self._newborn, []
            segment = self._newest
            assert segment is not None, "every record has claimed room"
            extent = sum([record.extent for record in records])
            claims, size = extent + GROUP_HEADER_BYTES * len(records), extent + GROUP_HEADER_BYTES
            self._claimed -= claims
            first_lsn = self.last_lsn - len(self._queue) - len(records) + 1
            self._taken = TakenGroup(records, first_lsn, claims, segment, segment.take(size), size, newborn)
            self._repeatable = True
            if self._queue and self._is_idle:
                self._work.notify()

    def _write(self, group: TakenGroup) -> None:
        """Write and sync a group. While ``_repeatable``, all that it has changed may be changed again."""
        while group.newborn:
            self._begin(group.newborn[0], group.first_lsn)
            del group.newborn[0]
        self._repeatable = True
        seed = seed_of(self._store_uuid, group.segment.number, group.offset)
        pieces, crc = encode_group(group.records, seed, group.first_lsn, self._crc)
        last_lsn = group.first_lsn + len(group.records) - 1
        group.segment.file.pwrite(group.offset, *pieces)
        if self._early_lsn >= group.first_lsn:
            group.segment.check()
            self._repeatable = False
            self.written_lsn = last_lsn
            self._tell(group)
            self._repeatable = True
        self.counters.sync(group)
        group.segment.check()
        self._repeatable = False
        self._crc, self._taken = crc, None
        self._done.append(group)
        self._segments.reach(last_lsn)
        self.written_lsn = self.durable_lsn = last_lsn
        self._tell(group)

    def _tell(self, group: TakenGroup) -> None:
        """Tell how far the log is; who comes to wait for that later sees it."""
        self.listener()
        if self._early_lsn >= group.first_lsn:
            with self._mutex:
                self._written.notify_all()

    def _begin(self, segment: NewSegment, first_lsn: int) -> None:
        """Link a new segment into the log and leave the one before it."""
        self._repeatable = True
        begun = segment.begin(self._store_uuid, first_lsn, self._crc, self._tail_cut)
        self._repeatable = False
        self._segments.begin(begun)
        self._tail_cut = False
        if self._current is not None:
            self._current.file.close()
        self._current = segment

    # --- failure ---

    def _fail(self, error: BaseException) -> None:
        with self._mutex:
            if self.failed is None:
                self.failed = UnavailableError(
                    f"the log cannot be written: {error or type(error).__name__}; reads continue; restart to recover"
                )
                self.failed.__cause__ = error
                _logger.error("%s", self.failed.message)
            for condition in (self._work, self._space, self._written):
                condition.notify_all()
        self.listener()

    def _failure(self) -> UnavailableError:
        """Return the reason as a new exception: many threads raise it, each with a traceback of its own."""
        assert self.failed is not None
        failure = UnavailableError(self.failed.message)
        failure.__cause__ = self.failed.__cause__
        return failure

    def _refuses(self) -> bool:
        return self.failed is not None or self._closing

    def _check_open(self, claim: int = 0) -> None:
        """Raise UnavailableError if nothing may be appended, giving ``claim`` back first."""
        if self._refuses():
            self._give_back(claim)
            raise self._failure() if self.failed else UnavailableError("the log is closed")
