"""Syncs many files at once. A disk serves eight callers of ``fsync`` hardly slower than one, as one commit of the file
system's journal serves all of them. One after the other, each file takes its own commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self

from .. import threads
from .filesystem import FileSystem, WritableFile
from .subdirectory import DirectoryFileSystem

if TYPE_CHECKING:
    from .filesystem import BytesLike

_THREADS = 8
_OPEN_FILES_MAX = 64
"""The most files waiting for their sync: each holds a file descriptor."""


class SyncTogether(DirectoryFileSystem):
    """A file system whose new files are synced in the background, while the next ones are written.

    ``sync`` of a file takes effect when ``sync_directories`` returns or raises: nothing may refer to the file before.
    A context manager; at its end nothing runs any more. One thread at a time.
    """

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs, "")
        self._pool = threads.ThreadPoolExecutor(_THREADS, "nyala-sync")
        self._room = threads.BoundedSemaphore(_OPEN_FILES_MAX)
        self._pending: list[Future[None]] = []

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        return _LateFile(self, super().create(path, preallocate))

    def sync_directories(self, paths: Iterable[str]) -> None:
        """Make all closed files durable, then the names in directories. Raises OSError."""
        pending, self._pending = self._pending, []
        _settle(pending)
        _settle([self._pool.submit(self.sync_directory, path) for path in paths])

    def finish(self, file: WritableFile) -> None:
        """Sync and close a file in the background."""
        self._room.acquire()
        self._pending.append(self._pool.submit(self._finish, file))

    def _finish(self, file: WritableFile) -> None:
        try:
            file.sync()
        finally:
            file.close()
            self._room.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)


class _LateFile:
    """A new file that is synced after it is closed."""

    def __init__(self, together: SyncTogether, inner: WritableFile) -> None:
        self._together = together
        self._inner = inner
        self._is_open, self._is_to_sync = True, False

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, data: BytesLike) -> None:
        self._inner.append(data)

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        self._inner.pwrite(offset, *pieces)

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        self._inner.flush()  # the file may be opened before it is synced
        self._is_to_sync = True

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._is_to_sync:
            self._together.finish(self._inner)
        else:
            self._inner.close()


def sync_directories(fs: FileSystem, paths: Iterable[str]) -> None:
    """Make the names in directories durable, and before them the new files, if these are synced together."""
    if isinstance(fs, SyncTogether):
        fs.sync_directories(paths)
        return
    for path in paths:
        fs.sync_directory(path)


def _settle(calls: list[Future[None]]) -> None:
    """Wait until all calls have ended. Raises the error of the first that failed."""
    threads.wait(calls)
    for call in calls:
        call.result()
