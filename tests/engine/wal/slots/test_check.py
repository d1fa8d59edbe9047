"""Checks of whole logs: what they read, and how much of it at once."""

from threading import Barrier

import pytest

from nyala.engine.wal.slots import SlotOptions, check_slots
from nyala.engine.wal.slots.check import leftovers_before
from tests.engine.wal.slots.slot_bench import SlotBench, put


def test_a_check_reads_several_slots_at_once(bench: SlotBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may have thousands, and each takes a request."""
    log, _ = bench.open()
    put(log, *(b"row" for _ in range(6)))
    together, read = Barrier(4), bench.slots.read

    def waiting(number: int, is_patient: bool = True) -> bytes | None:
        if number <= 4:
            together.wait(60)
        return read(number, is_patient)

    monkeypatch.setattr(bench.slots, "read", waiting)
    report = check_slots(bench.slots)
    assert (report.end, report.records, report.claims, report.problems) == (7, 6, [1], [])


def test_leftovers_are_found_without_the_slots_that_are_needed(bench: SlotBench) -> None:
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, free_slots=1000))
    put(log, b"one", b"two", b"three", b"four")
    log.commit_manifest("manifests/1-1", 1, 3)
    needed = log.newest.needed_slot
    bench.slots.calls.clear()
    assert leftovers_before(bench.slots, needed, log.epoch) == [2, 3]
    assert sorted(number for call, (*some,) in bench.slots.calls if call == "read" for number in some) == [1, 2, 3]
    assert check_slots(bench.slots).leftovers == [2, 3]
