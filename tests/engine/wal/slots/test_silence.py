"""A log of slots that does not answer: which waits end by that, and what becomes of the log."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nyala.engine.mvcc.clock import boot_seconds, elapsed_seconds
from nyala.engine.wal.slots import SlotLog, SlotOptions
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import UnavailableError
from tests.doubles.slots import FaultySlots
from tests.doubles.waiting import until
from tests.engine.wal.slots.slot_bench import SlotBench, appended, put

LEASE, PATIENCE = 0.4, 0.1
LOOKS = 1.0
"""So often a thread that does not lead looks whether its patience is over."""


def silent_log(bench: SlotBench, **other: Any) -> tuple[SlotLog, FaultySlots]:
    """Return a log that has beats, and from which nothing comes through any more."""
    way = FaultySlots(bench.slots)
    options = SlotOptions(ttl_seconds=LEASE, beat_seconds=0.05, patience_seconds=PATIENCE)
    log, _ = bench.open(options, way, boot=boot_seconds, pause=threading.Event().wait, **other)
    put(log, b"one")
    way.fault = lambda call, number: "before"
    return log, way


def test_a_holder_that_stands_by_waits_for_a_manifest_no_longer_than_its_patience_and_its_lease() -> None:
    bench = SlotBench()
    log, way = silent_log(bench, standby=Standby())
    began = elapsed_seconds()
    with pytest.raises(UnavailableError, match=r"did not answer for 0\.4 s.*unknown") as raised:
        log.commit_manifest("manifests/1-1", 1, 1)
    assert elapsed_seconds() - began > LEASE
    assert raised.value.locations is None, "the outcome is unknown"
    assert log.failed is not None and "leaves the store" in log.failed.message
    assert not log.lease.holds, "another process may have it"
    way.fault = lambda call, number: None
    log.close()
    bench.close()


def test_a_manifest_that_landed_without_an_answer_counts_for_the_next_holder() -> None:
    bench = SlotBench()
    log, way = silent_log(bench, standby=Standby())
    way.fault = lambda call, number: "after"
    with pytest.raises(UnavailableError, match="unknown"):
        log.commit_manifest("manifests/1-1", 1, 1)
    log.close()
    again, payloads = bench.open(way=bench.slots)
    assert again.newest.manifest == "manifests/1-1"
    assert payloads == [b"one"]
    bench.close()


def test_beats_and_writes_that_wait_in_vain_leave_the_log_as_it_is() -> None:
    bench = SlotBench()
    log, way = silent_log(bench, standby=Standby())
    with pytest.raises(UnavailableError, match="not known yet"):
        log.wait(lsn := appended(log, b"two"))
    threading.Event().wait(2 * LEASE)
    assert log.failed is None and not log.lease.holds
    way.fault = lambda call, number: None
    log.wait(lsn)
    until(lambda: log.lease.holds)  # it counts from when a slot was first sent: the next beat has it again
    bench.close()


def test_a_holder_that_does_not_stand_by_waits_for_a_manifest_however_long() -> None:
    bench = SlotBench()
    log, way = silent_log(bench)
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(log.commit_manifest, "manifests/1-1", 1, 1)
        with pytest.raises(TimeoutError):
            committing.result(LEASE + LOOKS)
        way.fault = lambda call, number: None
        committing.result(10)
    assert log.failed is None and log.newest.manifest == "manifests/1-1"
    bench.close()
