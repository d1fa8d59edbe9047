"""The segments of the log: their names, their records, and the removal of old ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ...schemas.errors import UnavailableError
from .. import threads
from ..fs.filesystem import FileSystem, WritableFile, join
from .format import ALIGNMENT, SEGMENT_HEADER_BYTES, SegmentHeader

_NAME = re.compile(r"(\d{10})\.wal")


def segment_path(directory: str, number: int) -> str:
    return join(directory, f"{number:010d}.wal")


def segment_numbers(fs: FileSystem, directory: str) -> list[int]:
    """Return the numbers of the log's segment files in ``directory``, ascending; ignores other files."""
    return [int(match[1]) for match in map(_NAME.fullmatch, fs.list(directory)) if match]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment of the log. ``last_lsn`` is ``first_lsn - 1`` while the segment has no record."""

    number: int
    path: str
    size_bytes: int
    first_lsn: int
    last_lsn: int


class NewSegment:
    """A segment of the log that is being written.

    ``create`` takes its space, in the thread that needs room; ``begin`` writes its header, in the writer's thread,
    which alone knows the group that the header links to.  A file between the two is "unborn": it has no group, and the
    next open removes it.
    """

    def __init__(self, fs: FileSystem, directory: str, number: int, path: str, size: int, file: WritableFile) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.position = SEGMENT_HEADER_BYTES
        self.file = file
        self._fs = fs
        self._directory = directory

    @classmethod
    def create(cls, fs: FileSystem, directory: str, number: int, size: int) -> NewSegment:
        """Take the space; OSError if there is not enough, and then no file is left."""
        path = segment_path(directory, number)
        if fs.exists(path):
            fs.unlink(path)
        size += -size % ALIGNMENT
        return cls(fs, directory, number, path, size, fs.create(path, preallocate=size))

    @property
    def free_bytes(self) -> int:
        return self.size - self.position

    def take(self, size: int) -> int:
        """Return the offset of the next ``size`` bytes and count them as used."""
        assert size <= self.free_bytes, "room was claimed for every record"
        offset, self.position = self.position, self.position + size
        return offset

    def begin(self, store_uuid: bytes, first_lsn: int, previous_crc: int, previous_tail_cut: bool) -> SegmentInfo:
        """Write the header, and make it and the file's name durable: no group may precede that."""
        header = SegmentHeader(store_uuid, self.number, first_lsn, previous_crc, self.size, previous_tail_cut)
        self.file.pwrite(0, header.encode())
        self.file.sync()
        self._fs.sync_directory(self._directory)
        return SegmentInfo(self.number, self.path, self.size, first_lsn, first_lsn - 1)

    def check(self) -> None:
        """Raise OSError if the file was removed or replaced: writes to it would be lost."""
        try:
            self.file.check()
        except OSError as error:
            why = f"{self.path} was deleted, replaced or cut while it was being written ({error.strerror})"
            raise OSError(why) from error

    def discard(self) -> None:
        """Remove an unborn segment."""
        self.file.close()
        self._fs.unlink(self.path)


class SegmentList:
    """The segments of the log that have groups or may soon, oldest first. Thread safe."""

    def __init__(self, fs: FileSystem, segments: list[SegmentInfo]) -> None:
        self._fs = fs
        self._segments = list(segments)
        self._reached = 0
        """The last lsn of the newest segment, unless it knows a later one itself."""
        self._mutex = threads.Lock()
        self._freeing = threads.Lock()

    def all(self) -> list[SegmentInfo]:
        with self._mutex:
            self._settle()
            return list(self._segments)

    def begin(self, segment: SegmentInfo) -> None:
        with self._mutex:
            self._settle()
            self._segments.append(segment)

    def reach(self, last_lsn: int) -> None:
        """Note that the newest segment holds the records up to ``last_lsn``."""
        self._reached = last_lsn

    def _settle(self) -> None:
        if self._segments and self._segments[-1].last_lsn < self._reached:
            self._segments[-1] = replace(self._segments[-1], last_lsn=self._reached)

    def free_before(self, lsn: int) -> int:
        """Delete, oldest first, the segments whose records are all < ``lsn``; return the bytes freed.

        The newest stays, as the link to the next one.  In this order a power failure leaves no gap, since names of one
        directory become durable in order.
        """
        freed = 0
        with self._freeing:
            for segment in self.all()[:-1]:
                if segment.last_lsn >= lsn:
                    break
                self._unlink(segment)
                freed += segment.size_bytes
        return freed

    def _unlink(self, segment: SegmentInfo) -> None:
        try:
            self._fs.unlink(segment.path)
        except FileNotFoundError:
            pass  # an earlier attempt reported failure, but succeeded
        except OSError as error:
            raise UnavailableError(f"{segment.path} cannot be deleted: {error}") from error
        with self._mutex:
            self._segments.remove(segment)
