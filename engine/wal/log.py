"""The write-ahead log of a store: an acknowledged change is here before it is anywhere else.

log = WriteAheadLog.open(fs, "wal", store_uuid, expect=manifest.clean_stop)
for records in log.replay():
    apply(records)

writer = log.writer
writer.reserve(nbytes)                       # may wait, may find the disk full; take no lock before it
lsn = writer.append([pieces], stamp)         # takes its place in the order, and its timestamp; returns at once
writer.wait(lsn)                             # one sync serves all who wait
writer.listener = callback                   # called whenever a group is written or durable, and when the log fails

manifest.clean_stop = log.close()
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ...schemas.errors import InternalError, UnavailableError
from ..fs.filesystem import FileSystem, parent_of
from .group import LogEnd
from .options import WalOptions
from .reader import CleanStop, LogReader
from .records import LogRecords
from .segment_sink import SegmentGroup, SegmentSink
from .segments import SegmentList
from .store_log import StoreLog
from .writer import LogWriter

_logger = logging.getLogger(__name__)


class WriteAheadLog(StoreLog):
    """A log in the segments of one directory."""

    def __init__(self, fs: FileSystem, directory: str, options: WalOptions, reader: LogReader) -> None:
        self._fs = fs
        self._directory = directory
        self._options = options
        self._reader: LogReader | None = reader
        self._is_read = False
        self._segments = SegmentList(fs, [])
        self._first_lsn = reader.first_lsn

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

    def peek(self) -> Iterator[LogRecords]:
        if self._reader is None:
            raise InternalError("a log is looked through before it is replayed")
        yield from self._reader.records()
        self._is_read = True

    def replay(self) -> Iterator[LogRecords]:
        reader, self._reader = self._reader, None
        if reader is None:
            raise InternalError("a log is replayed once")
        self._is_replaying = True
        self._keep(reader)
        yield from reader.again() if self._is_read else reader.records()
        self._writer = self._start_writing(reader)

    @property
    def first_lsn(self) -> int:
        segments = self._segments.all()
        return segments[0].first_lsn if segments else self._first_lsn

    def can_free_before(self, lsn: int) -> bool:
        segments = self._segments.all()
        return len(segments) > 1 and segments[0].last_lsn < lsn

    def free_before(self, lsn: int) -> int:
        """Delete the segments whose records are all < ``lsn``, except the newest; return the bytes freed."""
        return self._segments.free_before(lsn)

    def records_up_to(self, lsn: int) -> Iterator[LogRecords]:
        if lsn < self.first_lsn:
            return
        numbers = [segment.number for segment in self._segments.all()]
        for records in LogReader(self._fs, self._directory, numbers=numbers).records():
            yield records.part(0, lsn + 1 - records.first_lsn)
            if records.last_lsn >= lsn:
                return

    def sizes(self) -> Sequence[int]:
        return [segment.size_bytes for segment in self._segments.all()]

    def close(self) -> CleanStop | None:
        """Do as ``StoreLog.close`` says. None if the log has failed, was not replayed to its end, or was cut when it
        was opened and not written since."""
        return self._writer.close() if self._writer else None

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

    def _start_writing(self, reader: LogReader) -> LogWriter[SegmentGroup]:
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
                "%s: a torn tail of %d bytes after lsn %d was removed; it was never acknowledged",
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
        sink = SegmentSink(self._fs, self._directory, self._options.segment_bytes, end, self._segments)
        return LogWriter(sink, end.last_lsn, self._options.queue_bytes)
