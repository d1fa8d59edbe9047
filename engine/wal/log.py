"""The write-ahead log of a store: an acknowledged change is here before it is anywhere else.

log = WriteAheadLog.open(fs, "wal", store_uuid, expect=manifest.clean_stop)
for record in log.replay():
    apply(record)

log.reserve(nbytes)                          # may wait, may find the disk full; take no lock before it
lsn = log.append_all([pieces], stamp)        # takes its place in the order, and its timestamp; returns at once
log.wait(lsn)                                # one sync serves all who wait
log.listen(callback)                         # called whenever a group is written or durable, and when the log fails

manifest.clean_stop = log.close()
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schemas.errors import InternalError, UnavailableError
from ...schemas.metrics import Histogram
from ..fs.filesystem import FileSystem, parent_of
from .format import LogRecord
from .group import LogEnd, Stamp
from .options import WalOptions
from .reader import CleanStop, Group, LogReader
from .segments import SegmentInfo, SegmentList
from .turn import Awaited
from .writer import LogWriter

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WalStats:
    """Counts of records, groups (each one sync) and bytes since the log was opened."""

    segment_count: int
    size_bytes: int
    first_lsn: int
    last_lsn: int
    durable_lsn: int
    records: int
    groups: int
    bytes_written: int
    torn_bytes: int
    sync_seconds: Histogram


class WriteAheadLog:
    """One log.  Open it, replay it to the end in one thread, then append from any number of threads."""

    def __init__(self, fs: FileSystem, directory: str, options: WalOptions, reader: LogReader) -> None:
        self._fs = fs
        self._directory = directory
        self._options = options
        self._reader: LogReader | None = reader
        self._writer: LogWriter | None = None
        self._segments = SegmentList(fs, [])
        self._first_lsn = reader.first_lsn
        self.torn_bytes = 0

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        store_uuid: bytes,
        options: WalOptions | None = None,
        expect: CleanStop | None = None,
        reached: int = 0,
    ) -> WriteAheadLog:
        """Open the log in ``directory``, which is created if missing.

        ``store_uuid`` (16 bytes) distinguishes the logs of different stores.  ``expect`` is the result of the last
        ``close``, None if there was none; one from before a later unclean stop does no harm.  ``reached`` is an lsn
        that was durable, as other files prove: a log that ends before it has lost records.

        Raises CorruptionError, and UnavailableError if the disk cannot be read or written.
        """
        assert len(store_uuid) == 16, "a uuid has 16 bytes"
        try:
            if not fs.exists(directory):
                fs.make_directory(directory)
            fs.sync_directory(parent_of(directory))
        except OSError as error:
            raise UnavailableError(f"{directory} cannot be created: {error}") from error
        reader = LogReader(fs, directory, store_uuid, expect, reached)
        return cls(fs, directory, options or WalOptions(), reader)

    def peek(self) -> Iterator[LogRecord]:
        """Yield every record in order, to the end, before the log is replayed. Raises as ``open`` does.

        The records may not be durable yet: write nothing to files that depends on them.
        """
        if self._reader is None:
            raise InternalError("a log is looked through before it is replayed")
        for group in self._reader.groups():
            yield from group.records
        self._reader = self._reader.again()

    def replay(self) -> Iterator[LogRecord]:
        """Yield every record in order; at the end the log is ready to append.  Call once, and read to the end.

        A payload is a view into a mapped segment, valid as long as it is referenced.  Raises as ``open`` does.
        """
        reader, self._reader = self._reader, None
        if reader is None:
            raise InternalError("a log is replayed once")
        self._keep(reader)
        for group in reader.groups():
            yield from group.records
        self._writer = self._start_writing(reader)

    @property
    def first_lsn(self) -> int:
        """The smallest lsn still in the log; last_lsn + 1 if it has none."""
        segments = self._segments.all()
        return segments[0].first_lsn if segments else self._first_lsn

    @property
    def last_lsn(self) -> int:
        """The lsn of the last record appended."""
        return self._ready.last_lsn

    @property
    def durable_lsn(self) -> int:
        """The lsn up to which all records are on the disk."""
        return self._ready.durable_lsn

    @property
    def written_lsn(self) -> int:
        """The lsn up to which the operating system has all records."""
        return self._ready.written_lsn

    @property
    def failed(self) -> UnavailableError | None:
        """Why the log can no longer be written, or None."""
        return self._writer.failed if self._writer else None

    def reserve(self, *sizes: int) -> None:
        """Reserve space in memory and on disk for this thread's next ``append``, of records of up to these ``sizes``.

        Waits while more than ``options.queue_bytes`` wait for the disk: before it, take no lock that appenders need.
        Raises StorageFullError (nothing has happened; later calls may succeed) and UnavailableError.
        """
        self._ready.reserve(*sizes)

    def release(self) -> None:
        """Release an unused reservation; does nothing if there is none."""
        self._ready.release()

    def append(self, timestamp: int, payload: Iterable[BytesLike]) -> int:
        """Enqueue one record, the concatenation of these pieces, and return its lsn: 1, 2, 3, ...

        The pieces are not copied; leave them unchanged until the record is durable.  Raises only if ``reserve`` was not
        called for this size, or the log has failed or is closed; then the record is not in the log.
        """
        return self._ready.append([list(payload)], lambda _: [timestamp])

    def append_all(self, payloads: Sequence[Sequence[BytesLike]], stamp: Stamp, is_awaited_early: bool = False) -> int:
        """Enqueue records, each as pieces, without others in between; return the lsn of the first.

        ``stamp`` returns the timestamps for so many records. It is called when nothing can fail any more, under the
        lock that gives the lsns: both rise together. All of the records or none are in the log, though a crash may
        leave only the first of them. ``is_awaited_early``: somebody will wait for ``written``. Else like ``append``.
        """
        return self._ready.append(payloads, stamp, is_awaited_early)

    def append_at_once(self, payloads: Sequence[bytes], stamp: Stamp, is_awaited_early: bool = False) -> int | None:
        """Enqueue records that have no reservation, like ``append_all``; None if only ``reserve`` can make room."""
        return self._ready.append_at_once(payloads, stamp, is_awaited_early)

    def wait(self, lsn: int) -> None:
        """Wait until the record is on the disk; UnavailableError if that cannot be known before a restart.

        During the replay this returns at once: replayed records are on the disk.
        """
        if self._writer or self._reader:
            self._ready.wait(lsn)

    def wait_for(self, awaited: Awaited) -> None:
        """Wait, like ``wait``, for a record that may not be in the log yet: the gatherer puts it there."""
        self._ready.wait_for(awaited)

    def written(self, lsn: int) -> None:
        """Wait until the operating system has the record: it survives the process, not a power failure."""
        self._ready.wait_written(lsn)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever ``written_lsn``, ``durable_lsn`` or ``failed`` has changed.

        The changing thread calls it, before callers of ``wait`` or ``written`` for that group continue. It must be
        quick and may not append. There is one listener.
        """
        self._ready.listener = listener

    def gather_by(self, gatherer: Callable[[], None]) -> None:
        """Call ``gatherer`` before a group is written, to append by ``append_at_once`` what waits to be part of it.

        The thread that writes the group calls it, and holds no lock. It may not wait for the log, nor for a lock that
        somebody may hold who does. What it raises stops the log. There is one gatherer.
        """
        self._ready.gatherer = gatherer

    @property
    def waiting_count(self) -> int:
        """How many threads wait while another writes."""
        return len(self._ready.turns.waiting)

    def free_before(self, lsn: int) -> int:
        """Delete the segments whose records are all < ``lsn``, except the newest; return the bytes freed."""
        return self._segments.free_before(lsn)

    def segments(self) -> list[SegmentInfo]:
        return self._segments.all()

    def groups_up_to(self, lsn: int) -> Iterator[Group]:
        """Yield what is written up to ``lsn``, which is durable, while others append. Nobody may free segments until it
        ends. Raises as ``open`` does."""
        if lsn < self.first_lsn:
            return
        numbers = [segment.number for segment in self._segments.all()]
        for group in LogReader(self._fs, self._directory, numbers=numbers).groups():
            yield group
            if group.header.last_lsn >= lsn:
                return

    def stats(self) -> WalStats:
        segments, writer = self._segments.all(), self._ready
        return WalStats(
            segment_count=len(segments),
            size_bytes=sum(segment.size_bytes for segment in segments),
            first_lsn=self.first_lsn,
            last_lsn=writer.last_lsn,
            durable_lsn=writer.durable_lsn,
            records=writer.counters.records,
            groups=writer.counters.groups,
            bytes_written=writer.counters.bytes_written,
            torn_bytes=self.torn_bytes,
            sync_seconds=writer.counters.sync_seconds,
        )

    def close(self) -> CleanStop | None:
        """Make all appended records durable, and stop.

        Returns what the next ``open`` should expect.  None if nothing may be expected: the log has failed, was not
        replayed to its end, or was cut when it was opened and not written since.  Closing again returns the same.
        """
        return self._writer.close() if self._writer else None

    @property
    def _ready(self) -> LogWriter:
        if self._writer is None:
            raise InternalError("a log must be replayed to its end before it is used")
        return self._writer

    def _keep(self, reader: LogReader) -> None:
        """Make the records to be read durable: then no power failure changes them, and files may hold them too.

        A killed process may have left its last group in the operating system's memory.
        """
        if reader.newest_path is None:
            return
        try:
            self._fs.sync_file(reader.newest_path)
        except OSError as error:
            raise UnavailableError(f"{reader.newest_path} cannot be made durable: {error}") from error

    def _start_writing(self, reader: LogReader) -> LogWriter:
        """Remove remains behind the last group, so that new groups may follow it."""
        try:
            for path in reader.unborn:
                self._fs.unlink(path)
            self._fs.sync_directory(self._directory)
        except OSError as error:
            raise UnavailableError(f"{self._directory} cannot be prepared: {error}") from error
        self.torn_bytes = reader.torn_bytes
        if reader.torn_bytes:
            _logger.warning(
                "%s: removed a torn tail of %d bytes after lsn %d, which was never acknowledged",
                reader.segments[-1].path,
                reader.torn_bytes,
                reader.last_lsn,
            )
        self._segments = SegmentList(self._fs, reader.segments)
        end = LogEnd(
            store_uuid=reader.store_uuid or b"",
            last_lsn=reader.last_lsn,
            crc=reader.crc,
            next_segment=reader.segments[-1].number + 1 if reader.segments else 1,
            tail_cut=reader.torn_bytes > 0,
        )
        return LogWriter(self._fs, self._directory, self._options, end, self._segments)
