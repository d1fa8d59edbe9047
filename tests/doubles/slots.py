"""Slots in memory, with faults of the way to them."""

import errno
import threading
from collections.abc import Callable, Iterable

from nyala.engine.wal.slots.slot import Slot
from nyala.schemas.errors import UnavailableError


class MemorySlots:
    """Slots as they should be. ``calls`` has every call, in order, with its numbers."""

    def __init__(self) -> None:
        self.content: dict[int, bytes] = {}
        self.chunks: dict[str, bytes] = {}
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self._mutex = threading.Lock()

    def create(self, number: int, content: bytes) -> bool:
        with self._mutex:
            self.calls.append(("create", (number,)))
            return self.content.setdefault(number, content) == content

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        with self._mutex:
            self.calls.append(("read", (number,)))
            return self.content.get(number)

    def numbers(self) -> list[int]:
        with self._mutex:
            self.calls.append(("numbers", ()))
            return sorted(self.content)

    def end(self, after: int = 0) -> int:
        with self._mutex:
            self.calls.append(("end", ()))
            return max((number for number in self.content if number > after), default=0)

    def delete(self, numbers: Iterable[int]) -> None:
        numbers = tuple(numbers)
        with self._mutex:
            self.calls.append(("delete", numbers))
            for number in numbers:
                self.content.pop(number, None)

    def put_chunk(self, name: str, content: bytes) -> None:
        with self._mutex:
            self.calls.append(("put_chunk", ()))
            assert self.chunks.setdefault(name, content) == content, "a name is used once"

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        with self._mutex:
            self.calls.append(("read_chunk", (slot.header.number, index)))
            return self.chunks.get(slot.chunk_name(index))

    def delete_chunks(self, names: Iterable[str]) -> None:
        with self._mutex:
            self.calls.append(("delete_chunks", ()))
            for name in names:
                self.chunks.pop(name, None)


class FaultySlots:
    """The way of one process to slots. ``fault(call, number_of_the_call)`` says whether a call fails "before" its
    effect, "after" it, "late" (it has its effect when ``deliver`` is called), or not at all: None. The process dies
    "before" its effect ("dead") or after it ("dying"), and no call has an effect from then on.
    """

    def __init__(self, inner: MemorySlots, fault: Callable[[str, int], str | None] = lambda call, number: None) -> None:
        self.inner = inner
        self.fault = fault
        self.count = 0
        self.is_dead = False
        self.late: list[tuple[int, bytes]] = []
        self.late_chunks: list[tuple[str, bytes]] = []
        self._mutex = threading.Lock()

    def create(self, number: int, content: bytes) -> bool:
        with self._failing("create") as fault:
            if fault == "late":
                self.late.append((number, content))
                raise UnavailableError("no answer, and it is on its way")
            return self.inner.create(number, content)

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        with self._failing("read"):
            return self.inner.read(number, is_patient)

    def numbers(self) -> list[int]:
        with self._failing("numbers"):
            return self.inner.numbers()

    def end(self, after: int = 0) -> int:
        with self._failing("end"):
            return self.inner.end(after)

    def delete(self, numbers: Iterable[int]) -> None:
        with self._failing("delete"):
            self.inner.delete(numbers)

    def put_chunk(self, name: str, content: bytes) -> None:
        with self._failing("put_chunk") as fault:
            if fault == "late":
                self.late_chunks.append((name, content))
                raise UnavailableError("no answer, and it is on its way")
            self.inner.put_chunk(name, content)

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        with self._failing("read_chunk"):
            return self.inner.read_chunk(slot, index)

    def delete_chunks(self, names: Iterable[str]) -> None:
        with self._failing("delete_chunks"):
            self.inner.delete_chunks(names)

    def deliver(self) -> None:
        """Let what is on its way arrive."""
        for number, content in self.late:
            self.inner.create(number, content)
        for name, chunk in self.late_chunks:
            self.inner.put_chunk(name, chunk)
        self.late, self.late_chunks = [], []

    def _failing(self, call: str) -> "_Failing":
        with self._mutex:
            self.count += 1
            return _Failing(self, self.fault(call, self.count))


class _Failing:
    def __init__(self, slots: FaultySlots, fault: str | None) -> None:
        self._slots = slots
        self._fault = fault

    def __enter__(self) -> str | None:
        if self._slots.is_dead or self._fault == "dead":
            self._slots.is_dead = True
            raise OSError(errno.EIO, "the process is dead")
        if self._fault == "before":
            raise UnavailableError("no answer")
        return self._fault

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._fault == "after":
            raise UnavailableError("the answer was lost")
        if kind is None and self._fault == "dying":
            self._slots.is_dead = True
            raise OSError(errno.EIO, "the process is dead")


class BootClock:
    """Seconds that pass only while somebody waits, or when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
