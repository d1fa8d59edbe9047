"""A slow line to an object store, in a time that passes only while bytes are on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from nyala.engine.bucket.objects import Objects, pieces_of, size_of
from nyala.engine.fs.filesystem import views_of
from nyala.engine.wal.slots.slot import Slot
from tests.doubles.slots import BootClock, MemorySlots

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike, ReadableFile

_PACKET_BYTES = 8 << 10


class SlowLine:
    """Carries ``bytes_per_second`` for all that send together, packet by packet.

    The time of ``boot`` passes with each packet. Before the next one ``tick`` is called, so that others can do what is
    due by then.
    """

    def __init__(self, boot: BootClock, bytes_per_second: float) -> None:
        self.boot = boot
        self.bytes_per_second = bytes_per_second
        self.tick: Callable[[], None] = lambda: None
        self._turn = threading.Lock()

    def carry(self, size: int) -> None:
        for start in range(0, size, _PACKET_BYTES):
            if start:
                self.tick()
            with self._turn:
                self.boot.wait(min(_PACKET_BYTES, size - start) / self.bytes_per_second)


class SlowSlots:
    """The way of one process to ``inner`` over a ``line``."""

    def __init__(self, inner: MemorySlots, line: SlowLine) -> None:
        self.inner = inner
        self.line = line

    def create(self, number: int, content: bytes) -> bool:
        self.line.carry(len(content))
        return self.inner.create(number, content)

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        return self.inner.read(number, is_patient)

    def numbers(self) -> list[int]:
        return self.inner.numbers()

    def end(self, after: int = 0) -> int:
        return self.inner.end(after)

    def delete(self, numbers: Iterable[int]) -> None:
        self.inner.delete(numbers)

    def put_chunk(self, name: str, content: bytes) -> None:
        self.line.carry(len(content))
        self.inner.put_chunk(name, content)

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        return self.inner.read_chunk(slot, index)

    def delete_chunks(self, names: Iterable[str]) -> None:
        self.inner.delete_chunks(names)


class SlowObjects:
    """The way of one machine to ``inner`` over a ``line``: what it puts takes its time, what it reads does not."""

    def __init__(self, inner: Objects, line: SlowLine) -> None:
        self.inner = inner
        self.line = line

    def within(self, seconds: float) -> SlowObjects:
        return self

    def put_if_absent(self, name: str, content: bytes) -> None:
        self.line.carry(len(content))
        self.inner.put_if_absent(name, content)

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        whole = b"".join(views_of(pieces_of(content)))
        self.line.carry(size_of(whole))
        self.inner.put(name, whole)

    def get(self, name: str) -> bytes:
        return self.inner.get(name)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self.inner.get_ranges(name, ranges)

    def size(self, name: str) -> int:
        return self.inner.size(name)

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        return self.inner.list(prefix, after)

    def delete(self, names: Sequence[str]) -> None:
        self.inner.delete(names)

    def copy(self, source: str, target: str) -> None:
        self.inner.copy(source, target)
