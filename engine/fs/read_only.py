"""A file system that only reads, beside another process that deletes and replaces files whenever it likes."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NoReturn

from ...schemas.errors import UnavailableError
from .failures import is_gone
from .filesystem import FileLock, FileSystem, ReadableFile, WritableFile, os_error
from .subdirectory import DirectoryFileSystem

if TYPE_CHECKING:
    from .filesystem import BytesLike


class ReadOnlyFileSystem(DirectoryFileSystem):
    """The files of another file system, which nothing here changes.

    An open file may lose its name: its bytes stay while it is open. One that cannot stay open (`LocalFileSystem`)
    raises UnavailableError when it is gone.
    """

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner, "")

    @property
    def root(self) -> str:
        """The name of the directory, for messages."""
        return getattr(self._inner, "root", "")

    def open(self, path: str) -> KeptFile:
        return KeptFile(super().open(path), path)

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        _refuse(path)

    def sync_file(self, path: str) -> None:
        _refuse(path)

    def rename(self, old: str, new: str) -> None:
        _refuse(new)

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        _refuse(new)

    def unlink(self, path: str) -> None:
        _refuse(path)

    def make_directory(self, path: str) -> None:
        _refuse(path)

    def remove_directory(self, path: str) -> None:
        _refuse(path)

    def sync_directory(self, path: str) -> None:
        _refuse(path)

    def lock(self, path: str) -> FileLock:
        _refuse(path)


class KeptFile:
    """An open file that another process may delete."""

    def __init__(self, inner: ReadableFile, path: str) -> None:
        self._inner = inner
        self._path = path

    @property
    def size(self) -> int:
        return self._inner.size

    def pread(self, offset: int, length: int) -> bytes:
        try:
            return self._inner.pread(offset, length)
        except OSError as error:
            raise self._replaced(error) from error

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        try:
            return self._inner.read_into(offset, buffer)
        except OSError as error:
            raise self._replaced(error) from error

    def view(self) -> memoryview:
        try:
            return self._inner.view()
        except OSError as error:
            raise self._replaced(error) from error

    def check(self) -> None:
        """Its name may be gone."""

    def close(self) -> None:
        self._inner.close()

    def _replaced(self, error: OSError) -> Exception:
        if not is_gone(error):
            return error
        return UnavailableError(
            f"the process that has the store has replaced {self._path}, and this process may keep no more files open: "
            "repeat the read, or allow more open files (ulimit -n)"
        )


def _refuse(path: str) -> NoReturn:
    raise os_error(errno.EROFS, path)
