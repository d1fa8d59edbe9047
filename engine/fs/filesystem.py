"""The only way the engine touches a disk.

Three things may be trusted, and nothing else:

* the content of a file is durable once ``sync`` has returned;
* a name (created, renamed, unlinked) is durable once ``sync_directory`` of its directory has returned,
  and names of one directory become durable in the order in which they were changed;
* a write alters no byte outside its range, and a rename is atomic.

Any call may raise OSError.  After a failed ``sync`` the file must never be written or synced again: the kernel
may have dropped what it could not write, so that a retry which "succeeds" lies.

Paths are relative POSIX strings under the root of the FileSystem; ``""`` is the root itself.  Every
implementation may be used by many threads at once; one file is written by one thread at a time.
"""

from __future__ import annotations

import errno
import posixpath
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    # Until Python 3.12 type checkers do not know that an array offers its bytes.
    BytesLike = Buffer | np.ndarray[Any, Any]


class WritableFile(Protocol):
    """A new file on a disk. It is written by its creator only, and immutable once closed."""

    @property
    def size(self) -> int:
        """Where the next ``append`` goes: one past the last byte written, whatever was preallocated."""
        ...

    def append(self, data: BytesLike) -> None:
        """Write all of ``data`` at ``size``."""
        ...

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        """Write all the pieces, one after the other without a gap, from ``offset`` on. That is ``size``, unless the
        file was preallocated: some file systems write others in order only."""
        ...

    def flush(self) -> None:
        """Hand over to the operating system what was kept back; whoever opens the file then finds all of it. Nothing
        may be appended afterwards, but to a preallocated file. ``sync`` and ``close`` do it too."""
        ...

    def sync(self) -> None:
        """Make the content durable.  It says nothing about the file's name."""
        ...

    def check(self) -> None:
        """Raise OSError unless the file still has the name that it was created with, and all of its bytes: those that
        were preallocated, or written. What else is in them is not looked at. It costs a microsecond or two.

        Somebody else may have deleted, replaced or cut the file. Writes and syncs go on succeeding then, for nobody.
        """
        ...

    def close(self) -> None:
        """Forget the file; syncs nothing.  Closing twice is allowed."""
        ...


class ReadableFile(Protocol):
    """A file on a disk as it was when it was opened, or longer."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened, the preallocated ones included."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only where the file ends."""
        ...

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        """Fill ``buffer`` (contiguous, writable) with what stands from ``offset`` on; return how many bytes came: fewer
        than it holds only where the file ends. Any number of threads may read at once."""
        ...

    def view(self) -> memoryview:
        """Return the whole file, read into memory of its own; shorter than ``size`` where it was cut since."""
        ...

    def check(self) -> None:
        """See that the file still has its name and its length, whoever else may reach the disk.

        What this FileSystem has unlinked or replaced itself is missed by nobody. Raises OSError: ENOENT when the name
        is gone, ESTALE when another file has it or the file was cut.
        """
        ...

    def close(self) -> None:
        """Forget the file. One that is not closed is forgotten with its last reference."""
        ...


class FileLock(AbstractContextManager["FileLock"]):
    """A lock on a file that is held until ``close``, the end of a ``with`` block, or the end of the process."""

    @abstractmethod
    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.close()


class FileSystem(Protocol):
    """A disk as the engine sees it: files in directories. See the module's text for what is promised."""

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        """Create a file; FileExistsError if the name is taken.

        With ``preallocate`` the file has that many zero bytes, durably, and writes inside them cannot fail for
        want of space.  Where the disk lacks them: OSError with ENOSPC, and no file.
        """
        ...

    def open(self, path: str) -> ReadableFile: ...

    def sync_file(self, path: str) -> None:
        """Make the content of a closed file durable: what a dead process wrote may still be in memory only."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in the SAME directory, replacing what bore it; OSError EXDEV for another one. So too
        a directory, but its new name must be free."""
        ...

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        """Give a file that will not be written any more a second name, in any directory, also one of the file system
        ``into``; FileExistsError if it is taken. The content stays as long as it has a name, whichever. OSError where
        the disk cannot do that: EXDEV between two disks."""
        ...

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        """Return whether two existing names, the second in ``into``, are of one file. OSError if one is missing."""
        ...

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and those above it that are missing; nothing happens if it is there."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; OSError ENOTEMPTY otherwise."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make every name in the directory durable; not the content of the files."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names of the files and directories directly in ``path``."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Return the bytes in a file, the preallocated ones included."""
        ...

    def lock(self, path: str) -> FileLock:
        """Lock a file, which is created if missing and stays; UnavailableError when somebody holds it."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the disk."""
        ...


def views_of(pieces: Iterable[BytesLike]) -> list[memoryview]:
    """Return each piece to write to a file that is not empty as a view of single bytes; pieces must be contiguous."""
    untyped: Iterable[Any] = pieces
    return [view.cast("B") for view in map(memoryview, untyped) if view.nbytes]


def clean_path(path: str) -> str:
    """Return the ``path`` of a file in its one spelling; ValueError if it is absolute, climbs out of the root or holds
    a NUL."""
    cleaned = posixpath.normpath(path) if path else ""
    if posixpath.isabs(cleaned) or cleaned.split("/")[0] == ".." or "\0" in path:
        raise ValueError(f"{path!r} is not a path under the root of the file system")
    return "" if cleaned == "." else cleaned


def parent_of(path: str) -> str:
    return posixpath.dirname(path)


def join(directory: str, name: str) -> str:
    return posixpath.join(directory, name)


def os_error(number: int, path: str) -> OSError:
    """Return the OSError of a disk by its number, such as ENOENT."""
    return OSError(number, errno.errorcode[number], path)


def other_disk(path: str) -> OSError:
    """Return the OSError of a link to a file system of another kind."""
    return OSError(errno.EXDEV, "a link stays on one disk", path)


def require_same_directory(old: str, new: str) -> None:
    if parent_of(clean_path(old)) != parent_of(clean_path(new)):
        raise OSError(errno.EXDEV, "a rename stays in one directory", new)
