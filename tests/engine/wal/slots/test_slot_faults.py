"""Every call of a fixed workload fails in turn, or is the last of its process: what was acknowledged stays, once."""

import threading
from collections.abc import Iterable

import pytest

from nyala.engine.mvcc.clock import elapsed_seconds
from nyala.engine.wal.slots import SlotOptions
from nyala.engine.wal.slots.claim_note import is_fence
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.schemas.errors import UnavailableError
from tests.doubles.slots import FaultySlots, MemorySlots
from tests.doubles.waiting import until
from tests.engine.wal.slots.slot_bench import SlotBench, appended
from tests.engine.wal.slots.slot_workload import Journal, check, workload


def count_calls() -> int:
    bench, journal = SlotBench(), Journal()
    way = FaultySlots(bench.slots)
    workload(bench, way, journal)
    assert journal.errors == [] and len(journal.acked) == 8
    assert check(bench, journal) == journal.acked
    return way.count


CALLS = count_calls()


@pytest.mark.parametrize("fault", ["before", "after", "late"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_call_without_an_answer(number: int, fault: str) -> None:
    bench, journal = SlotBench(), Journal()
    way = FaultySlots(bench.slots)

    def at_that_one(call: str, count: int) -> str | None:
        if count == number + 2:
            way.deliver()  # after the request was repeated
        return (fault if call == "create" or fault != "late" else "before") if count == number else None

    way.fault = at_that_one
    workload(bench, way, journal)
    way.deliver()
    lost_lives = sum("create" not in str(error) for error in journal.errors)
    assert len(journal.acked) >= 4 and lost_lives <= 1, "one fault costs one step, or one opening"
    assert check(bench, journal) == journal.tried
    bench.close()


@pytest.mark.parametrize("fault", ["dead", "dying"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_process_that_dies_at_a_call(number: int, fault: str) -> None:
    bench, journal = SlotBench(), Journal()
    workload(bench, FaultySlots(bench.slots, lambda call, count: fault if count == number else None), journal)
    assert journal.errors or number == CALLS, "it is named; nobody waits for a release"
    check(bench, journal)
    bench.close()


class JealousSlots(MemorySlots):
    """Slots that let nothing go which the newest slot needs, nor a claim that must stay, or is in force."""

    deleted = 0

    def delete(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        newest = max(self.content)
        header = decode_slot(newest, self.content[newest]).header
        for number in numbers:
            assert number < header.needed_slot and number != header.epoch
            assert not is_fence(decode_slot(number, self.content[number]))
        self.deleted += len(numbers)
        super().delete(numbers)


def test_nothing_is_deleted_before_the_slot_that_no_longer_needs_it() -> None:
    bench, journal = SlotBench(), Journal()
    bench.slots = JealousSlots()
    workload(bench, FaultySlots(bench.slots), journal)
    assert journal.errors == [] and bench.slots.deleted > 4
    bench.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_without_an_answer_the_outcome_is_unknown_until_there_is_one(is_late: bool) -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.1), way)
    way.fault = lambda call, number: "late" if is_late else "before"
    lsn = appended(log, b"one")
    with pytest.raises(UnavailableError, match="not known yet"):
        log.wait(lsn)
    assert (log.failed, log.writer.durable_lsn) == (None, 0)
    way.deliver()
    way.fault = lambda call, number: None
    until(lambda: log.writer.durable_lsn == 1)
    log.wait(appended(log, b"two"))
    log.close()
    assert bench.open()[1] == [b"one", b"two"]
    bench.close()


def test_a_full_queue_that_does_not_move_refuses() -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=1.0, queue_bytes=1000), way)
    way.fault = lambda call, number: "before"
    appended(log, b"x" * 900)
    with pytest.raises(UnavailableError, match="nothing was applied"):
        log.writer.reserve(900)
    way.fault = lambda call, number: None
    log.writer.reserve(900)
    log.writer.release()
    bench.close()


def test_writers_before_a_full_queue_wait_side_by_side() -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.3, queue_bytes=1000), way)
    way.fault = lambda call, number: "before"
    appended(log, b"x" * 900)
    refused: list[float] = []

    def reserve() -> None:
        began = elapsed_seconds()
        with pytest.raises(UnavailableError, match="nothing was applied"):
            log.writer.reserve(900)
        refused.append(elapsed_seconds() - began)

    threads = [threading.Thread(target=reserve) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 20
    assert sum(refused) < 20 * 0.3 * 20 / 4, "one after the other they would wait twice as long together"
    way.fault = lambda call, number: None
    bench.close()


def test_who_wants_to_know_early_is_told_that_it_is_unknown() -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.1), way)
    lsn = appended(log, b"one")
    log.writer.wait_written(lsn)
    assert log.writer.durable_lsn == lsn, "there is nothing between memory and the slot"
    way.fault = lambda call, number: "before"
    with pytest.raises(UnavailableError, match="not known yet"):
        log.writer.wait_written(appended(log, b"two"))
    way.fault = lambda call, number: None
    bench.close()


def test_a_log_that_does_not_answer_can_be_closed() -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.1), way)
    way.fault = lambda call, number: "before"
    errors: list[Exception] = []

    def commit() -> None:
        try:
            log.commit_manifest("manifests/1-1", 1, 1)
        except UnavailableError as error:
            errors.append(error)

    appended(log, b"one")
    thread = threading.Thread(target=commit)
    thread.start()
    log.close()
    thread.join(10)
    assert "unknown" in str(errors[0]) and "unknown" in str(log.failed)
    assert not log.lease.holds
    assert bench.kinds() == [SlotKind.CLAIM]


def test_before_a_log_is_closed_nobody_waits_for_ever() -> None:
    bench = SlotBench()
    way = FaultySlots(bench.slots)
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, patience_seconds=0.2), way)
    log.writer.hurry()
    threading.Event().wait(0.3)
    log.wait(appended(log, b"one"))
    log.commit_manifest("manifests/1-1", 1, 1)
    assert log.failed is None, "it answers"
    way.fault = lambda call, number: "before"
    with pytest.raises(UnavailableError, match="closed while it did not answer"):
        log.commit_manifest("manifests/1-2", 1, 1)
    bench.close()
