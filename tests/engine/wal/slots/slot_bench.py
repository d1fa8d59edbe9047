"""Logs over the same slots, whose time a test owns, and which are checked as a whole in the end."""

from itertools import chain
from random import Random
from typing import Any
from uuid import UUID

from nyala.engine.wal.slots import SlotLog, SlotOptions, SlotStore, check_slots
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from tests.doubles.clock import ManualClock
from tests.doubles.slots import BootClock, MemorySlots

QUIET = SlotOptions(ttl_seconds=5.0, beat_seconds=1e6, patience_seconds=5.0)
"""Without beats: time stands still in most tests."""


class SlotBench:
    """Opens logs over the same slots, and closes what a test leaves open."""

    def __init__(self, seed: int = 7) -> None:
        self.slots: Any = MemorySlots()
        self.boot = BootClock()
        self.clock = ManualClock()
        self.random = Random(seed)
        self.logs: list[SlotLog] = []

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128))

    def unread(self, options: SlotOptions = QUIET, way: SlotStore | None = None, **other: Any) -> SlotLog:
        """Return a log that is not replayed."""
        values = {"boot": self.boot, "pause": self.boot.wait, **other}
        log = SlotLog.open(way or self.slots, self.clock, self.uuid, options, **values)
        self.logs.append(log)
        if isinstance(self.slots, MemorySlots):
            log.note_chunks(list(self.slots.chunks))
        return log

    def open(
        self, options: SlotOptions = QUIET, way: SlotStore | None = None, **other: Any
    ) -> tuple[SlotLog, list[bytes]]:
        """Return a log and the payloads in it."""
        log = self.unread(options, way, **other)
        return log, [bytes(record.payload) for record in chain.from_iterable(log.replay())]

    def kinds(self) -> list[SlotKind]:
        return [decode_slot(number, self.slots.content[number]).header.kind for number in sorted(self.slots.content)]

    def close(self) -> None:
        for log in self.logs:
            log.close()
        assert check_slots(self.slots).problems == []


def appended(log: SlotLog, payload: bytes) -> int:
    return log.writer.append([[payload]], lambda count: [log.clock.now() for _ in range(count)])


def put(log: SlotLog, *payloads: bytes) -> int:
    """Append records and wait for each; return the last lsn."""
    lsn = 0
    for payload in payloads:
        lsn = appended(log, payload)
        log.wait(lsn)
    return lsn
