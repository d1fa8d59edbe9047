"""Reads a log from its first byte to its last, and tells a torn tail from corruption.

The writer writes a group only after the sync of the one before it has returned.  So after a power failure at most ONE
group may be damaged, the last; whatever else is damaged was damaged later.  The rules that follow from it:

* a damaged group that a sound header follows in its segment is corruption;
* a damaged group at the end of the last segment is a torn tail: its write had not been acknowledged, so it is cut;
* the next segment's header says that the tail before it was cut, and links to the last sound group.  Where the flag is
  missing, or the link leads elsewhere, the damage is corruption;
* a segment is linked into the log by its header before it gets a group: one without a sound header is unborn if it is
  the last and nothing follows the header, and corrupt otherwise.

After a clean stop nothing may be torn: with ``expect`` every damage up to the stop, and after it in the same segment,
is corruption.  A later segment means that the log was opened and written again since.

Nothing is changed on the disk here, so ``verify`` and ``dump`` use the same reader.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import CorruptionError, UnavailableError
from ..fs.failures import reading
from ..fs.filesystem import FileSystem, ReadableFile
from ..vectors.memory.huge_pages import mapped
from .format import (
    ALIGNMENT,
    GROUP_MAGIC,
    SEGMENT_HEADER_BYTES,
    MalformedError,
    SegmentHeader,
    decode_group_header,
    seed_of,
)
from .records import LogRecords
from .runs import Group, GroupRun, SegmentWalk
from .segments import SegmentInfo, segment_numbers, segment_path

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CleanStop:
    """Where the log ended when it was closed: the last record, and the crc of its group."""

    last_lsn: int
    crc: int


class LogReader:
    """Reads a log forwards: iterate ``runs``, ``groups`` or ``records`` to the end, then ask for the rest, or for the
    records ``again``.

    ``last_lsn`` and ``crc`` are the link that the next group must carry; ``segments`` are those read; ``unborn`` names
    the files to remove before the next segment is made; ``torn_bytes`` were found after the last sound group.

    ``store_uuid`` None takes the first segment's word for it.  ``reached`` is an lsn that is known to have been
    durable.  ``numbers`` are the segments to read, while a writer makes others.  The constructor and these raise
    CorruptionError, and UnavailableError when the disk cannot be read.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        store_uuid: bytes | None = None,
        expect: CleanStop | None = None,
        reached: int = 0,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self._fs = fs
        self._known = numbers
        self._directory = directory
        self._expect = expect
        self._reached = reached
        self._stopped_in: int | None = None
        self._ends: dict[int, int] = {}
        self._last_runs: list[GroupRun] = []
        """Those of the newest segment that was read."""
        self.store_uuid = store_uuid
        self.unborn: list[str] = []
        self.segments: list[SegmentInfo] = []
        self.torn_bytes = 0
        self._headers = self._read_headers()
        self.first_lsn = self._headers[0].first_lsn if self._headers else 1
        self.last_lsn = self.first_lsn - 1
        self.crc = self._headers[0].previous_crc if self._headers else 0
        self._end = (segment_path(directory, self._headers[0].number if self._headers else 1), 0)

    @property
    def newest_path(self) -> str | None:
        """The last segment that was born; None when there is none."""
        return segment_path(self._directory, self._headers[-1].number) if self._headers else None

    @property
    def end_offset(self) -> int:
        """Where the last sound group ends in the last segment that was read."""
        return self._end[1]

    def runs(self) -> Iterator[GroupRun]:
        """Yield every sound group in order, many at a time; the records are views of one segment in memory at a
        time."""
        self._meet_expectation(self.last_lsn, self.last_lsn, self.crc, None)
        for header, following in itertools.zip_longest(self._headers, self._headers[1:]):
            path = segment_path(self._directory, header.number)
            self._last_runs = []
            view = self._view(path)
            if len(view) != header.size:
                raise CorruptionError(path, len(view), f"the file should have {header.size} bytes")
            offset, bad = yield from self._sound_runs(view, path, header.number)
            self._end = (path, offset)
            self.segments.append(SegmentInfo(header.number, path, header.size, header.first_lsn, self.last_lsn))
            self._ends[header.number] = offset
            if following is not None:
                self._check_link(view, offset, bad, following)
            else:
                self._check_tail(view, offset, bad, header.number)
        self._check_end()

    def groups(self) -> Iterator[Group]:
        """Yield the groups of ``runs`` one by one, for those who want to know where each is."""
        for run in self.runs():
            yield from run.groups()

    def records(self) -> Iterator[LogRecords]:
        """Yield the records of ``runs``."""
        for run in self.runs():
            yield run.records

    def again(self) -> Iterator[LogRecords]:
        """Yield all records again, once ``records`` has come to its end. Nobody may have written to the log meanwhile.

        The last segment, of most logs the only one, stays in memory for this: it is not read twice.
        """
        last_lsn, crc = self.first_lsn - 1, self._headers[0].previous_crc if self._headers else 0
        for segment in self.segments[:-1]:
            view = self._start(segment.path, self._ends[segment.number])
            walk = SegmentWalk(view, segment.path, self.store_uuid or b"", segment.number)
            while last_lsn < segment.last_lsn:
                try:
                    run = walk.next_run(last_lsn, crc)
                except MalformedError as bad:
                    why = f"{bad.why}, but it was sound a moment ago"
                    raise CorruptionError(segment.path, walk.offset, why) from None
                last_lsn, crc = run.records.last_lsn, run.crc
                yield run.records
        runs, self._last_runs = self._last_runs, []
        for run in runs:
            yield run.records

    def _sound_runs(
        self, view: memoryview, path: str, number: int
    ) -> Generator[GroupRun, None, tuple[int, MalformedError]]:
        """Yield the groups of a segment; return where they end, and what was found there instead of a group."""
        walk = SegmentWalk(view, path, self.store_uuid or b"", number)
        while True:
            try:
                run = walk.next_run(self.last_lsn, self.crc)
            except MalformedError as bad:
                return walk.offset, bad
            if self._expect is not None and (group := run.group_with(self._expect.last_lsn)):
                self._meet_expectation(group.header.first_lsn, group.header.last_lsn, group.header.crc, number)
            self.last_lsn, self.crc = run.records.last_lsn, run.crc
            self._last_runs.append(run)
            yield run

    def _check_link(self, view: memoryview, offset: int, bad: MalformedError, following: SegmentHeader) -> None:
        """A segment that another one follows ends where that one says, in zeroes unless its tail was cut."""
        path, _ = self._end
        if (following.first_lsn, following.previous_crc) != (self.last_lsn + 1, self.crc):
            why = f"{bad.why}, but segment {following.number} starts with another group, at lsn {following.first_lsn}"
            raise CorruptionError(path, offset, why)
        if not following.previous_tail_cut and content_end(view, offset) > offset:
            raise CorruptionError(path, offset, f"{bad.why}, although the log continues in the next segment")

    def _check_tail(self, view: memoryview, offset: int, bad: MalformedError, number: int) -> None:
        """What follows the last sound group of the last segment is nothing, or one torn write."""
        path, _ = self._end
        stopped_here = self._stopped_in == number and not self.unborn
        if stopped_here and self._expect and self.last_lsn > self._expect.last_lsn:
            raise CorruptionError(path, offset, f"the log goes on after its clean stop at lsn {self._expect.last_lsn}")
        self.torn_bytes = content_end(view, offset) - offset
        if not self.torn_bytes:
            return
        later = sound_header_after(view, offset + bad.extent, self.store_uuid or b"", number)
        if later is not None:
            raise CorruptionError(path, offset, f"{bad.why}, yet a sound group follows at byte {later}")
        if stopped_here:
            raise CorruptionError(path, offset, f"{bad.why}, although the log was stopped cleanly")

    def _meet_expectation(self, first_lsn: int, last_lsn: int, crc: int, number: int | None) -> None:
        """The group that holds the last lsn before the clean stop must end with it, and be that very group."""
        stop = self._expect
        if stop is None or not first_lsn <= stop.last_lsn <= last_lsn:
            return
        if (stop.last_lsn, stop.crc) != (last_lsn, crc):
            raise CorruptionError(*self._end, f"the group at lsn {last_lsn} is not the group that the clean stop noted")
        self._stopped_in = number

    def _check_end(self) -> None:
        known = max(self._reached, self._expect.last_lsn if self._expect else 0)
        if self.last_lsn < known:
            raise CorruptionError(*self._end, f"the log ends at lsn {self.last_lsn}, but lsn {known} was durable")

    def _read_headers(self) -> list[SegmentHeader]:
        """Return the headers of all segments that were born, oldest first."""
        numbers = self._numbers()
        while numbers and self._is_unborn(segment_path(self._directory, numbers[-1])):
            self.unborn.append(segment_path(self._directory, numbers.pop()))
        headers: list[SegmentHeader] = []
        for expected, number in enumerate(numbers, numbers[0] if numbers else 0):
            if number != expected:
                raise CorruptionError(segment_path(self._directory, expected), 0, "this segment of the log is missing")
            headers.append(self._read_header(number))
        return headers

    def _read_header(self, number: int) -> SegmentHeader:
        path = segment_path(self._directory, number)
        start, size = self._peek(path)
        try:
            header = SegmentHeader.decode(start)
        except MalformedError as bad:
            raise CorruptionError(path, 0, bad.why) from None
        self.store_uuid = self.store_uuid or header.store_uuid
        if header.store_uuid != self.store_uuid:
            raise CorruptionError(path, 0, f"this segment belongs to store {header.store_uuid.hex()}")
        if header.number != number:
            raise CorruptionError(
                path, 0, f"the header says segment {header.number}, but the file has the name of another segment"
            )
        if header.size != size:
            raise CorruptionError(path, size, f"the file should have {header.size} bytes")
        return header

    def _is_unborn(self, path: str) -> bool:
        """Whether the last file has no sound header, and so no group; CorruptionError if there is one all the same."""
        if self._flaw_of_header(path) is None:
            return False
        # Its header is the first thing that is written to a segment, after its full size was durable. So whoever reads
        # beside a living writer looks for groups, and then once more for the header.
        view = self._view(path)
        start = SEGMENT_HEADER_BYTES if len(view) >= SEGMENT_HEADER_BYTES else 0
        is_used = content_end(view, start) > start
        flaw = self._flaw_of_header(path)
        if flaw is not None and is_used:
            raise CorruptionError(path, 0, f"{flaw}, yet the segment was in use")
        return flaw is not None

    def _flaw_of_header(self, path: str) -> str | None:
        """Return why a file does not begin with a sound header; None if it does."""
        try:
            SegmentHeader.decode(self._peek(path)[0])
        except MalformedError as bad:
            return bad.why
        return None

    def _numbers(self) -> list[int]:
        if self._known is not None:
            return list(self._known)
        try:
            return segment_numbers(self._fs, self._directory)
        except OSError as error:
            raise UnavailableError(f"{self._directory} cannot be read: {error}") from error

    def _peek(self, path: str) -> tuple[bytes, int]:
        """Return what should be a file's header, and the file's size."""
        with self._opened(path) as file:
            return file.pread(0, SEGMENT_HEADER_BYTES), file.size

    def _view(self, path: str) -> memoryview:
        with self._opened(path) as file:
            return file.view()

    def _start(self, path: str, size: int) -> memoryview:
        content = mapped(size)[:size].data
        with self._opened(path) as file:
            return content[: file.read_into(0, content)].toreadonly()

    @contextmanager
    def _opened(self, path: str) -> Iterator[ReadableFile]:
        with reading(path):
            file = self._fs.open(path)
            try:
                yield file
            finally:
                file.close()


def sound_header_after(view: memoryview, offset: int, store_uuid: bytes, number: int) -> int | None:
    """Return where the next sound header of a group is in a segment of the log: it was written after everything before
    it was durable. None when there is none from ``offset`` on."""
    if offset >= len(view):
        return None
    words = np.frombuffer(view[offset : len(view) // ALIGNMENT * ALIGNMENT], dtype="<u4")[:: ALIGNMENT // 4]
    for position in np.flatnonzero(words == int.from_bytes(GROUP_MAGIC, "little")):
        candidate = offset + int(position) * ALIGNMENT
        try:
            decode_group_header(view, candidate, seed_of(store_uuid, number, candidate))
        except MalformedError:
            continue
        return candidate
    return None


def content_end(view: memoryview, start: int) -> int:
    """Return one past the last byte of a segment of the log from ``start`` on that is not zero; ``start`` if there is
    none."""
    end = len(view)
    while end > start:
        first = max(start, end - _CHUNK_BYTES)
        chunk = np.frombuffer(view[first:end], dtype=np.uint8)
        if chunk.max():
            return first + int(np.flatnonzero(chunk)[-1]) + 1
        end = first
    return start
