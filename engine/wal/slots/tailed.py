"""Slots that stay in memory once they were read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....schemas.errors import CorruptionError
from ... import threads
from .slot import Slot, decode_slot, has_chunks
from .slot_store import SlotStore

_SLOT = ""
"""Stands for the slot itself where its chunks have their names."""


class TailedSlots:
    """Slots of a log that is followed, of which those that were read stay in memory until they are forgotten, with
    their chunks: a slot has one content, unless the bucket is put back to an earlier state. The one at the end is read
    anew after each look where the end is. See ``SlotStore``."""

    def __init__(self, slots: SlotStore, bytes_max: int) -> None:
        self._slots = slots
        self._bytes_max = bytes_max
        self._kept: dict[tuple[int, str], bytes] = {}
        """By the numbers of slots, and the names of chunks."""
        self._kept_bytes = 0
        self._lacking: dict[int, tuple[Slot, int]] = {}
        """Slots in memory, by their numbers, and from which of their chunks on ``fetch_chunk`` has to look."""
        self.is_full = False
        """Whether something was read that could not be kept, and none was forgotten since."""
        self._mutex = threads.Lock()

    def create(self, number: int, content: bytes) -> bool:
        return self._slots.create(number, content)

    def read(self, number: int, is_patient: bool = True) -> bytes | None:
        content = self._kept.get((number, _SLOT))
        if content is None:
            content = self._slots.read(number, is_patient)
            if content is not None:
                self._keep((number, _SLOT), content)
        return content

    def numbers(self) -> list[int]:
        return self._slots.numbers()

    def end(self, after: int = 0) -> int:
        end = self._slots.end(after)
        self._forget(lambda number, name: number >= end and name == _SLOT)  # a chunk's name means no other one
        return end

    def delete(self, numbers: Iterable[int]) -> None:
        self._slots.delete(numbers)

    def put_chunk(self, name: str, content: bytes) -> None:
        self._slots.put_chunk(name, content)

    def read_chunk(self, slot: Slot, index: int) -> bytes | None:
        key = slot.header.number, slot.chunk_name(index)
        content = self._kept.get(key)
        if content is None:
            content = self._slots.read_chunk(slot, index)
            if content is not None:
                self._keep(key, content)
        return content

    def delete_chunks(self, names: Iterable[str]) -> None:
        self._slots.delete_chunks(names)

    def has(self, number: int) -> bool:
        """Whether a slot is in memory."""
        return (number, _SLOT) in self._kept

    def fetch_chunk(self) -> None:
        """Read one chunk of the slots in memory that is not there, too. Raises UnavailableError."""
        found = next(iter(self._lacking.values()), None)
        if found is None or self.is_full:
            return
        slot, index = found
        self.read_chunk(slot, index)
        with self._mutex:
            if index + 1 == len(slot.chunks):
                self._lacking.pop(slot.header.number, None)
            elif slot.header.number in self._lacking:
                self._lacking[slot.header.number] = slot, index + 1

    def forget_before(self, number: int) -> None:
        """Keep no slots before one."""
        self._forget(lambda each, _: each < number)

    def goes_on(self, before: Slot, now: Slot) -> bool:
        """Whether one slot comes after another in the same log. Raises UnavailableError and CorruptionError."""
        number, later = before.header.number, now.header
        if later.number <= number + 1:
            return later.number == number + 1 and later.previous_crc == before.crc
        content = self._slots.read(number) if later.needed_slot <= number else None
        return content is None or decode_slot(number, content).crc == before.crc

    def keep_nothing(self) -> None:
        """Forget all, and keep nothing from now on."""
        with self._mutex:
            self._kept.clear()
            self._lacking.clear()
            self._kept_bytes = self._bytes_max = 0

    def _forget(self, is_one: Callable[[int, str], bool]) -> None:
        with self._mutex:
            for number, name in [key for key in self._kept if is_one(*key)]:
                self._kept_bytes -= len(self._kept.pop((number, name)))
                self.is_full = False
                if name == _SLOT:
                    self._lacking.pop(number, None)

    def _keep(self, key: tuple[int, str], content: bytes) -> None:
        with self._mutex:
            if key in self._kept:
                return
            if self._kept_bytes + len(content) > self._bytes_max:
                self.is_full = True
                return
            self._kept[key] = content
            self._kept_bytes += len(content)
            number, name = key
            if name == _SLOT and has_chunks(content):
                try:
                    self._lacking[number] = decode_slot(number, content), 0
                except CorruptionError:
                    return  # whoever reads it gets the error
