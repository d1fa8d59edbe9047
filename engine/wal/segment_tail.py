"""Follows a log in segments while another process writes it: yields the groups that have come since the last look.

A look must cost little, and must show a prefix of whole groups. What it rests on:

* A group counts when its checksums are right and it links to the one before it. A group that is being written fails
  them; so do the zeroes of a preallocated segment, and what a crash has torn. The next look tries it again.
* No segment is used twice: a new one is a new file of zeroes, and the checksums start from its number.
* A segment begins after every group of the one before it was durable, and its header links to the last of them. So
  when there is a next segment, all groups of this one are here, or it is damaged.
* Segments are freed from the oldest on, and never the newest. If this one has its name, no later one was freed.

What is damaged in the middle shows as a sound group behind a bad one. A writer may have written both between two of our
reads, so the bad one is read once more before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import CorruptionError
from ..fs.failures import is_gone
from ..fs.filesystem import FileSystem, ReadableFile
from ..fs.growing import GrowingFile
from ..mvcc.clock import elapsed_seconds
from .format import GROUP_HEADER_BYTES, GROUP_MAGIC, SEGMENT_HEADER_BYTES, MalformedError, SegmentHeader
from .reader import sound_header_after
from .records import LogRecords
from .runs import SegmentWalk
from .segments import segment_path

_CHUNK_BYTES = 64 << 10
_DOUBT_SECONDS = 0.05
"""A write may be under way for so long, and longer, before somebody looks for damage."""
_AGAIN_SECONDS = 1.0
"""Between two such searches at one place: each reads a segment."""


class LogGapError(Exception):
    """The log has gone on where it cannot be followed: open it anew. Its segments were freed, replaced or damaged."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The end of a group of the log in segments: of the last one that was read."""

    segment: int
    """0: there is none yet."""
    offset: int
    last_lsn: int
    crc: int


class SegmentTail:
    """Follows a log in segments from a place on. For one thread."""

    def __init__(self, fs: FileSystem, directory: str, store_uuid: bytes, place: LogPlace) -> None:
        """``fs`` keeps files open. Raises LogGapError: the segment is gone."""
        self._fs = fs
        self._directory = directory
        self._store_uuid = store_uuid
        self.place = place
        self._bad: MalformedError | None = None
        """Why the bytes after the last group are no group, unless they are zeroes."""
        self._doubted: tuple[LogPlace, float] | None = None
        """The place of bad bytes, and when to look for damage."""
        self._file: ReadableFile | None = None
        self._growing: GrowingFile | None = None
        """The same, if it keeps what it has read."""
        if place.segment:
            self._read_from(self._opened(place.segment))

    def read(self) -> Iterator[LogRecords]:
        """Yield the records that have come since; ``place`` is behind each when it is yielded.

        Raises:
            LogGapError: the log cannot be followed.
            CorruptionError: a group is damaged, and others follow.
            OSError: the disk fails.
        """
        while True:
            yield from self._new_groups()
            following = self._following()
            if following is None:
                yield from self._not_damaged()
                return
            yield from self._new_groups()  # it was written before
            header, file = following
            if (header.first_lsn, header.previous_crc) != (self.place.last_lsn + 1, self.place.crc):
                file.close()
                raise LogGapError
            self.close()
            self._read_from(file)
            self.place = LogPlace(header.number, SEGMENT_HEADER_BYTES, self.place.last_lsn, self.place.crc)

    def close(self) -> None:
        """Forget the segment."""
        if self._file is not None:
            self._file.close()

    def _read_from(self, file: ReadableFile) -> None:
        self._file = file
        self._growing = file if isinstance(file, GrowingFile) else None  # asked once: that is slow

    @property
    def _path(self) -> str:
        return segment_path(self._directory, self.place.segment)

    def _new_groups(self) -> Iterator[LogRecords]:
        file, chunk, self._bad = self._file, _CHUNK_BYTES, None
        if file is None:
            return
        if self._growing is not None:
            self._growing.look_again()
        while True:
            start = self.place.offset
            head = file.pread(start, GROUP_HEADER_BYTES)
            if head[: len(GROUP_MAGIC)] != GROUP_MAGIC:
                self._bad = MalformedError("no group begins here") if any(head) else None
                return
            end = min(start + chunk, file.size)
            view = np.zeros(end, np.uint8).data  # pages that nobody touches take no memory
            file.read_into(start, view[start:])
            walk = SegmentWalk(view.toreadonly(), self._path, self._store_uuid, self.place.segment)
            walk.offset = start
            try:
                while True:
                    run = walk.next_run(self.place.last_lsn, self.place.crc)
                    self.place = LogPlace(self.place.segment, walk.offset, run.records.last_lsn, run.crc)
                    yield run.records
            except MalformedError as bad:
                if end == file.size or walk.offset + max(bad.extent, GROUP_HEADER_BYTES) <= end:
                    self._bad = bad if any(view[walk.offset : walk.offset + GROUP_HEADER_BYTES]) else None
                    return
                chunk = max(2 * chunk, bad.extent + _CHUNK_BYTES)

    def _following(self) -> tuple[SegmentHeader, ReadableFile] | None:
        """Return the next segment, if it has begun. Raises LogGapError if that cannot be known."""
        number = self.place.segment + 1
        path = segment_path(self._directory, number)
        if not self._fs.exists(path):
            self._check_name()
            return None
        file = self._opened(number)
        try:
            header = SegmentHeader.decode(file.pread(0, SEGMENT_HEADER_BYTES))
        except MalformedError:
            file.close()
            return None
        if (header.store_uuid, header.number, header.size) != (self._store_uuid, number, file.size):
            file.close()
            raise LogGapError
        return header, file

    def _opened(self, number: int) -> ReadableFile:
        try:
            return self._fs.open(segment_path(self._directory, number))
        except OSError as error:
            if is_gone(error):
                raise LogGapError from error
            raise

    def _check_name(self) -> None:
        try:
            if self._file is not None:
                self._file.check()
        except OSError as error:
            if is_gone(error):
                raise LogGapError from error
            raise

    def _not_damaged(self) -> Iterator[LogRecords]:
        """Look whether bad bytes after the last group are a write under way, or its remains, and not damage."""
        if self._bad is None or self._file is None:
            self._doubted = None
            return
        place, now = self.place, elapsed_seconds()
        if self._doubted is None or self._doubted[0] != place:
            self._doubted = place, now + _DOUBT_SECONDS
        if now < self._doubted[1]:
            return
        self._doubted = place, now + _AGAIN_SECONDS
        start = place.offset + self._bad.extent
        later = sound_header_after(self._file.view(), start, self._store_uuid, place.segment)
        if later is None:
            return
        bad = self._bad
        yield from self._new_groups()
        if self.place == place:
            raise CorruptionError(self._path, place.offset, f"{bad.why}, yet a sound group follows at byte {later}")
