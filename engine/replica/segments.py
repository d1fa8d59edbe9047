"""The files of a directory as the source of a replica, in this process or beside one that has the store.

A manifest and a log of segments are two things, and a holder changes both at any time. So a look takes the manifest
first and then the log to its end, and begins again if another manifest is there by then. What the log has at the end of
a look was logged before that manifest was replaced: a table or a column of which it tells is in the manifest.

FRESHNESS. A write is acknowledged after its group is in the log, and a change of a table after its manifest is there.
So a look shows all that was acknowledged before it began. It may show a group whose sync is not finished: if the
machine loses power then, the store may lack it afterwards, and no writer was told otherwise.

SNAPSHOTS. The log is in the order of the timestamps. So all commits up to its last one are known. While it is idle the
newest snapshot follows the time of day, some way behind: a commit reaches the log within that time. One that takes
longer must change no snapshot under a scan that runs: then all tables are opened anew, and the scan keeps its own.

No lock is taken, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from ...schemas.errors import CorruptionError, UnavailableError
from .. import threads
from ..fs.failures import is_gone, named
from ..fs.filesystem import FileSystem, ReadableFile
from ..home.checkpoint_mark import check_finished
from ..home.directory import LOG
from ..manifest.manifest import Manifest, read_manifest, unpack_manifest
from ..manifest.place import PATH as MANIFEST
from ..manifest.rowset_entry import RowsetEntry
from ..mvcc.clock import Clock, timestamp_of
from ..options import StoreOptions
from ..recovery.recovery import check_log
from ..tablet.attach import logged_attachments
from ..wal.format import SEGMENT_HEADER_BYTES, MalformedError, SegmentHeader
from ..wal.reader import CleanStop, LogReader
from ..wal.records import LogRecords
from ..wal.replacement import check_not_under_way
from ..wal.runs import GroupRun
from ..wal.segment_tail import LogGapError, LogPlace, SegmentTail
from ..wal.segments import segment_numbers, segment_path
from .source import GapError, OtherHistoryError, replaced_meanwhile

_KEPT_BYTES = 32 << 20
"""So much of the log is kept between a look and its use; more is read again."""
_LOOKS_MAX = 200
"""A holder that replaces its manifest during each of so many looks leaves no time to read it."""
_COMMIT_MICROSECONDS = 1_000_000
"""So long after it has got its timestamp a commit is in the log, almost always."""
_PAUSE_SECONDS = 0.05
"""Before damage is believed: a holder may have been writing what looked wrong."""


@dataclass(frozen=True, slots=True)
class SegmentPoint:
    """A point to which a replica can be brought, of a log in segments: its end at one look, and the manifest of then.
    See ``Point``."""

    place: LogPlace
    manifest: int
    """Its number among the manifests that this source has read."""
    store_uuid: str
    safe: int
    readable: int

    @property
    def number(self) -> int:
        return self.place.last_lsn + 1

    @property
    def mark(self) -> int:
        return self.place.crc


class SegmentSource:
    """Where a replica gets the log and the manifests of a store in a directory. See ``Source``. One thread at a time
    calls it."""

    def __init__(self, watched: FileSystem, files: FileSystem, clock: Clock) -> None:
        """``watched`` are the files, as they are now, and stay open; ``files`` are the same for readers, who keep them
        though their names are gone."""
        self._fs = watched
        self._files = files
        self._clock = clock
        self._open_manifest: ReadableFile | None = None
        self._manifest: Manifest | None = None
        self._manifests_read = 0
        self._tail: SegmentTail | None = None
        self._attached: list[tuple[int, RowsetEntry]] = []
        """By the log that was read, in its order."""
        self._newest = self._newest_in_files = 0
        """The newest timestamp in the log, and that in the manifest."""
        self._safe = 0
        """The newest snapshot that was given out."""
        self._is_late = False
        """Whether a commit came at or below that since."""
        self._kept: list[LogRecords] = []
        """The last records, without a gap, up to the end of the log."""
        self._kept_bytes = 0

    # Looks

    def look(self) -> SegmentPoint:
        """See LookingSource."""
        began = self._clock.physical_microseconds()
        damage: CorruptionError | None = None
        for _ in range(_LOOKS_MAX):
            try:
                with named(f"the store in {getattr(self._fs, 'root', '')} could not be read"):
                    if (point := self._looked(began)) is not None:
                        return point
            except LogGapError:
                self._leave_log()
            except CorruptionError as error:
                self._leave_log()
                if self._is_replaced():  # what is missed was freed since
                    continue
                if damage is not None and (damage.path, damage.offset) == (error.path, error.offset):
                    raise
                damage = error
                threads.Event().wait(_PAUSE_SECONDS)
        raise UnavailableError(
            "the process that has the store replaces its files faster than they can be read: try again"
        )

    def _looked(self, began: int) -> SegmentPoint | None:
        """Look once; return None if another manifest came meanwhile."""
        manifest = self._read_manifest()
        tail, before = self._tail, self._tail and self._tail.place
        if tail is None:
            tail = self._open_log(manifest)
        for records in tail.read():
            self._note(records)
        if tail.place is not before and self._is_replaced():  # else all of the log was there at an earlier look
            return None
        safe = self._safe = max(
            self._safe, self._newest, self._newest_in_files, timestamp_of(began - _COMMIT_MICROSECONDS)
        )
        readable = timestamp_of(began)
        return SegmentPoint(tail.place, self._manifests_read, manifest.store_uuid, safe, max(readable, safe))

    def _is_replaced(self) -> bool:
        if self._open_manifest is None:
            return True
        try:
            self._open_manifest.check()
        except OSError as error:
            if not is_gone(error):
                raise
            return True
        return False

    def _read_manifest(self) -> Manifest:
        if self._manifest is not None and not self._is_replaced():
            return self._manifest
        check_finished(self._fs)
        file = self._fs.open(MANIFEST)
        try:
            manifest = self._parsed(file.pread(0, file.size))
        except BaseException:
            file.close()
            raise
        if self._open_manifest is not None:
            self._open_manifest.close()
        if self._manifest is not None and manifest.store_uuid != self._manifest.store_uuid:
            self._leave_log()
        self._open_manifest, self._manifest = file, manifest
        self._manifests_read += 1
        floors = (tablet.history_floor for table in manifest.tables for tablet in table.tablets)
        changes = (table.last_change for table in manifest.tables)
        self._newest_in_files = max(manifest.last_timestamp, *floors, *changes, 0)
        self._attached = [each for each in self._attached if each[1].durable_lsn >= manifest.log_needed_from]
        return manifest

    def _parsed(self, document: bytes) -> Manifest:
        try:
            return unpack_manifest(document)
        except CorruptionError:
            return read_manifest(self._fs)  # it may have a copy

    def _open_log(self, manifest: Manifest) -> SegmentTail:
        """Read the log from what the manifest needs to its end, as a recovery does."""
        check_not_under_way(self._fs)
        self._leave_log()
        reader = self._reader(manifest)
        check_log(reader.first_lsn, manifest)
        for records in reader.records():
            self._note(records)
        number = reader.segments[-1].number if reader.segments else 0
        place = LogPlace(number, reader.end_offset, reader.last_lsn, reader.crc)
        self._tail = SegmentTail(self._fs, LOG, UUID(manifest.store_uuid).bytes, place)
        return self._tail

    def _reader(self, manifest: Manifest) -> LogReader:
        stop = manifest.clean_stop
        return LogReader(
            self._fs,
            LOG,
            UUID(manifest.store_uuid).bytes,
            CleanStop(stop.last_lsn, stop.crc) if stop else None,
            manifest.last_durable_lsn,
            self._numbers_from(manifest.log_needed_from),
        )

    def _numbers_from(self, lsn: int) -> list[int]:
        """Return the numbers of the segments that may have records from ``lsn`` on."""
        numbers = segment_numbers(self._fs, LOG)
        for place in range(len(numbers) - 1, 0, -1):
            first = self._first_lsn(numbers[place])
            if first is not None and first <= lsn:
                return numbers[place:]
        return numbers

    def _first_lsn(self, number: int) -> int | None:
        """Return the first lsn of a segment; None if it has not begun, or is damaged."""
        try:
            file = self._fs.open(segment_path(LOG, number))
        except OSError as error:
            if is_gone(error):
                raise LogGapError from error
            raise
        try:
            return SegmentHeader.decode(file.pread(0, SEGMENT_HEADER_BYTES)).first_lsn
        except MalformedError:
            return None
        finally:
            file.close()

    def _note(self, records: LogRecords) -> None:
        self._is_late |= int(records.timestamps[0]) <= self._safe
        self._newest = max(self._newest, int(records.timestamps[-1]))
        self._attached += logged_attachments([records])
        self._kept.append(records)
        self._kept_bytes += records.payload_bytes
        if self._kept_bytes > _KEPT_BYTES:
            self._forget_kept()

    def _forget_kept(self) -> None:
        self._kept, self._kept_bytes = [], 0

    def _leave_log(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail, self._attached, self._newest = None, [], 0
        self._forget_kept()

    # For the replica

    def make_files(self, point: SegmentPoint, options: StoreOptions) -> FileSystem:
        return self._files

    def close_files(self) -> None:
        """Files that scans still read stay open for them."""

    def close(self) -> None:
        """Forget the log and the manifest."""
        self._leave_log()
        if self._open_manifest is not None:
            self._open_manifest.close()
        self._open_manifest = self._manifest = None

    def may_be_void(self, newest: SegmentPoint) -> bool:
        return False

    def reaches_back(self, last: SegmentPoint, newest: SegmentPoint) -> bool:
        return not self._is_late  # and if the log does not, its records say so

    def other_history(self) -> OtherHistoryError:
        return OtherHistoryError("the directory was put back to an earlier state: rows that were read are gone")

    def following(self, last: SegmentPoint, newest: SegmentPoint) -> Iterator[LogRecords]:
        if self._is_late:
            raise GapError
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        if kept and kept[0].first_lsn <= last.number:
            return (records.part(max(last.number - records.first_lsn, 0), len(records)) for records in kept)
        return self._read_again(last, newest)

    def _read_again(self, last: SegmentPoint, newest: SegmentPoint) -> Iterator[LogRecords]:
        try:
            tail = SegmentTail(self._fs, LOG, UUID(newest.store_uuid).bytes, last.place)
            try:
                for records in tail.read():
                    yield (part := records.part(0, newest.number - records.first_lsn))
                    if part.last_lsn + 1 == newest.number:
                        return
            finally:
                tail.close()
        except LogGapError:
            raise GapError from None
        raise GapError

    def needed(self, newest: SegmentPoint) -> NeededSegments:
        if self._manifest is None or newest.manifest != self._manifests_read:
            raise replaced_meanwhile()
        self._forget_kept()  # all is read again
        return NeededSegments(self, self._manifest, [*self._attached], newest)

    def all_anew(self) -> None:
        """Take note that all tables are opened anew."""
        self._is_late = False

    def log_of(self, manifest: Manifest) -> LogReader:
        """Return a reader of the log that a manifest needs. Raises UnavailableError if it was freed."""
        try:
            return self._reader(manifest)
        except (LogGapError, CorruptionError, UnavailableError):
            if self._is_replaced():
                raise replaced_meanwhile() from None
            raise

    def look_for(self, paths: Sequence[str]) -> None:
        """Files of a disk are there or not."""

    def check_newest(self, point: SegmentPoint) -> None:
        if self._is_replaced():
            raise replaced_meanwhile()


class NeededSegments:
    """What a replica needs of a log in segments: a manifest, and the segments that it needs. See ``NeededLog``."""

    def __init__(
        self, source: SegmentSource, manifest: Manifest, attached: list[tuple[int, RowsetEntry]], newest: SegmentPoint
    ) -> None:
        self._source = source
        self.manifest = manifest
        self.attached = attached
        self._newest = newest

    def records(self, former: SegmentPoint | None) -> Iterator[tuple[bool, LogRecords]]:
        try:
            yield from self._records(former)
        except CorruptionError:
            self._source.check_newest(self._newest)
            raise

    def _records(self, former: SegmentPoint | None) -> Iterator[tuple[bool, LogRecords]]:
        end, applied = self._newest.number, former.number if former else 0
        if former is None:
            self._source.all_anew()
        if former is not None and former.store_uuid != self._newest.store_uuid:
            raise self._source.other_history()
        reader = self._source.log_of(self.manifest)
        if reader.first_lsn > max(applied, 1) and former is not None:
            raise GapError
        check_log(reader.first_lsn, self.manifest)  # it may have been freed since the look
        for run in reader.runs():
            if former is not None:
                self._check_history(run, former)
            records = run.records.part(0, end - run.records.first_lsn)
            count = min(max(applied - records.first_lsn, 0), len(records))
            if count:
                yield False, records.part(0, count)
            if count < len(records):
                yield True, records.part(count, len(records))
            if records.last_lsn + 1 == end:
                return
        if reader.last_lsn + 1 != end:
            raise replaced_meanwhile()

    def _check_history(self, run: GroupRun, former: SegmentPoint) -> None:
        group = run.group_with(former.place.last_lsn)
        if group is not None and (group.header.last_lsn, group.header.crc) != (former.place.last_lsn, former.mark):
            raise self._source.other_history()
