"""What the files of several file systems do alike; see `WritableFile` and `ReadableFile` for the meaning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .filesystem import BytesLike


class SizedFile(ABC):
    """A file that keeps its size."""

    _size: int

    @property
    def size(self) -> int:
        return self._size


class AppendingFile(SizedFile):
    """A new file that appends by a write at its end."""

    def append(self, data: BytesLike) -> None:
        self.pwrite(self._size, data)

    @abstractmethod
    def pwrite(self, offset: int, *pieces: BytesLike) -> None: ...


class FillingFile(SizedFile):
    """A file that reads into memory of the caller."""

    def pread(self, offset: int, length: int) -> bytes:
        content = bytearray(max(0, min(length, self._size - offset)))
        return bytes(memoryview(content)[: self.read_into(offset, content)]) if content else b""

    @abstractmethod
    def read_into(self, offset: int, buffer: BytesLike) -> int: ...


class CopyingFile(SizedFile):
    """A file that reads into new memory."""

    @abstractmethod
    def pread(self, offset: int, length: int) -> bytes: ...

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        view = memoryview(buffer).cast("B")  # pyright: ignore[reportArgumentType]
        content = self.pread(offset, view.nbytes)
        view[: len(content)] = content
        return len(content)

    def view(self) -> memoryview:
        return memoryview(self.pread(0, self._size))
