"""An object store as a network shows it: each call is one attempt.

What a call raises is no more than a hint, but for FileNotFoundError, which is an answer: there is no such object.
FileExistsError says that the store refused to create, and nothing about whose bytes are there; PermissionError that it
refused the credentials. After any OSError of a call that changes something, the change may have happened, or may happen
later. Names and prefixes are valid, as ``PatientBucket`` has checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike, ReadableFile

_PIECE_BYTES = 8 << 20


class Objects(Protocol):
    """An object store as a network shows it: one attempt of each verb of ``Bucket``."""

    def within(self, seconds: float) -> Objects:
        """Return the same objects for who repeats a request that takes longer than so many seconds, and what its bytes
        take."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> None:
        """Put an object; FileExistsError if the store says that the name is taken, or that somebody is taking it."""
        ...

    def put(self, name: str, content: BytesLike | ReadableFile) -> None: ...

    def get(self, name: str) -> bytes: ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range; fewer where the object ends."""
        ...

    def size(self, name: str) -> int: ...

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        """Return (name, size) of all objects under ``prefix`` with names greater than ``after``, in any order."""
        ...

    def delete(self, names: Sequence[str]) -> None: ...

    def copy(self, source: str, target: str) -> None: ...


def pieces_of(content: BytesLike | ReadableFile) -> Iterator[BytesLike]:
    """Yield the content of an object to put: a file in pieces of 8 MiB, other content as one piece."""
    if not hasattr(content, "pread"):
        yield content  # pyright: ignore[reportReturnType]
        return
    file: ReadableFile = content  # pyright: ignore[reportAssignmentType]
    for offset in range(0, file.size, _PIECE_BYTES):
        yield file.pread(offset, _PIECE_BYTES)


def size_of(content: BytesLike | ReadableFile) -> int:
    """Return how many bytes ``pieces_of`` will yield of the content of an object."""
    if not hasattr(content, "pread"):
        return memoryview(content).nbytes  # pyright: ignore[reportArgumentType]
    file: ReadableFile = content  # pyright: ignore[reportAssignmentType]
    return file.size
