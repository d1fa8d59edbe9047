"""A bucket in memory, for tests and for stores that need not last."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import threads
from ..fs.filesystem import ReadableFile, views_of
from .objects import pieces_of
from .patient import Patience, PatientBucket

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike


class MemoryObjects:
    """The objects of a bucket in memory, in a dictionary. No call fails without a reason."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._mutex = threads.Lock()

    def __repr__(self) -> str:
        return "memory"

    def within(self, seconds: float) -> MemoryObjects:
        return self

    def put_if_absent(self, name: str, content: bytes) -> None:
        with self._mutex:
            if name in self._contents:
                raise FileExistsError(errno.EEXIST, "the object exists", name)
            self._contents[name] = bytes(content)

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        whole = b"".join(views_of(pieces_of(content)))
        with self._mutex:
            self._contents[name] = whole

    def get(self, name: str) -> bytes:
        with self._mutex:
            try:
                return self._contents[name]
            except KeyError:
                raise FileNotFoundError(errno.ENOENT, "no such object", name) from None

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        whole = self.get(name)
        return [whole[offset : offset + length] for offset, length in ranges]

    def size(self, name: str) -> int:
        return len(self.get(name))

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        with self._mutex:
            found = self._contents.items()
            return [(name, len(content)) for name, content in found if name.startswith(prefix) and name > after]

    def delete(self, names: Sequence[str]) -> None:
        with self._mutex:
            for name in names:
                self._contents.pop(name, None)

    def copy(self, source: str, target: str) -> None:
        self.put(target, self.get(source))


class MemoryBucket(PatientBucket):
    """A bucket in memory; two of them share their objects if they are given the same ones."""

    def __init__(self, objects: MemoryObjects | None = None, patience: Patience | None = None) -> None:
        super().__init__(objects or MemoryObjects(), patience)
