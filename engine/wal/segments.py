"""Which segments the log has: their names, what they hold, and how old ones go."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace

from ...schemas.errors import UnavailableError
from ..fs.filesystem import FileSystem, WritableFile, join
from .format import ALIGNMENT, SEGMENT_HEADER_BYTES, SegmentHeader

_NAME = re.compile(r"(\d{10})\.wal")


def segment_path(directory: str, number: int) -> str:
    return join(directory, f"{number:010d}.wal")


def segment_numbers(fs: FileSystem, directory: str) -> list[int]:
    """Return the numbers of the segment files in ``directory``, ascending; other files are left alone."""
    return [int(match[1]) for match in map(_NAME.fullmatch, fs.list(directory)) if match]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """``last_lsn`` is ``first_lsn - 1`` as long as the segment holds no record."""

    number: int
    path: str
    size_bytes: int
    first_lsn: int
    last_lsn: int


class NewSegment:
    """A segment that is being written.

    Its space is taken by ``create``, in the thread that needs room; its header is written by ``begin``, in the
    writer's thread, which alone knows the group that the header links to.  A file between the two is "unborn": it holds
    no group, and the next open removes it.
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
        """Take the space; OSError if there is not enough, and then no file is left that stands in the way."""
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
        """Write the header, and make it and the file's name durable: no group may come before that."""
        header = SegmentHeader(store_uuid, self.number, first_lsn, previous_crc, self.size, previous_tail_cut)
        self.file.pwrite(0, header.encode())
        self.file.sync()
        self._fs.sync_directory(self._directory)
        return SegmentInfo(self.number, self.path, self.size, first_lsn, first_lsn - 1)

    def check(self) -> None:
        """Raise OSError when the file is not there any more, as it was made: whatever is written to it is lost then."""
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
    """The segments that hold groups or may soon, oldest first.  Threads may share it."""

    def __init__(self, fs: FileSystem, segments: list[SegmentInfo]) -> None:
        self._fs = fs
        self._segments = list(segments)
        self._mutex = threading.Lock()
        self._freeing = threading.Lock()

    def all(self) -> list[SegmentInfo]:
        with self._mutex:
            return list(self._segments)

    def begin(self, segment: SegmentInfo) -> None:
        with self._mutex:
            self._segments.append(segment)

    def reach(self, last_lsn: int) -> None:
        """Note that the newest segment holds the records up to ``last_lsn``."""
        with self._mutex:
            self._segments[-1] = replace(self._segments[-1], last_lsn=last_lsn)

    def free_before(self, lsn: int) -> int:
        """Delete, oldest first, the segments whose records are all < ``lsn``; return the bytes freed.

        The newest stays: it is the link to what comes.  Oldest first means that a power failure on the way leaves no
        gap, since names of one directory become durable in order.
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
            pass  # an earlier attempt was said to have failed, and had not
        except OSError as error:
            raise UnavailableError(f"{segment.path} cannot be deleted: {error}") from error
        with self._mutex:
            self._segments.remove(segment)
