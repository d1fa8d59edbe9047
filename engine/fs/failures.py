"""Translates failed disk calls into errors of the store."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ...schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    StorageFullError,
    StoreError,
    UnavailableError,
    UnreadableFileError,
)

_GONE = frozenset({errno.ENOENT, errno.ESTALE})
"""The errors of ``ReadableFile.check`` for a file that is gone or was replaced."""


def is_gone(error: OSError) -> bool:
    """Whether a call of the disk failed because a file is gone, or another one has its name."""
    return error.errno in _GONE


def is_full(error: OSError) -> bool:
    """Whether a call of the disk failed for lack of space, which may become free, and not because the disk is
    broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_of_the_file(error: OSError) -> bool:
    """Whether the cause of a failed call of the disk is this file, and not a lack of memory, file descriptors or space,
    which would affect others too."""
    return error.errno not in _OF_THE_PROCESS and not is_full(error)


_OF_THE_PROCESS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
_OF_THE_PLACE = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM})
"""The errors of a path that cannot be made or opened there, on a disk that works."""


@contextmanager
def named(what: str) -> Iterator[None]:
    """Turn a failed call of the disk, an OSError of the body, into a StoreError that says ``what`` could not be done.

    Raises:
        InvalidArgumentError: a file is where a directory should be.
        StorageFullError: the disk is full.
        UnavailableError: the disk failed, or a bucket does not answer.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise InvalidArgumentError(
                f"{what}: there is a file where a directory should be; choose another path"
            ) from error
        if is_full(error):
            raise StorageFullError(f"the disk is full: {what}") from error
        why = error.strerror or str(error)
        if error.errno in _OF_THE_PLACE:
            why += "; check the path and its permissions"
        elif error.errno != errno.EAGAIN:  # a bucket that does not answer says so itself
            why = f"the disk failed ({why})"
        raise UnavailableError(f"{what}: {why}") from error


class reading:
    """Turn an OSError of the body, which reads an open file of the store, into a StoreError that names it. (A generator
    would cost three times as much.)

    Raises:
        CorruptionError: the file is gone, or another has its name.
        UnreadableFileError: the disk does not return its bytes.
        UnavailableError: the cause is not the file, such as a lack of file descriptors.
    """

    __slots__ = ("_offset", "_path")

    def __init__(self, path: str, offset: int = 0) -> None:
        self._path, self._offset = path, offset

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise _unread(self._path, self._offset, error) from error


def _unread(path: str, offset: int, error: OSError) -> StoreError:
    why = error.strerror or str(error)
    if not is_of_the_file(error):
        return UnavailableError(f"{path} cannot be read: {why}")
    if is_gone(error):
        return CorruptionError(path, offset, f"the file was replaced, removed or truncated after it was opened: {why}")
    return UnreadableFileError(path, f"{why}, at byte {offset}")
