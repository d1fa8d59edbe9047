"""The operating system's files.  The only module of the engine that opens one.

Preallocation and the cost of a sync.  ``posix_fallocate`` reserves extents that ext4 marks "unwritten"; the first
write to one must also commit the file system's journal, which makes a small ``fdatasync`` about twenty times dearer
(2 ms instead of 0.1 ms on a laptop-class SSD).  Writing zeroes over all of it beforehand doubles the bytes written.
So zeroes are laid a window ahead of SMALL writes only: one sync in thousands pays for the window, the others
overwrite blocks that are there.  Large writes pay more for their bytes than for the journal, and go straight in.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ...schemas.errors import UnavailableError
from .filesystem import clean_path, require_same_directory, views_of

if TYPE_CHECKING:
    from .filesystem import BytesLike

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_IOV_MAX = os.sysconf("SC_IOV_MAX") if os.sysconf("SC_IOV_MAX") > 0 else 16
_ZERO_WINDOW = 4 << 20
_SMALL_WRITE = 1 << 20
_ZEROES = bytes(_SMALL_WRITE)


class LocalFileSystem:
    """The files under ``root``, an absolute or relative directory name.

    Nothing is created before the first ``make_directory``; ``make_directory("")`` makes the root itself.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.fspath(root))

    def __repr__(self) -> str:
        return f"LocalFileSystem({self.root!r})"

    def create(self, path: str, preallocate: int = 0) -> LocalWritableFile:
        where = self._locate(path)
        descriptor = os.open(where, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        file = LocalWritableFile(descriptor, where, preallocate)
        try:
            if preallocate:
                file.reserve()
        except BaseException:
            file.close()
            os.unlink(where)
            raise
        return file

    def open(self, path: str) -> LocalReadableFile:
        return LocalReadableFile(os.open(self._locate(path), os.O_RDONLY | os.O_CLOEXEC))

    def sync_file(self, path: str) -> None:
        _sync(self._locate(path), os.O_RDONLY)

    def rename(self, old: str, new: str) -> None:
        require_same_directory(old, new)
        os.rename(self._locate(old), self._locate(new))

    def link(self, old: str, new: str) -> None:
        os.link(self._locate(old), self._locate(new), follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(self._locate(path))

    def make_directory(self, path: str) -> None:
        where = self._locate(path)
        missing = []
        while not os.path.isdir(where):
            missing.append(where)
            where = os.path.dirname(where)
        for directory in reversed(missing):
            try:
                os.mkdir(directory, _DIRECTORY_MODE)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise
            if len(directory) <= len(self.root):
                # No call can name what is above the root, so its entry is made durable here.
                _sync(os.path.dirname(directory), os.O_RDONLY | os.O_DIRECTORY)

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._locate(path))

    def sync_directory(self, path: str) -> None:
        _sync(self._locate(path), os.O_RDONLY | os.O_DIRECTORY)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._locate(path)))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._locate(path))

    def size(self, path: str) -> int:
        return os.stat(self._locate(path)).st_size

    def lock(self, path: str) -> LocalFileLock:
        descriptor = os.open(self._locate(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UnavailableError(f"{path} is locked: another process has this store open") from None
        except BaseException:
            os.close(descriptor)
            raise
        return LocalFileLock(descriptor)

    def free_bytes(self, path: str) -> int:
        state = os.statvfs(self._locate(path))
        return state.f_bavail * state.f_frsize

    def _locate(self, path: str) -> str:
        return os.path.join(self.root, clean_path(path)) if path else self.root


class LocalWritableFile:
    """A descriptor, where it was opened, and how much of it was preallocated and zeroed."""

    def __init__(self, descriptor: int, where: str, preallocated: int) -> None:
        self._descriptor = descriptor
        self._where = where
        self._identity = _identity(os.fstat(descriptor))
        self._preallocated = preallocated
        self._zeroed = 0
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def reserve(self) -> None:
        """Take the preallocated space, and make the file's length durable once: later syncs may then skip it."""
        os.posix_fallocate(self._descriptor, 0, self._preallocated)
        self._zero(0)
        os.fsync(self._descriptor)

    def append(self, data: BytesLike) -> None:
        self.pwrite(self._size, data)

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        views = views_of(pieces)
        end = offset + sum(view.nbytes for view in views)
        _write_fully(self._descriptor, views, offset)
        self._size = max(self._size, end)
        if self._zeroed < end < self._preallocated and end - offset < _SMALL_WRITE:
            self._zero(end)
        self._zeroed = max(self._zeroed, end)

    def sync(self) -> None:
        if self._preallocated:
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def check(self) -> None:
        found = os.stat(self._where, follow_symlinks=False)
        if _identity(found) != self._identity:
            raise OSError(errno.ESTALE, "another file has taken the place of this one")
        if found.st_size < max(self._preallocated, self._size):
            raise OSError(errno.ESTALE, f"the file was cut to {found.st_size:,} bytes")

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _zero(self, start: int) -> None:
        end = min(start + _ZERO_WINDOW, self._preallocated)
        for offset in range(start, end, len(_ZEROES)):
            piece = memoryview(_ZEROES)[: end - offset]
            _write_fully(self._descriptor, [piece], offset)
        self._zeroed = end


class LocalReadableFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def pread(self, offset: int, length: int) -> bytes:
        content = os.pread(self._descriptor, length, offset)
        while 0 < len(content) < length:
            more = os.pread(self._descriptor, length - len(content), offset + len(content))
            if not more:
                break
            content += more
        return content

    def view(self) -> memoryview:
        if self._size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._descriptor, self._size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def let_go(view: memoryview) -> None:
    """Tell the operating system that nobody wants the pages of a file's view for now.

    They no longer count as memory of this process, and come back from the page cache when they are read. Does nothing
    to a view of another file system.
    """
    if isinstance(view.obj, mmap.mmap):
        view.obj.madvise(mmap.MADV_DONTNEED)


class LocalFileLock:
    """An flock: it belongs to the open descriptor, and the kernel drops it with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> LocalFileLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _write_fully(descriptor: int, views: Sequence[memoryview], offset: int) -> None:
    """Write all of ``views``: the kernel may take less than it is given, and only so many pieces at once."""
    pending = list(reversed(views))
    while pending:
        written = os.pwritev(descriptor, pending[: -_IOV_MAX - 1 : -1], offset)
        offset += written
        while pending and written >= pending[-1].nbytes:
            written -= pending.pop().nbytes
        if written:
            pending[-1] = pending[-1][written:]


def _identity(state: os.stat_result) -> tuple[int, int]:
    """Return what no other file has as long as this one is open."""
    return state.st_dev, state.st_ino


def _sync(where: str, flags: int) -> None:
    descriptor = os.open(where, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
