"""Files far away, which are read over a network and kept in part on a local disk.

What is said here is advice: a caller that knows which bytes it will read next, or that those it got are wrong, says so.
Files on a disk of this machine are none of these, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from ...schemas.errors import CorruptionError

if TYPE_CHECKING:
    from .filesystem import BytesLike, ReadableFile

Found = TypeVar("Found")


@runtime_checkable
class FarFile(Protocol):
    """A ReadableFile that is far away."""

    @property
    def size(self) -> int:
        """Bytes in it."""
        ...

    def read_unchecked(self, offset: int, buffer: BytesLike) -> int:
        """Read as ``read_into`` does, for a caller that has a checksum of these bytes: those that are kept here are not
        compared with theirs."""
        ...

    def forget(self, offset: int, length: int) -> None:
        """Do not use what is kept here of these bytes: they are not what was written. Later reads fetch them again."""
        ...

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch these ranges, each (offset, length), of which some may be here already. Returns at once, and
        raises nothing: whoever reads them waits, and gets the error."""
        ...


@runtime_checkable
class FarFileSystem(Protocol):
    """A FileSystem whose files are far away."""

    def fetch_ends(self, paths: Iterable[str], head_bytes: int, tail_bytes: int) -> None:
        """Begin to fetch the first and the last bytes of files, which opening them reads. Returns at once, and
        raises nothing."""
        ...


def fetched_again(file: ReadableFile, read: Callable[[], Found]) -> Found:
    """Return what ``read`` makes of bytes of a file. If it raises CorruptionError, it reads once more what a far file
    fetches again: its bytes may have changed on their way, and those that came are kept."""
    try:
        return read()
    except CorruptionError:
        if not isinstance(file, FarFile):
            raise
        file.forget(0, file.size)
        return read()
