"""The memory gate: writers wait for room, are let in by a flush, and are told to come again when none comes."""

import threading
import time
from types import SimpleNamespace

import pytest

from nyala.engine import memory_gate as module
from nyala.engine.memory_gate import MemoryGate
from nyala.schemas.errors import UnavailableError
from nyala.schemas.write import WriteCommand
from tests.engine.subject import Subject, batch

MIB = 1 << 20


class Tablets:
    """Tablets of which only the size counts."""

    def __init__(self, *sizes: int) -> None:
        self.parts = [SimpleNamespace(memory_bytes=size) for size in sizes]
        self.asked = 0
        self.will_be_flushed = True

    def gate(self, limit: int, seconds: float = 20) -> MemoryGate:
        return MemoryGate(limit, seconds, lambda: self.parts, self.flush)  # pyright: ignore[reportArgumentType]

    def flush(self) -> bool:
        self.asked += 1
        return self.will_be_flushed


def test_below_the_limit_nobody_waits_and_no_flush_is_asked_for() -> None:
    tablets = Tablets(3 * MIB, 4 * MIB)
    gate = tablets.gate(8 * MIB)
    for _ in range(20):
        gate.admit(MIB)
    assert tablets.asked == 0 and not gate.is_pressed()


def test_memory_is_counted_once_for_so_many_bytes_written() -> None:
    tablets = Tablets(100 * MIB)
    gate = tablets.gate(64 * MIB, seconds=0)
    for _ in range(3):
        gate.admit(MIB)
    with pytest.raises(UnavailableError):
        gate.admit(MIB)
    with pytest.raises(UnavailableError):
        gate.admit(1)  # still over: looked at every time


def test_a_writer_waits_until_a_flush_has_made_room() -> None:
    tablets = Tablets(100 * MIB)
    gate = tablets.gate(64 * MIB)
    writer = threading.Thread(target=gate.admit, args=(8 * MIB,))
    writer.start()
    while not gate.is_pressed():
        time.sleep(0.001)
    gate.freed()  # a flush that was too small
    assert gate.is_pressed() and writer.is_alive()
    tablets.parts[0].memory_bytes = 0
    gate.freed()
    writer.join(20)
    assert not writer.is_alive() and not gate.is_pressed()
    assert tablets.asked == 1


def test_a_writer_is_told_to_come_again_when_nobody_will_flush() -> None:
    tablets = Tablets(100 * MIB)
    tablets.will_be_flushed = False
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"67,108,864 bytes.*maintain\('flush'\)"):
        tablets.gate(64 * MIB).admit(8 * MIB)
    assert time.monotonic() - started < 10


def test_a_writer_is_told_to_come_again_when_no_room_comes_in_time() -> None:
    gate = Tablets(100 * MIB).gate(64 * MIB, seconds=0.01)
    with pytest.raises(UnavailableError, match="not flushed fast enough"):
        gate.admit(8 * MIB)
    assert not gate.is_pressed()


def test_one_tablet_may_not_grow_beyond_what_a_column_can_hold() -> None:
    gate = Tablets(module.TABLET_BYTES_MAX + 1).gate(1 << 40, seconds=0.01)
    with pytest.raises(UnavailableError):
        gate.admit(8 * MIB)


def test_a_store_under_pressure_flushes_rows_and_deltas_and_goes_on() -> None:
    subject = Subject(maintenance="on", memory_bytes=MIB, flush_bytes=1 << 30, flush_deltas_bytes=1 << 30)
    for number in range(40):
        subject.upsert(*range(number % 4 * 500, number % 4 * 500 + 500), v=number, s="x" * 100)
    performed = subject.store._maintenance.performed
    assert any(name.startswith("flush tablet") for name in performed)
    assert any(name.startswith("flush deltas") for name in performed)
    subject.check()
    subject.close()


def test_without_maintenance_a_full_store_refuses_writes_until_it_is_flushed() -> None:
    subject = Subject(memory_bytes=MIB)
    rows = batch([(key, 1, "x" * 100) for key in range(2000)])
    with pytest.raises(UnavailableError, match="memory stores hold more than 1,048,576 bytes"):
        for _ in range(50):
            subject.store.write(WriteCommand(table="t"), rows)
    subject.flush()
    subject.flush_deltas()
    assert subject.store.write(WriteCommand(table="t"), rows).applied == 2000
    subject.store.close()
