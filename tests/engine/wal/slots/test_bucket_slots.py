"""A log of slots in a bucket: its objects, and every call of the bucket that fails."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from nyala.engine.bucket import DirectoryBucket, MemoryBucket, MemoryObjects, Patience, PatientBucket
from nyala.engine.fs import LocalFileSystem
from nyala.engine.wal.slots import BucketSlots, SlotStore
from nyala.schemas.errors import UnavailableError
from tests.dose import dose
from tests.doubles.faulty_bucket import Fault, FaultyBucket, FaultyObjects
from tests.engine.wal.slots.slot_bench import SlotBench, put
from tests.engine.wal.slots.slot_workload import Journal, check, workload


@pytest.fixture(params=["memory", "directory"])
def slots(request: pytest.FixtureRequest, tmp_path: Path) -> SlotStore:
    return BucketSlots(MemoryBucket() if request.param == "memory" else DirectoryBucket(LocalFileSystem(tmp_path)))


def test_a_slot_is_made_once(slots: SlotStore) -> None:
    assert (slots.end(), slots.numbers(), slots.read(1)) == (0, [], None)
    assert slots.create(7, b"mine") and slots.create(7, b"mine")
    assert not slots.create(7, b"other")
    assert slots.create(11, b"later")
    assert (slots.read(7), slots.end(), slots.numbers()) == (b"mine", 11, [7, 11])
    assert [slots.end(after) for after in (0, 6, 7, 10, 11, 12)] == [11, 11, 11, 11, 0, 0]
    slots.delete([7, 8])
    assert (slots.read(7), slots.numbers()) == (None, [11])


def test_other_objects_are_no_slots() -> None:
    bucket = MemoryBucket()
    slots = BucketSlots(bucket)
    for name in ("log/1", "log/00000000000000000009.old", "log/deep/00000000000000000009", "manifests/1-1"):
        bucket.put(name, b"x")
    assert (slots.end(), slots.numbers()) == (0, [])
    assert slots.create(3, b"x")
    assert bucket.get("log/00000000000000000003") == b"x"


def test_a_log_lives_in_a_bucket(slots: SlotStore) -> None:
    bench = SlotBench()
    bench.slots = slots
    log, _ = bench.open()
    put(log, b"one", b"two")
    log.close()
    assert bench.open()[1] == [b"one", b"two"]
    bench.close()


@pytest.fixture(scope="module")
def call_count() -> int:
    bench, journal, bucket = SlotBench(), Journal(), FaultyBucket()
    bench.slots = BucketSlots(bucket)
    workload(bench, bench.slots, journal)
    assert journal.errors == [] and len(journal.acked) == 8
    return len(bucket.objects.calls)


@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_every_call_of_the_bucket_fails_in_turn(fault: Fault, attempts: int, call_count: int) -> None:
    """Whether the bucket repeats it or leaves that to the log: nothing is lost, and errors have names."""
    for number in range(1, call_count + 1, dose(4, 1)):
        bench, journal = SlotBench(), Journal()
        objects = MemoryObjects()
        bucket = FaultyBucket(objects, {number: fault}, attempts=attempts)
        bench.slots = BucketSlots(MemoryBucket(objects))
        workload(bench, BucketSlots(bucket), journal)
        bucket.objects.land_late_ones()
        assert check(bench, journal) == journal.tried, f"call {number}"
        assert len(journal.acked) >= 4
        bench.close()


def test_a_slot_is_tried_once_at_a_time_and_read_with_patience() -> None:
    objects = FaultyObjects()
    slots = BucketSlots(PatientBucket(objects, Patience(60.0, 0.001, 0.01)), attempt_seconds=1.0)
    objects.faults[1] = objects.faults[2] = Fault.BEFORE
    with pytest.raises(UnavailableError, match="unknown"):
        slots.create(1, b"x")
    assert [call.verb for call in objects.calls] == ["put_if_absent", "get"]
    assert slots.create(1, b"x")
    for is_patient in (True, False):
        objects.faults[len(objects.calls) + 1] = Fault.BEFORE
        with nullcontext() if is_patient else pytest.raises(UnavailableError):
            assert slots.read(1, is_patient) == b"x"
