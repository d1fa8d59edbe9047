"""Puts the groups of a log into preallocated segments: a group is one write and one sync.

The newest segment has room for all claims (``free_bytes``). When a new claim does not fit, a new segment is made that
holds all claims, old and new, and becomes the newest. Groups always go to the newest segment, so a record that was
admitted has its room, whatever others do.

A file that somebody has deleted, replaced or cut is noticed before each acknowledgement.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.errors import StorageFullError
from .. import threads
from ..fs.failures import is_full
from ..fs.filesystem import FileSystem
from .format import GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES, EncodedRecord, encode_group, seed_of
from .group import LogEnd, TakenGroup
from .reader import CleanStop
from .segments import NewSegment, SegmentList


@dataclass(slots=True)
class SegmentGroup(TakenGroup):
    """A group of the log for a segment. ``newborn`` are the segments to begin before it is written."""

    segment: NewSegment
    offset: int
    newborn: list[NewSegment]
    crc: int = 0


class SegmentSink:
    """Puts the groups of a log into segments. See the module's text, and ``Sink``."""

    has_request = False
    heard_at = 0.0
    group_bytes = 1 << 62

    def __init__(self, fs: FileSystem, directory: str, segment_bytes: int, end: LogEnd, segments: SegmentList) -> None:
        self._fs, self._directory = fs, directory
        self._segment_bytes = segment_bytes
        self._store_uuid = end.store_uuid
        self._crc, self._tail_cut = end.crc, end.tail_cut
        self._segments = segments
        self._current: NewSegment | None = None
        self.in_doubt = False

        # Under the writer's mutex.
        self.free_bytes = -1
        self._newest: NewSegment | None = None
        self._newborn: list[NewSegment] = []

        self._next_number = end.next_segment

    def make_room(self, claimed: int, mutex: threads.Lock) -> None:
        size = max(SEGMENT_HEADER_BYTES + claimed, self._segment_bytes)
        try:
            segment = NewSegment.create(self._fs, self._directory, self._next_number, size)
        except OSError as error:
            if is_full(error):
                raise StorageFullError(f"the disk has no room for a log segment of {size:,} bytes") from error
            raise
        self._next_number += 1
        with mutex:
            self._newest, self.free_bytes = segment, segment.free_bytes
            self._newborn.append(segment)

    def take(self, records: list[EncodedRecord], first_lsn: int, claims: int, is_all: bool) -> SegmentGroup:
        newborn, self._newborn = self._newborn, []
        segment = self._newest
        assert segment is not None, "every record has claimed room"
        size = claims - GROUP_HEADER_BYTES * (len(records) - 1)
        offset = segment.take(size)
        self.free_bytes -= size
        return SegmentGroup(records, first_lsn, claims, size, segment, offset, newborn)

    def write(self, group: SegmentGroup) -> None:
        while group.newborn:
            self._begin(group.newborn, group.first_lsn)
        seed = seed_of(self._store_uuid, group.segment.number, group.offset)
        pieces, group.crc = encode_group(group.records, seed, group.first_lsn, self._crc)
        group.segment.file.pwrite(group.offset, *pieces)

    def survives_process(self, group: SegmentGroup) -> bool:
        group.segment.check()
        return True

    def sync(self, group: SegmentGroup) -> None:
        group.segment.file.sync()
        group.segment.check()
        self.in_doubt = True
        self._crc = group.crc
        self._segments.reach(group.first_lsn + len(group.records) - 1)

    def close(self, is_clean: bool) -> None:
        if self._current is not None:
            self._current.file.close()
            self._current = None
        if is_clean:
            self._discard_unborn()

    def clean_stop(self, last_lsn: int) -> CleanStop | None:
        return None if self._tail_cut else CleanStop(last_lsn, self._crc)

    def _begin(self, newborn: list[NewSegment], first_lsn: int) -> None:
        """Link the first of new segments into the log and leave the one before it."""
        segment = newborn[0]
        begun = segment.begin(self._store_uuid, first_lsn, self._crc, self._tail_cut)
        self.in_doubt = True
        self._segments.begin(begun)
        self._tail_cut = False
        if self._current is not None:
            self._current.file.close()
        self._current = segment
        del newborn[0]
        self.in_doubt = False

    def _discard_unborn(self) -> None:
        """A clean log has no segment without a header."""
        for segment in self._newborn:
            segment.discard()
        if self._newborn:
            self._fs.sync_directory(self._directory)
        self._newborn = []
