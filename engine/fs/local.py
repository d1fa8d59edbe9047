"""The operating system's files.  The only module of the engine that opens one.

Preallocation and the cost of a sync.  ``posix_fallocate`` reserves extents that ext4 marks "unwritten"; the first
write to one must also commit the file system's journal, which makes a small ``fdatasync`` about twenty times slower
(2 ms instead of 0.1 ms on a laptop-class SSD).  Writing zeroes over all of it beforehand doubles the bytes written.
So zeroes are written a window ahead of SMALL writes only: one sync in thousands pays for the window, the others
overwrite existing blocks.  For large writes the bytes cost more than the journal, so they skip this.

No file is mapped: an unreadable or truncated page of a mapping ends the process with SIGBUS, where a read returns an
error.  Files stay open for reading, up to half of the process's descriptors; others are opened by name for each read,
and must then be the same file.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.request import check_may_wait
from .. import threads
from .file_parts import AppendingFile, FillingFile
from .filesystem import FileLock, clean_path, other_disk, require_same_directory, views_of

if TYPE_CHECKING:
    from .filesystem import BytesLike, FileSystem

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_IOV_MAX = os.sysconf("SC_IOV_MAX") if os.sysconf("SC_IOV_MAX") > 0 else 16
_ZERO_WINDOW = 4 << 20
_SMALL_WRITE = 1 << 20
_ZEROES = bytes(_SMALL_WRITE)
_CLOSED = -1
_BY_NAME = -2
"""Replaces a descriptor: the file is opened for each read."""


class LocalFileSystem:
    """The files under ``root``, an absolute or relative directory name.

    Nothing is created before the first ``make_directory``; ``make_directory("")`` makes the root itself.
    """

    def __init__(self, root: str | os.PathLike[str], keeps_open: bool = False) -> None:
        """``keeps_open``: files stay open for reading, however many there are. Else a file that is opened by name for
        each read may be taken for another one that got its name and its number since."""
        self.root = os.path.abspath(os.fspath(root))
        self.keeps_open = keeps_open
        self._readers: dict[str, WeakSet[LocalReadableFile]] = {}
        """The readers of files, by path: we must notify them before we unlink a file ourselves."""
        self._lock = threads.RLock()  # the last reference to a reader may go at any time, also while it is held

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
        where = self._locate(path)
        with self._lock:
            file = LocalReadableFile(self, where)
            self._readers.setdefault(where, WeakSet()).add(file)
        return file

    def forget(self, where: str, file: LocalReadableFile) -> None:
        """Stop notifying a reader."""
        with self._lock:
            readers = self._readers.get(where)
            if readers is not None:
                readers.discard(file)
                if not readers:
                    del self._readers[where]

    def _lose_name(self, where: str) -> None:
        with self._lock:
            for file in list(self._readers.pop(where, ())):
                file.lose_name()

    def sync_file(self, path: str) -> None:
        _sync(self._locate(path), os.O_RDONLY)

    def rename(self, old: str, new: str) -> None:
        require_same_directory(old, new)
        self._lose_name(self._locate(new))
        os.rename(self._locate(old), self._locate(new))

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        target = self if into is None else into
        if not isinstance(target, LocalFileSystem):
            raise other_disk(new)
        os.link(self._locate(old), target._locate(new), follow_symlinks=False)

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        target = self if into is None else into
        if not isinstance(target, LocalFileSystem):
            return False
        return _identity(os.lstat(self._locate(old))) == _identity(os.lstat(target._locate(new)))

    def unlink(self, path: str) -> None:
        where = self._locate(path)
        self._lose_name(where)
        os.unlink(where)

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
                # No call can name the root's parent, so its entry is made durable here.
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
            if os.path.realpath(self._locate(path)) in _LOCKED:
                raise UnavailableError(
                    "this process already has the store open: use that Database, from any thread, or close it first"
                ) from None
            raise UnavailableError(
                f"another process has the store in {self.root} open: connect to it with --url or nyala.connect, "
                "close it there, or read it with --read-only or nyala.open(..., read_only=True)"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        return LocalFileLock(descriptor, os.path.realpath(self._locate(path)))

    def free_bytes(self, path: str) -> int:
        state = os.statvfs(self._locate(path))
        return state.f_bavail * state.f_frsize

    def total_bytes(self, path: str) -> int:
        state = os.statvfs(self._locate(path))
        return state.f_blocks * state.f_frsize

    def _locate(self, path: str) -> str:
        return os.path.join(self.root, clean_path(path)) if path else self.root


def directory_apart(directory: str, fs: FileSystem) -> LocalFileSystem:
    """Return the files under a directory that is neither within ``fs`` nor around it.

    Raises:
        InvalidArgumentError: it is, or the path is not absolute.
    """
    if not os.path.isabs(directory):
        raise InvalidArgumentError(f"{directory!r} is not an absolute path: give the full path on the store's machine")
    root: str | None = getattr(fs, "root", None) or None  # None: it is not on this machine's disks
    if root is not None and os.path.commonpath(both := [os.path.realpath(root), os.path.realpath(directory)]) in both:
        raise InvalidArgumentError(
            f"{directory} is within the directory of the store, or contains it: give a directory outside of it"
        )
    return LocalFileSystem(directory)


class LocalWritableFile(AppendingFile):
    """A new file of the operating system: a descriptor, its path, and how much of it was preallocated and zeroed."""

    def __init__(self, descriptor: int, where: str, preallocated: int) -> None:
        self._descriptor = descriptor
        self._where = where
        self._identity = _identity(os.fstat(descriptor))
        self._preallocated = preallocated
        self._zeroed = 0
        self._size = 0

    def reserve(self) -> None:
        """Preallocate the space, and make the file's length durable once: later syncs may then skip it."""
        os.posix_fallocate(self._descriptor, 0, self._preallocated)
        self._zero(0)
        os.fsync(self._descriptor)

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        views = views_of(pieces)
        end = offset + sum([view.nbytes for view in views])
        _write_fully(self._descriptor, views, offset)
        if end > self._size:
            self._size = end
        if end > self._zeroed:
            if end < self._preallocated and end - offset < _SMALL_WRITE:
                self._zero(end)
            else:
                self._zeroed = end

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def sync(self) -> None:
        if self._preallocated:
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def check(self) -> None:
        found = os.stat(self._where, follow_symlinks=False)
        if _identity(found) != self._identity:
            raise OSError(errno.ESTALE, "another file has replaced this file")
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


class _Descriptors:
    """Limits how many files this process keeps open for reading."""

    def __init__(self) -> None:
        self.most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._kept = 0
        self._lock = threads.RLock()  # for the same reason as in LocalFileSystem

    def take(self, anyway: bool = False) -> bool:
        """Count one more open file, and return whether it may be kept open; ``anyway``, it may."""
        with self._lock:
            if self._kept >= self.most and not anyway:
                return False
            self._kept += 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._kept -= 1


descriptors = _Descriptors()


class LocalReadableFile(FillingFile):
    def __init__(self, fs: LocalFileSystem, where: str) -> None:
        self._fs = fs
        self._where = where
        self._descriptor = _CLOSED
        self._is_counted = False
        self._has_name = True
        descriptor = _open_to_read(where)
        try:
            state = os.fstat(descriptor)
            self._identity, self._size = _identity(state), state.st_size
            self._is_counted = descriptors.take(anyway=fs.keeps_open)
        finally:
            if not self._is_counted:
                os.close(descriptor)
        self._descriptor = descriptor if self._is_counted else _BY_NAME

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        check_may_wait()
        view = memoryview(buffer)  # pyright: ignore[reportArgumentType]
        if self._descriptor != _BY_NAME:
            return _read_fully(self._descriptor, view, offset)
        try:
            descriptor = self._open_again()
        except OSError:
            if self._descriptor == _BY_NAME:
                raise
            return _read_fully(self._descriptor, view, offset)  # it was unlinked meanwhile, and opened before that
        try:
            return _read_fully(descriptor, view, offset)
        finally:
            os.close(descriptor)

    def view(self) -> memoryview:
        # A segment of the log is preallocated and mostly zeroes. Those are not copied: memory that is never written
        # costs nothing, and the piece stays in the processor's cache. They are read all the same: some file systems
        # told of holes where data was (OpenZFS before 2.2.2), and here that would be acknowledged rows.
        memory = mmap.mmap(-1, max(self._size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):  # not every system, and not every kernel of Linux, has huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)  # else each 4 KB is provided alone, also when zeroes are only read
        content = memoryview(memory)[: self._size]
        piece = bytearray(min(self._size, len(_ZEROES)))
        for start in range(0, self._size, len(_ZEROES)):
            part = content[start : start + len(piece)]
            count = self.read_into(start, memoryview(piece)[: len(part)])
            if piece != _ZEROES:
                part[:count] = memoryview(piece)[:count]
            if count < len(part):
                return content[: start + count].toreadonly()
        return content.toreadonly()

    def check(self) -> None:
        if not self._has_name:
            return
        try:
            state = os.stat(self._where)
        except FileNotFoundError:
            if self._has_name:
                raise
            return
        if not self._has_name:  # it was unlinked meanwhile
            return
        if _identity(state) != self._identity:
            raise OSError(errno.ESTALE, "another file now has its name", self._where)
        if state.st_size < self._size:
            raise OSError(errno.ESTALE, f"it was cut from {self._size:,} to {state.st_size:,} bytes", self._where)

    def lose_name(self) -> None:
        """Prepare for our unlinking or replacing the file: readers may continue."""
        if self._descriptor == _BY_NAME:
            try:
                self._descriptor = self._open_again()
            except OSError:
                return  # the next read reports it
        self._has_name = False

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor >= 0:
            os.close(descriptor)
        if self._is_counted:
            self._is_counted = False
            descriptors.give_back()
        self._fs.forget(self._where, self)

    def __del__(self) -> None:
        self.close()

    def _open_again(self) -> int:
        descriptor = _open_to_read(self._where)
        if _identity(os.fstat(descriptor)) != self._identity:
            os.close(descriptor)
            raise OSError(errno.ESTALE, "another file now has its name", self._where)
        return descriptor


def _open_to_read(where: str) -> int:
    """Open a file of the store; no symbolic link, and nothing that could block."""
    descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", where)
    return descriptor


def _read_fully(descriptor: int, view: memoryview, offset: int) -> int:
    """Fill ``view``; return the number of bytes read, fewer at the end of the file."""
    count = os.preadv(descriptor, [view], offset)
    while 0 < count < view.nbytes:
        more = os.preadv(descriptor, [view[count:]], offset + count)
        if not more:
            break
        count += more
    return count


_LOCKED: set[str] = set()
"""The files that this process has locked: to name the owner of a lock, not to decide it."""


class LocalFileLock(FileLock):
    """An flock: it belongs to the open descriptor, and the kernel releases it with the process."""

    def __init__(self, descriptor: int, where: str) -> None:
        self._descriptor = descriptor
        self._where = where
        _LOCKED.add(where)

    def close(self) -> None:
        if self._descriptor >= 0:
            _LOCKED.discard(self._where)
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _write_fully(descriptor: int, views: Sequence[memoryview], offset: int) -> None:
    """Write all of ``views``: the kernel may write less than asked, and only so many pieces at once."""
    pending = list(reversed(views))
    while pending:
        written = os.pwritev(descriptor, pending[: -_IOV_MAX - 1 : -1], offset)
        offset += written
        while pending and written >= pending[-1].nbytes:
            written -= pending.pop().nbytes
        if written:
            pending[-1] = pending[-1][written:]


def _identity(state: os.stat_result) -> tuple[int, int]:
    """Return the file's identity, unique while it is open."""
    return state.st_dev, state.st_ino


def _sync(where: str, flags: int) -> None:
    descriptor = os.open(where, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
