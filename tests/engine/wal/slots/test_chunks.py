"""Slots whose payload is in chunks: what is there whatever fails, and what is not any more."""

import threading
from collections.abc import Iterator

import pytest

from nyala.engine.wal.slots import SlotOptions, check_slots, pace
from nyala.engine.wal.slots.payload import whole
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import CorruptionError, UnavailableError
from tests.dose import dose
from tests.doubles.slots import FaultySlots
from tests.doubles.waiting import until
from tests.engine.wal.slots.slot_bench import QUIET, SlotBench, appended, put
from tests.engine.wal.slots.slot_workload import Journal, check, workload

CHUNK_BYTES = 1000
LONG = bytes(range(256)) * 10
"""A record of three chunks."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BYTES_MIN", CHUNK_BYTES)
    monkeypatch.setattr(pace, "BYTES_MAX", CHUNK_BYTES)


class HeldUp(FaultySlots):
    """A log whose chunks are held up, from the second one of a payload on, until they ``may_go``."""

    def __init__(self, bench: SlotBench) -> None:
        super().__init__(bench.slots)
        self.may_go = threading.Event()
        self.puts = 0
        self.error: UnavailableError | None = None
        self.log, _ = bench.open(QUIET, self)

    def put_chunk(self, name: str, content: bytes) -> None:
        self.puts += 1
        if not name.endswith("-0"):
            self.may_go.wait(30)
        super().put_chunk(name, content)

    def append(self) -> threading.Thread:
        """Append a long record, and return a thread that waits for it; its first chunk is there."""
        lsn, before = appended(self.log, LONG), self.puts

        def wait() -> None:
            try:
                self.log.wait(lsn)
            except UnavailableError as error:
                self.error = error

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: self.puts >= before + 2)
        return thread


@pytest.fixture
def held_up(bench: SlotBench) -> Iterator[HeldUp]:
    held_up = HeldUp(bench)
    yield held_up
    held_up.may_go.set()


def test_a_long_record_is_in_chunks_that_a_short_slot_names(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"short", LONG, b"after")
    slots = [decode_slot(number, bench.slots.content[number]) for number in (2, 3, 4)]
    assert [len(slot.chunks) for slot in slots] == [0, 3, 0]
    assert len(bench.slots.content[3]) < 300 and slots[1].size_bytes > len(LONG)
    assert sorted(bench.slots.chunks) == sorted(slots[1].chunk_names)
    assert [len(bench.slots.chunks[name]) for name in slots[1].chunk_names] == [CHUNK_BYTES, CHUNK_BYTES, 576]
    assert [[bytes(record.payload) for record in group] for group in log.records_up_to(3)] == [
        [b"short"],
        [LONG],
        [b"after"],
    ]
    assert log.sizes()[2] > len(LONG)
    log.close()
    assert bench.open()[1] == [b"short", LONG, b"after"]


def test_chunks_go_with_the_slot_that_names_them(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, LONG, LONG, b"last")
    second = decode_slot(3, bench.slots.content[3])
    log.commit_manifest("manifests/1-1", 1, 2)
    assert len(bench.slots.chunks) == 6
    assert log.free_before(2) > len(LONG)
    assert sorted(bench.slots.chunks) == sorted(second.chunk_names)
    log.close()
    log, found = bench.open()
    assert found == [LONG, b"last"]
    log.commit_manifest("manifests/2-1", 1, 4)
    log.close()
    assert not bench.slots.chunks


@pytest.mark.parametrize("harm", ["missing", "checksum"])
def test_a_chunk_that_is_not_what_was_put_is_corruption(bench: SlotBench, harm: str) -> None:
    log, _ = bench.open()
    put(log, LONG)
    log.close()
    name = decode_slot(2, bench.slots.content[2]).chunk_name(1)
    whole = bench.slots.chunks.pop(name)
    if harm == "checksum":
        bench.slots.chunks[name] = whole[:-1] + b"\0"
    (problem,) = check_slots(bench.slots).problems
    assert name in str(problem) and harm in str(problem)
    with pytest.raises(CorruptionError, match=name):
        bench.open()
    bench.slots.chunks[name] = whole


@pytest.mark.parametrize("fault", ["before", "after", "late"])
def test_a_chunk_without_an_answer_is_put_again_under_its_name(bench: SlotBench, fault: str) -> None:
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=20), way)
    chunks: list[int] = []

    def second_fails(call: str, number: int) -> str | None:
        if call == "put_chunk":
            chunks.append(number)
        return fault if len(chunks) == 2 and call == "put_chunk" else None

    way.fault = second_fails
    put(log, LONG)
    way.deliver()
    assert len(chunks) == 4 and len(bench.slots.chunks) == 3
    assert bench.open(QUIET)[1] == [LONG]


def test_a_manifest_passes_a_record_that_is_being_put(bench: SlotBench, held_up: HeldUp) -> None:
    log = held_up.log
    put(log, b"one")
    thread = held_up.append()
    log.commit_manifest("manifests/1-1", 1, 2)
    log.check_held()
    assert log.writer.durable_lsn == 1 and log.newest.manifest == "manifests/1-1"
    assert bench.kinds() == [SlotKind.CLAIM, SlotKind.RECORDS, SlotKind.BEAT, SlotKind.BEAT]
    held_up.may_go.set()
    thread.join()
    assert log.writer.durable_lsn == 2 and log.newest.manifest == "manifests/1-1"
    log.close()
    assert bench.open()[1] == [LONG], "the manifest has the first one"


def test_what_passes_a_record_does_not_say_that_it_is_in_the_log(bench: SlotBench, held_up: HeldUp) -> None:
    """A replica shows all commits up to ``safe``."""
    log = held_up.log
    before = log.clock.now()
    thread = held_up.append()
    after = log.clock.now()
    log.check_held()
    assert log.newest.safe <= before + 1 < after < log.newest.ceiling
    held_up.may_go.set()
    thread.join()
    (record,) = whole(bench.slots, decode_slot(3, bench.slots.content[3])).records()
    assert before < record.timestamp < after
    assert decode_slot(2, bench.slots.content[2]).header.safe < record.timestamp


def test_a_holder_that_is_replaced_meanwhile_puts_no_more_and_nothing_of_it_counts(
    bench: SlotBench, held_up: HeldUp
) -> None:
    held_up.may_go.set()
    put(held_up.log, LONG)
    held_up.may_go.clear()
    thread = held_up.append()
    assert len(bench.slots.chunks) == 4
    bench.boot.wait(6)
    log, found = bench.open()
    assert found == [LONG] and len(bench.slots.chunks) == 3, "what is named stays, the other chunk is gone"
    with pytest.raises(UnavailableError, match="another process has the store"):
        held_up.log.check_held()
    held_up.may_go.set()
    thread.join()
    assert "nothing of the change was applied" in str(held_up.error)
    put(log, b"next")
    until(lambda: len(bench.slots.chunks) == 4)
    threading.Event().wait(0.05)
    assert len(bench.slots.chunks) == 4, "the chunk that was on its way came late, and no other"
    log.close()
    assert bench.open()[1] == [LONG, b"next"]
    assert len(bench.slots.chunks) == 3


def test_a_standby_has_chunks_in_memory_when_it_takes_over(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one", LONG, LONG)
    standby, before = Standby(), 0

    def pause(seconds: float) -> None:
        nonlocal before
        bench.boot.wait(seconds)
        before = len(bench.slots.calls)

    _, found = bench.open(standby=standby, pause=pause)
    assert found == [b"one", LONG, LONG]
    assert "read_chunk" not in {call for call, _ in bench.slots.calls[before:]}


def test_a_standby_keeps_no_more_than_it_may(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, LONG, LONG)
    standby = Standby(kept_bytes=3500)
    _, found = bench.open(standby=standby, pause=bench.boot.wait)
    assert found == [LONG, LONG]


def test_whoever_waits_is_patient_while_chunks_arrive(bench: SlotBench) -> None:
    def slow(call: str, number: int) -> None:
        if call == "put_chunk":
            threading.Event().wait(0.05)

    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.3), FaultySlots(bench.slots, slow))
    put(log, b"x" * 12 * CHUNK_BYTES)  # twice the patience
    log.close()


@pytest.fixture(scope="module")
def call_count() -> int:
    with pytest.MonkeyPatch.context() as patch:
        few_bytes(patch)
        bench, journal = SlotBench(), Journal()
        way = FaultySlots(bench.slots)
        workload(bench, way, journal)
        assert journal.errors == [] and len(journal.acked) == 8
        assert "put_chunk" in {call for call, _ in bench.slots.calls}
        assert check(bench, journal) == journal.acked
        assert set(bench.slots.chunks) == named_in(bench)
        return way.count


def named_in(bench: SlotBench) -> set[str]:
    slots = [decode_slot(number, content) for number, content in bench.slots.content.items()]
    return {name for slot in slots for name in slot.chunk_names}


def few_bytes(patch: pytest.MonkeyPatch) -> None:
    """Have two chunks for each record of the workload."""
    patch.setattr(pace, "BYTES_MIN", 16)
    patch.setattr(pace, "BYTES_MAX", 16)


@pytest.mark.parametrize("fault", ["before", "after", "late", "dead", "dying"])
def test_every_call_fails_in_turn_or_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch, call_count: int, fault: str
) -> None:
    few_bytes(monkeypatch)
    for number in range(1, call_count + 1, dose(3, 1)):
        bench, journal = SlotBench(), Journal()
        way = FaultySlots(bench.slots)

        def at_that_one(call: str, count: int, number: int = number, way: FaultySlots = way) -> str | None:
            if count == number + 2:
                way.deliver()
            can_be_late = call in ("create", "put_chunk")
            return (fault if can_be_late or fault != "late" else "before") if count == number else None

        way.fault = at_that_one
        workload(bench, way, journal)
        way.deliver()
        found = check(bench, journal)
        if fault not in ("dead", "dying"):
            assert found == journal.tried and len(journal.acked) >= 4, number
        assert set(bench.slots.chunks) <= named_in(bench), f"call {number}: nothing is left"
        bench.close()
