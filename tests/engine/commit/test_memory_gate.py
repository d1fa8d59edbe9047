"""The memory gate: writers are slowed down before memory is full, and told when to come again when it is."""

import pickle
import threading
import time
from dataclasses import dataclass, field

import pytest

from nyala.engine.commit import memory_gate as module
from nyala.engine.commit.memory_gate import MemoryGate, patiently
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.description import MemoryStats
from nyala.schemas.table.table import TableDefinition
from tests.engine.subject import SCHEMA, Subject, batch

MIB = 1 << 20


@dataclass
class Part:
    memory_bytes: int
    flushing_bytes: int = 0
    flush_failures: dict[str, str] = field(default_factory=dict)
    tablet_id: int = 7

    @property
    def unflushed_bytes(self) -> int:
        return self.memory_bytes


class Tablets:
    """Tablets of which only the size counts; half of the hard limit is the soft one."""

    def __init__(self, *sizes: int) -> None:
        self.parts = [Part(size) for size in sizes]
        self.asked = 0
        self.will_be_flushed = True

    def gate(self, hard: int, seconds: float = 20) -> MemoryGate:
        options = StoreOptions(
            maintenance="on" if self.will_be_flushed else "off",
            memory_bytes=hard,
            memory_soft_share=0.5,
            memory_throttle_seconds=seconds,
        )
        return MemoryGate(options, MemoryFileSystem(), lambda: self.parts, self.maintained, self.flush)  # pyright: ignore[reportArgumentType]

    def maintained(self) -> list[Part]:
        return self.parts

    def flush(self) -> None:
        self.asked += 1


def admit(gate: MemoryGate, size_bytes: int) -> float:
    """Let a batch in and through; return how long that took."""
    started = time.monotonic()
    with gate.admitted(size_bytes, []):
        return time.monotonic() - started


def test_below_the_soft_limit_nobody_waits_and_no_flush_is_asked_for() -> None:
    tablets = Tablets(3 * MIB, 4 * MIB)
    gate = tablets.gate(16 * MIB)
    for _ in range(20):
        admit(gate, MIB)
    assert tablets.asked == 0 and not gate.is_pressed()
    assert gate.state() == MemoryStats(
        limit_bytes=16 * MIB, soft_limit_bytes=8 * MIB, stores_bytes=7 * MIB, flushing_bytes=0, in_flight_bytes=0
    )


@pytest.mark.parametrize(("count", "is_exact"), [(255, True), (256, False)])
def test_many_tablets_are_not_summed_up_for_each_of_their_tables(
    monkeypatch: pytest.MonkeyPatch, count: int, is_exact: bool
) -> None:
    now = 1.0

    monkeypatch.setattr(module.threads, "monotonic", lambda: now)
    tablets = Tablets(*[MIB] * count)
    gate = tablets.gate(1 << 40)
    assert gate.state().stores_bytes == count * MIB
    tablets.parts[0].memory_bytes += 1
    tablets.parts[0].flushing_bytes += 1
    assert gate.state().stores_bytes == count * MIB + is_exact
    now += 0.25
    assert (gate.state().stores_bytes, gate.state().flushing_bytes) == (count * MIB + 1, 1)


def test_memory_is_counted_once_for_so_many_bytes_let_in() -> None:
    gate = Tablets(100 * MIB).gate(64 * MIB)
    for _ in range(3):
        admit(gate, MIB)
    for size in (MIB, 1):  # from now on it is looked at every time
        with pytest.raises(UnavailableError):
            admit(gate, size)


def test_between_the_limits_batches_wait_the_longer_the_fuller_memory_is() -> None:
    waits = []
    for held in (33, 48, 62):
        tablets = Tablets(held * MIB)
        gate = tablets.gate(64 * MIB, seconds=0.4)
        waits.append(admit(gate, 8 * MIB))
        assert tablets.asked == 1 and gate.is_pressed()
        state = gate.state()
        assert (
            state.throttled_batches == 1 and state.throttled_seconds <= waits[-1] + 0.001 and not state.refused_batches
        )
    assert waits == sorted(waits) and waits[0] < 0.15 <= waits[1] and waits[2] >= 0.35


def test_a_flush_lets_those_who_wait_in() -> None:
    tablets = Tablets(60 * MIB)
    gate = tablets.gate(64 * MIB)
    writer = threading.Thread(target=admit, args=(gate, 8 * MIB))
    writer.start()
    while not gate.is_pressed():
        time.sleep(0.001)
    gate.freed()  # a flush that was too small
    assert gate.is_pressed() and writer.is_alive()
    tablets.parts[0].memory_bytes = 0
    gate.freed()
    writer.join(10)
    assert not writer.is_alive() and not gate.is_pressed()


@pytest.mark.parametrize("will_be_flushed", [True, False])
def test_at_the_hard_limit_a_batch_is_refused_at_once_with_a_time_to_come_again(will_be_flushed: bool) -> None:
    tablets = Tablets(64 * MIB)
    tablets.will_be_flushed = will_be_flushed
    gate = tablets.gate(64 * MIB)
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"67,108,864.*retry in 1 s") as refused:
        admit(gate, 8 * MIB)
    assert time.monotonic() - started < 5
    assert refused.value.retry_after_seconds == 1
    assert pickle.loads(pickle.dumps(refused.value)).retry_after_seconds == 1
    assert gate.state().refused_batches == 1 and gate.state().in_flight_bytes == 0


def test_the_time_to_come_again_is_what_the_last_relief_took() -> None:
    tablets = Tablets(64 * MIB)
    gate = tablets.gate(64 * MIB)
    with pytest.raises(UnavailableError):
        admit(gate, 8 * MIB)
    time.sleep(0.3)
    tablets.parts[0].memory_bytes = 0
    gate.freed()
    tablets.parts[0].memory_bytes = 64 * MIB
    with pytest.raises(UnavailableError) as refused:
        admit(gate, 8 * MIB)
    assert 0.3 <= (refused.value.retry_after_seconds or 0) < 1


def test_batches_on_their_way_count() -> None:
    gate = Tablets(30 * MIB).gate(64 * MIB)
    with gate.admitted(34 * MIB, []):
        assert gate.state().in_flight_bytes == 34 * MIB
        with pytest.raises(UnavailableError):
            admit(gate, MIB)
    admit(gate, MIB)


def test_what_is_being_flushed_counts_twice() -> None:
    tablets = Tablets(40 * MIB)
    tablets.parts[0].flushing_bytes = 30 * MIB
    gate = tablets.gate(64 * MIB)
    with pytest.raises(UnavailableError):
        admit(gate, 8 * MIB)
    assert gate.state().flushing_bytes == 30 * MIB


def test_one_tablet_may_not_grow_beyond_what_a_column_can_hold() -> None:
    gate = Tablets(module.TABLET_BYTES_MAX + 1).gate(1 << 40, seconds=0.01)
    with pytest.raises(UnavailableError):
        admit(gate, 8 * MIB)


def test_patience_ends() -> None:
    def refuse() -> None:
        calls.append(time.monotonic())
        raise UnavailableError("full", retry_after_seconds=0.05)

    calls: list[float] = []
    with pytest.raises(UnavailableError):
        patiently(refuse, 0.2)
    assert 2 <= len(calls) <= 4
    calls.clear()
    with pytest.raises(UnavailableError):
        patiently(refuse, 0)
    assert len(calls) == 1


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
    with pytest.raises(UnavailableError, match=r"memory_bytes=1,048,576.*maintain\('flush'\)"):
        for _ in range(50):
            subject.store.write(WriteCommand(table="t"), rows)
    subject.flush()
    subject.flush_deltas()
    assert subject.store.write(WriteCommand(table="t"), rows).applied == 2000
    subject.store.close()


def test_nobody_waits_for_flushes_that_never_come() -> None:
    """Beside a table that nobody flushes the other one has the limits of what is left."""
    tablets = Tablets(40 * MIB, 4 * MIB)
    tablets.maintained = lambda: tablets.parts[1:]
    gate = tablets.gate(64 * MIB)
    assert admit(gate, 8 * MIB) < 5 and tablets.asked == 0 and not gate.is_pressed(), "4 of 24 MiB"
    tablets.parts[1].memory_bytes = 0
    tablets.parts[0].memory_bytes = 63 * MIB
    assert admit(gate, 8 * MIB) < 5 and tablets.asked == 0 and not gate.is_pressed() and not gate.is_relieved()
    tablets.parts[0].memory_bytes = 64 * MIB
    with pytest.raises(UnavailableError, match="67,108,864 bytes belong to tables whose maintenance is off"):
        admit(gate, 8 * MIB)
    assert gate.state().throttled_batches == 0
    tablets.parts[0].memory_bytes, tablets.parts[1].memory_bytes = 40 * MIB, 20 * MIB
    waiting = threading.Thread(target=admit, args=(gate, 8 * MIB))
    waiting.start()
    while not gate.is_pressed():
        time.sleep(0.001)
    tablets.parts[1].memory_bytes = 10 * MIB
    gate.freed()
    waiting.join(10)
    assert not waiting.is_alive() and tablets.asked == 1


def test_a_table_that_nobody_flushes_is_written_until_memory_is_full_and_then_refused_at_once() -> None:
    subject = Subject(
        maintenance="on", memory_bytes=MIB, memory_throttle_seconds=60, table_options={"maintenance": "off"}
    )
    rows = batch([(key, 1, "x" * 100) for key in range(1000)])
    subject.store.create_table(TableDefinition.from_arrow("maintained", SCHEMA, ["k"]))
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"maintenance is off: retry.*maintain\('flush'\)"):
        for _ in range(50):
            subject.store.write(WriteCommand(table="t"), rows)
    assert time.monotonic() - started < 50, "neither throttled nor waited for"
    memory = subject.store.table_stats("t").memory
    assert memory and memory.throttled_batches == 0
    subject.flush()
    subject.flush_deltas()
    assert subject.store.write(WriteCommand(table="t"), rows).applied == 1000
    subject.store.close()
