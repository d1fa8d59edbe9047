"""A disk in memory that knows what is durable, and can lose its power at any call.

``crash_at`` stops the machine before its N-th change, and ``crash_image`` draws one of the states that may be on the
disk afterwards (``durable.py`` says which).  Setting ``crash_at`` back to None instead is a killed PROCESS on a living
machine: all that was written is still there, and what was not synced may be lost by a later power failure.
"""

from __future__ import annotations

import errno
from collections import deque
from random import Random
from typing import TYPE_CHECKING

from ...schemas.errors import UnavailableError
from .. import threads
from .durable import DurableDirectory, DurableFile
from .file_parts import CopyingFile
from .filesystem import FileLock, clean_path, os_error, other_disk, parent_of, require_same_directory, views_of

if TYPE_CHECKING:
    from .filesystem import BytesLike, FileSystem


class PowerFailure(BaseException):
    """The machine with the disk in memory is off. Not an Exception: nothing that handles errors may survive it."""


class MemoryFileSystem:
    """One disk in memory, which knows what is durable and can lose its power at any call.

    ``operations`` counts the calls that change something; ``operation_log`` names the latest.  With ``crash_at=N`` the
    N-th raises PowerFailure before it takes effect, and so does every call after it.

    One that ``is_volatile`` loses everything with its power. So it keeps nothing of what was unlinked, though the
    directory was not synced: it is for caches.
    """

    def __init__(
        self, capacity_bytes: int = 1 << 40, crash_at: int | None = None, *, is_volatile: bool = False
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.is_volatile = is_volatile
        self.crash_at = crash_at
        self.operations = 0
        self.operation_log: deque[str] = deque(maxlen=100_000)
        self._root = DurableDirectory(is_volatile)
        self._used_bytes = 0
        self._locked: set[str] = set()
        self._mutex = threads.RLock()

    def create(self, path: str, preallocate: int = 0) -> MemoryWritableFile:
        with self._mutex:
            self._change("create", path)
            parent, name = self._parent(path)
            if name in parent.entries:
                raise os_error(errno.EEXIST, path)
            self._take_space(preallocate, path)
            file = DurableFile(preallocate, is_volatile=self.is_volatile)
            parent.change((name, file))
            return MemoryWritableFile(self, path, file, preallocate)

    def open(self, path: str) -> MemoryReadableFile:
        with self._mutex:
            self._check_power()
            return MemoryReadableFile(self, self._file(path))

    def sync_file(self, path: str) -> None:
        with self._mutex:
            self._change("sync_file", path)
            self._file(path).sync()

    def rename(self, old: str, new: str) -> None:
        require_same_directory(old, new)
        with self._mutex:
            self._change("rename", f"{old} {new}")
            parent, name = self._parent(old)
            node, new_name = self._node(old), self._parent(new)[1]
            replaced = parent.entries.get(new_name)
            if isinstance(replaced, DurableDirectory):
                raise os_error(errno.EISDIR, new)
            if isinstance(node, DurableDirectory) and replaced is not None:
                raise os_error(errno.ENOTDIR, new)
            parent.change((name, None), (new_name, node))
            if replaced is not None and replaced is not node:
                self._forget_name(replaced)

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        if into not in (None, self):
            raise other_disk(new)
        with self._mutex:
            self._change("link", new)
            file = self._file(old)
            parent, name = self._parent(new)
            if name in parent.entries:
                raise os_error(errno.EEXIST, new)
            parent.change((name, file))
            file.names += 1

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        with self._mutex:
            self._check_power()
            return into in (None, self) and self._file(old) is self._file(new)

    def unlink(self, path: str) -> None:
        with self._mutex:
            self._change("unlink", path)
            file = self._file(path)
            parent, name = self._parent(path)
            parent.change((name, None))
            self._forget_name(file)

    def make_directory(self, path: str) -> None:
        with self._mutex:
            self._change("make_directory", path)
            directory = self._root
            for name in filter(None, clean_path(path).split("/")):
                if name not in directory.entries:
                    directory.change((name, DurableDirectory(self.is_volatile)))
                child = directory.entries[name]
                if not isinstance(child, DurableDirectory):
                    raise os_error(errno.EEXIST, path)
                directory = child

    def remove_directory(self, path: str) -> None:
        with self._mutex:
            self._change("remove_directory", path)
            if self._directory(path).entries:
                raise os_error(errno.ENOTEMPTY, path)
            parent, name = self._parent(path)
            parent.change((name, None))

    def sync_directory(self, path: str) -> None:
        with self._mutex:
            self._change("sync_directory", path)
            self._directory(path).sync()

    def list(self, path: str) -> list[str]:
        with self._mutex:
            self._check_power()
            return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        with self._mutex:
            self._check_power()
            try:
                self._node(path)
            except OSError:
                return False
            return True

    def size(self, path: str) -> int:
        with self._mutex:
            self._check_power()
            return self._file(path).size

    def lock(self, path: str) -> MemoryFileLock:
        with self._mutex:
            self._change("lock", path)
            parent, name = self._parent(path)
            if name not in parent.entries:
                parent.change((name, DurableFile(0, is_volatile=self.is_volatile)))
            if clean_path(path) in self._locked:
                raise UnavailableError(f"{path} is locked: another process has this store open")
            self._locked.add(clean_path(path))
            return MemoryFileLock(self, clean_path(path))

    def free_bytes(self, path: str) -> int:
        with self._mutex:
            self._check_power()
            return max(0, self.capacity_bytes - self._used_bytes)

    def total_bytes(self, path: str) -> int:
        with self._mutex:
            self._check_power()
            return self.capacity_bytes

    def crash_image(self, random: Random) -> MemoryFileSystem:
        """Return a fresh disk that holds one legal state after the power fails now; this one is left alone."""
        with self._mutex:
            image = MemoryFileSystem(self.capacity_bytes)
            image._root = self._root.crash_image(random)
            image._used_bytes = image._root.file_bytes()
            return image

    def _check_power(self) -> None:
        if self.crash_at is not None and self.operations >= self.crash_at:
            raise PowerFailure(f"the power failed at call {self.crash_at}")

    def _change(self, kind: str, path: str) -> None:
        self._check_power()
        self.operations += 1
        self._check_power()
        self.operation_log.append(f"{kind} {path}")

    def _take_space(self, size: int, path: str) -> None:
        if self._used_bytes + size > self.capacity_bytes:
            raise os_error(errno.ENOSPC, path)
        self._used_bytes += size

    def _forget_name(self, file: DurableFile) -> None:
        file.names -= 1
        if not file.names:
            self._used_bytes -= file.size

    def _node(self, path: str) -> DurableFile | DurableDirectory:
        node: DurableFile | DurableDirectory = self._root
        for name in filter(None, clean_path(path).split("/")):
            if not isinstance(node, DurableDirectory):
                raise os_error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise os_error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _file(self, path: str) -> DurableFile:
        node = self._node(path)
        if isinstance(node, DurableDirectory):
            raise os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DurableDirectory:
        node = self._node(path)
        if isinstance(node, DurableFile):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DurableDirectory, str]:
        path = clean_path(path)
        return self._directory(parent_of(path)), path.rpartition("/")[2]


class MemoryWritableFile:
    def __init__(self, disk: MemoryFileSystem, path: str, file: DurableFile, preallocated: int) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._needed = preallocated
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._file.content)

    def append(self, data: BytesLike) -> None:
        with self._disk._mutex:
            self._write("append", self.size, b"".join(views_of([data])))

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        with self._disk._mutex:
            self._write("pwrite", offset, b"".join(views_of(pieces)))

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def sync(self) -> None:
        with self._disk._mutex:
            self._open_for("sync")
            self._file.sync()

    def check(self) -> None:
        with self._disk._mutex:
            self._disk._check_power()
            if self._disk._file(self._path) is not self._file or self._file.size < self._needed:
                raise os_error(errno.ESTALE, self._path)

    def close(self) -> None:
        self._closed = True

    def _write(self, kind: str, offset: int, content: bytes) -> None:
        self._open_for(kind)
        self._disk._take_space(max(0, offset + len(content) - self._file.size), self._path)
        self._file.write(offset, content)
        self._needed = max(self._needed, offset + len(content))

    def _open_for(self, kind: str) -> None:
        if self._closed:
            raise os_error(errno.EBADF, self._path)
        self._disk._change(kind, self._path)


class MemoryReadableFile(CopyingFile):
    def __init__(self, disk: MemoryFileSystem, file: DurableFile) -> None:
        self._disk = disk
        self._file = file
        self._size = file.size
        self._closed = False

    def pread(self, offset: int, length: int) -> bytes:
        with self._disk._mutex:
            self._disk._check_power()
            if self._closed:
                raise os_error(errno.EBADF, "a closed file")
            return self._file.read(offset, length)

    def check(self) -> None:
        """Do nothing: nobody reaches this disk but through its calls."""

    def close(self) -> None:
        self._closed = True


class MemoryFileLock(FileLock):
    def __init__(self, disk: MemoryFileSystem, path: str) -> None:
        self._disk = disk
        self._path = path

    def close(self) -> None:
        with self._disk._mutex:
            self._disk._locked.discard(self._path)
