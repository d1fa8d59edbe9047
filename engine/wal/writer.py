"""Writes the log: many threads append, one thread writes and syncs.

GROUP COMMIT.  The writer thread takes all the records that wait, writes them as one group, syncs, wakes whoever waits
for them, and takes what has come in the meantime.  The busier the log, the larger its groups; an idle log costs one
sync for one record.  Group n+1 is written only after the sync of group n has returned: the reader's rules rest on that.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
from .reader import CleanStop
from .segments import NewSegment, SegmentList

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_logger = logging.getLogger(__name__)

GROUP_RECORDS_MAX = 1 << 16  # bounds what a reader holds in memory for one group


@dataclass(frozen=True, slots=True)
class WalOptions:
    """``segment_bytes``: space taken at once; smaller frees sooner, larger rolls less often.

    ``queue_bytes``: what may wait for the disk before ``reserve`` makes writers wait; it bounds memory.
    """

    segment_bytes: int = 64 << 20
    queue_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What the first group to be written must link to, and where its segment goes."""

    store_uuid: bytes
    last_lsn: int
    crc: int
    next_segment: int
    tail_cut: bool


@dataclass(slots=True)
class WriterCounters:
    """Since the log was opened."""

    records: int = 0
    groups: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the writer thread has taken: it alone knows of it from then on."""

    records: list[EncodedRecord]
    first_lsn: int
    claims: int
    segment: NewSegment
    offset: int
    size: int
    newborn: list[NewSegment]


class LogWriter:
    """See the module's text.  Any thread may call any method."""

    def __init__(self, fs: FileSystem, directory: str, options: WalOptions, end: LogEnd, segments: SegmentList) -> None:
        self._fs = fs
        self._directory = directory
        self._options = options
        self._store_uuid = end.store_uuid
        self._segments = segments
        self.counters = WriterCounters()
        self.last_lsn = end.last_lsn
        self.written_lsn = end.last_lsn
        self.durable_lsn = end.last_lsn
        self.failed: UnavailableError | None = None
        self.listener: Callable[[], None] = lambda: None

        # The writer thread's own.
        self._crc = end.crc
        self._tail_cut = end.tail_cut
        self._current: NewSegment | None = None

        # Shared, under _mutex.
        self._mutex = threading.Lock()
        self._work = threading.Condition(self._mutex)
        self._space = threading.Condition(self._mutex)
        self._written = threading.Condition(self._mutex)
        self._durable = threading.Condition(self._mutex)
        self._queue: list[EncodedRecord] = []
        self._admitted = 0
        self._claimed = 0
        self._reserved: dict[int, int] = {}
        self._newest: NewSegment | None = None
        self._newborn: list[NewSegment] = []
        self._closing = False
        self._thread: threading.Thread | None = None

        # Ordered before _mutex: who waits for space lets nobody past, who makes room does so alone.
        self._turn = threading.Lock()
        self._rolling = threading.Lock()
        self._next_number = end.next_segment

    # --- what callers do ---

    def reserve(self, nbytes: int) -> None:
        """Wait for a place in the queue and take room on the disk for one record of ``nbytes`` by this thread.

        The thread's next ``append`` uses it up; a thread that will not append calls ``release``.  The caller may hold
        no lock that an appending thread needs.  Raises StorageFullError (nothing has happened, the log goes on) and
        UnavailableError (the log has failed or is closed).
        """
        self.release()
        claim = footprint(nbytes)
        with self._turn, self._mutex:
            self._space.wait_for(lambda: self._refuses() or self._has_place(claim))
            self._check_open()
            self._admitted += claim
        self._claim_room(claim)
        with self._mutex:
            self._reserved[threading.get_ident()] = claim

    def release(self) -> None:
        """Give back what this thread reserved and did not use."""
        with self._mutex:
            self._give_back(self._reserved.pop(threading.get_ident(), 0))

    def append(self, timestamp: int, payload: Iterable[BytesLike]) -> int:
        """Enqueue one record and return its lsn; lsns are dense and in the order of the calls.

        The pieces are kept by reference until they are written: nobody may change them.  What the thread reserved too
        little is reserved now, which may make a segment but does not wait for the queue.  Raises as ``reserve`` does,
        and then the record is not in the log.
        """
        record = encode_record(timestamp, views_of(payload))
        claim = record.footprint
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
            self._start_thread()
            self._queue.append(record)
            self.last_lsn += 1
            self._work.notify()
            return self.last_lsn

    def wait(self, lsn: int) -> None:
        """Return when the record is on the disk; UnavailableError if that cannot be known any more."""
        with self._durable:
            self._durable.wait_for(lambda: self.durable_lsn >= lsn or self.failed)
            if self.durable_lsn < lsn:
                raise self._failure()

    def wait_written(self, lsn: int) -> None:
        """Return when the operating system has the record: it survives the process, not a power failure."""
        with self._written:
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
            self._work.notify_all()
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

    # --- the writer thread ---

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nyala-wal", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while self._write_next():
                pass
        except BaseException as error:  # whatever it is, nobody may wait for this thread for ever
            self._fail(error)

    def _write_next(self) -> bool:
        batch = self._take()
        if batch is not None:
            self._write(batch)
        return batch is not None

    def _take(self) -> _Batch | None:
        """Take all that waits, and its place in the newest segment; None when there is nothing more to write."""
        with self._mutex:
            self._work.wait_for(lambda: self._queue or self._closing)
            if not self._queue or self.failed:
                return None
            records = self._queue[:GROUP_RECORDS_MAX]
            del self._queue[: len(records)]
            newborn, self._newborn = self._newborn, []
            segment = self._newest
            assert segment is not None, "every record has claimed room"
            claims = sum(record.footprint for record in records)
            self._claimed -= claims
            size = GROUP_HEADER_BYTES + sum(record.extent for record in records)
            first_lsn = self.last_lsn - len(self._queue) - len(records) + 1
            return _Batch(records, first_lsn, claims, segment, segment.take(size), size, newborn)

    def _write(self, batch: _Batch) -> None:
        for segment in batch.newborn:
            self._begin(segment, batch.first_lsn)
        seed = seed_of(self._store_uuid, batch.segment.number, batch.offset)
        pieces, crc = encode_group(batch.records, seed, batch.first_lsn, self._crc)
        last_lsn = batch.first_lsn + len(batch.records) - 1
        batch.segment.file.pwrite(batch.offset, *pieces)
        batch.segment.check()
        self.written_lsn = last_lsn
        self.listener()
        with self._mutex:
            self._written.notify_all()
        batch.segment.file.sync()
        batch.segment.check()
        self._crc = crc
        self._segments.reach(last_lsn)
        self.durable_lsn = last_lsn
        self.listener()
        with self._mutex:
            self._admitted -= batch.claims
            self.counters.records += len(batch.records)
            self.counters.groups += 1
            self.counters.bytes_written += batch.size
            self._durable.notify_all()
            self._space.notify_all()

    def _begin(self, segment: NewSegment, first_lsn: int) -> None:
        """Link a new segment into the log and leave the one before it."""
        self._segments.begin(segment.begin(self._store_uuid, first_lsn, self._crc, self._tail_cut))
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
            for condition in (self._work, self._space, self._written, self._durable):
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
