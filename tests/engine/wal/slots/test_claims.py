"""Two processes and one log: who has it, who knows that, and what the other one can no longer do."""

import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nyala.engine.bucket import DirectoryBucket
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.wal.slots import BucketSlots, check_slots
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.claim import Claimant, Claimed
from nyala.engine.wal.slots.reader import newest_slot
from nyala.engine.wal.slots.slot import SlotKind, decode_slot, encode_slot
from nyala.schemas.errors import UnavailableError
from tests.doubles.slots import FaultySlots
from tests.engine.wal.slots.slot_bench import QUIET, SlotBench, appended, put


def claimant(bench: SlotBench, way: FaultySlots | None = None) -> Claimant:
    return Claimant(way or bench.slots, QUIET, bench.uuid, bench.boot, bench.boot.wait)


def claim(bench: SlotBench, seen: int, way: FaultySlots | None = None, until: float | None = None) -> Claimed | None:
    """Claim the slot after one that somebody has seen as the end."""
    slot = decode_slot(seen, bench.slots.content[seen])
    clock = CeilingClock(bench.clock, slot.header.ceiling)
    return claimant(bench, way).claim(slot, clock, bench.uuid().bytes, {}, until or bench.boot() + 60)


def test_a_released_log_is_claimed_at_once(bench: SlotBench) -> None:
    log, _ = bench.open()
    log.close()
    began = bench.boot()
    bench.open()
    assert bench.boot() == began


def test_a_silent_log_is_claimed_after_its_time(bench: SlotBench) -> None:
    put(bench.open()[0], b"x")
    began = bench.boot()
    assert bench.open()[1] == [b"x"]
    assert 5.0 < bench.boot() - began < 5.5


@pytest.mark.parametrize(("holders", "claimants"), [(60.0, 5.0), (5.0, 60.0)])
def test_the_longer_of_two_times_is_waited_for(bench: SlotBench, holders: float, claimants: float) -> None:
    log, _ = bench.open(replace(QUIET, ttl_seconds=holders))
    put(log, b"x")
    began = bench.boot()
    bench.open(replace(QUIET, ttl_seconds=claimants))
    assert 60 < bench.boot() - began < 61


def test_the_time_of_whoever_claims_meanwhile_counts(bench: SlotBench) -> None:
    put(bench.open()[0], b"x")
    rivals: list[float] = []

    def pause(seconds: float) -> None:
        bench.boot.wait(seconds)
        if not rivals and bench.boot() > 103:
            bench.logs[0].close()
            bench.open(replace(QUIET, ttl_seconds=30.0))
            rivals.append(bench.boot())

    bench.open(pause=pause)
    assert 30 < bench.boot() - rivals[0] < 31


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"ttl_seconds": "60"}'])
def test_a_claim_that_names_no_time_is_waited_for_as_ones_own(bench: SlotBench, payload: bytes) -> None:
    bench.open()
    header = decode_slot(1, bench.slots.content[1]).header
    bench.slots.content[1] = encode_slot(header, [payload])[0]
    began = bench.boot()
    bench.open()
    assert 5 < bench.boot() - began < 6


def test_a_log_that_lives_is_not_claimed(bench: SlotBench) -> None:
    log, _ = bench.open(about={"locations": ["grpc://m1:8815", "grpc://m2:8815"]})

    def live(seconds: float) -> None:
        bench.boot.wait(seconds)
        put(log, b"x")

    began = bench.boot()
    with pytest.raises(UnavailableError) as refused:
        bench.open(pause=live)
    assert refused.value.message == (
        "another process has the store, at grpc://m1:8815 or grpc://m2:8815: connect to it with --url grpc://m1:8815 "
        "or nyala.connect, or hand the store over first (nyala server release)"
    )
    assert refused.value.locations == ["grpc://m1:8815", "grpc://m2:8815"]
    assert 10.0 <= bench.boot() - began < 10.5
    assert log.failed is None
    assert bench.kinds().count(SlotKind.CLAIM) == 1


def test_who_waits_gives_up_though_each_look_finds_another_slot(bench: SlotBench) -> None:
    log, _ = bench.open()

    class Far(FaultySlots):
        def read(self, number: int, is_patient: bool = True) -> bytes | None:
            if self.count < 500:
                put(log, b"x")
            bench.boot.wait(0.05)
            return super().read(number, is_patient)

    began = bench.boot()
    with pytest.raises(UnavailableError, match="another process has the store"):
        bench.open(way=Far(bench.slots), wait_seconds=1.0)
    assert bench.boot() - began < 2


def test_silence_is_counted_from_the_last_slot_seen(bench: SlotBench) -> None:
    log, _ = bench.open()
    last_written = bench.boot()

    def live_at_first(seconds: float) -> None:
        nonlocal last_written
        bench.boot.wait(seconds)
        if bench.boot() < 103:
            put(log, b"x")
            last_written = bench.boot()

    bench.open(pause=live_at_first)
    assert last_written > 102
    assert bench.boot() > last_written + 5


def test_a_zombie_cannot_write(bench: SlotBench) -> None:
    zombie, _ = bench.open()
    put(zombie, b"one")
    heard: list[object] = []
    zombie.writer.listener = lambda: heard.append(zombie.failed)
    other, found = bench.open()
    assert found == [b"one"]
    lsn = appended(zombie, b"two")
    with pytest.raises(UnavailableError, match="nothing of the change was applied"):
        zombie.wait(lsn)
    assert zombie.failed and heard[-1] is zombie.failed
    assert str(other._claim.holder.hex()[:8]) in str(zombie.failed), "it says who has the store"
    put(other, b"other two")
    other.close()
    assert bench.open()[1] == [b"one", b"other two"]


def test_a_zombie_can_neither_commit_nor_delete_nor_read_now(bench: SlotBench) -> None:
    zombie, _ = bench.open()
    put(zombie, b"one", b"two")
    zombie.commit_manifest("manifests/1-1", 1, 3)
    bench.open()
    assert not zombie.lease.holds, "it noticed by the time alone"
    with pytest.raises(UnavailableError):
        zombie.commit_manifest("manifests/1-2", 2, 3)
    assert zombie.free_before(3) == 0 and 2 in bench.slots.content
    with pytest.raises(UnavailableError):
        zombie.writer.reserve(1)
    bench.boot.now -= 60
    assert not zombie.lease.holds, "it has lost the lease for good"
    newest = newest_slot(bench.slots)
    assert newest and newest.header.manifest == "manifests/1-1"


def test_nobody_is_told_that_nothing_was_applied_when_that_is_unknown(bench: SlotBench) -> None:
    """A slot lands, its answer is lost, the next holder replays and frees it, and a late claim takes its number."""
    way = FaultySlots(bench.slots)
    zombie, _ = bench.open(way=way)
    put(zombie, b"one")
    late = FaultySlots(bench.slots, lambda call, number: "late" if call == "create" else None)
    with pytest.raises(UnavailableError):
        claim(bench, 2, late, bench.boot())

    def stand_still(_: float) -> None:
        way.fault = lambda call, number: None
        other, found = bench.open()
        assert found == [b"one", b"two"]
        put(other, b"three")
        other.commit_manifest("manifests/2-1", 1, 4)
        other.free_before(4)
        late.deliver()
        assert decode_slot(3, bench.slots.content[3]).header.kind is SlotKind.CLAIM

    way.fault = lambda call, number: "after" if call == "create" else None
    zombie._sink._pause = stand_still
    with pytest.raises(UnavailableError, match="whether the change was applied is unknown"):
        put(zombie, b"two")


def test_all_that_wait_learn_that_the_log_is_lost(bench: SlotBench) -> None:
    zombie, _ = bench.open()
    bench.open()
    errors: list[str] = []

    def write() -> None:
        try:
            put(zombie, b"x")
        except UnavailableError as error:
            errors.append(error.message)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 8 and all("another process" in message for message in errors)


def test_one_of_two_claims_holds(bench: SlotBench) -> None:
    bench.open()[0].close()
    first, second = claim(bench, 2), claim(bench, 2)
    assert first is not None and second is None


def test_a_claim_into_a_slot_that_was_freed_is_void(bench: SlotBench) -> None:
    """A claimant looks at slot 3, stands still for long, and goes on when slot 4 was written and freed."""
    holder, _ = bench.open()
    put(holder, b"one", b"two")
    seen = 3
    put(holder, b"three", b"four")
    holder.commit_manifest("manifests/1-1", 1, 5)
    holder.free_before(5)
    assert seen + 1 not in bench.slots.content
    slot = decode_slot(6, bench.slots.content[6])
    seen_then = replace(slot, header=replace(slot.header, number=seen))
    clock = CeilingClock(bench.clock, 0)
    void = claimant(bench).claim(seen_then, clock, bench.uuid().bytes, {}, bench.boot() + 60)
    assert void is None and 4 in bench.slots.content
    put(holder, b"five")
    report = check_slots(bench.slots)
    assert (report.problems, report.claims) == ([], [1, 4])
    holder.close()
    assert bench.open()[1] == [b"five"]
    assert 4 in bench.slots.content


def test_a_claim_of_a_former_self_is_not_taken_for_ones_own(bench: SlotBench) -> None:
    """A process claims, dies without an answer, starts again with the same identity, and its old claim lands."""
    bench.open()[0].close()
    way = FaultySlots(bench.slots, lambda call, number: "late" if call == "create" else None)
    slot, holder = decode_slot(2, bench.slots.content[2]), b"h" * 16
    clock = CeilingClock(bench.clock, slot.header.ceiling)
    with pytest.raises(UnavailableError):
        claimant(bench, way).claim(slot, clock, holder, {}, bench.boot())
    way.deliver()
    assert claimant(bench).claim(slot, clock, holder, {}, bench.boot() + 60) is None


def test_a_claim_without_an_answer_is_repeated_and_counts_from_the_first(bench: SlotBench) -> None:
    bench.open()[0].close()
    began = bench.boot()
    way = FaultySlots(bench.slots, lambda call, number: "after" if call == "create" and number <= 3 else None)
    claimed = claim(bench, 2, way)
    assert claimed is not None and claimed.sent == began < bench.boot()


def test_a_lease_counts_from_sending(bench: SlotBench) -> None:
    log, _ = bench.open()
    bench.boot.wait(10)
    assert not log.lease.holds

    def slow(call: str, number: int) -> str | None:
        bench.boot.wait(3 if call == "create" else 0)
        return None

    way = FaultySlots(bench.slots, slow)
    log._sink._slots = way
    put(log, b"x")
    bench.boot.wait(0.9)
    assert log.lease.holds
    bench.boot.wait(0.2)
    assert not log.lease.holds, "4 s after it was sent, 1.1 s after the answer"
    with pytest.raises(UnavailableError, match="has not answered"):
        log.lease.check()


def test_a_repeated_request_counts_from_the_first(bench: SlotBench) -> None:
    log, _ = bench.open()
    bench.boot.wait(10)
    log._sink._slots = FaultySlots(bench.slots, lambda call, number: "before" if number <= 2 else None)
    log._sink._pause = lambda seconds: bench.boot.wait(1.5)
    put(log, b"x")
    assert log.lease.holds
    bench.boot.wait(1.1)
    assert not log.lease.holds


def test_a_claim_wins_the_race_for_the_next_slot(bench: SlotBench) -> None:
    """The holder's request is on its way when the claim lands."""
    holder, _ = bench.open()
    way = FaultySlots(bench.slots, lambda call, number: "late" if number == 1 else None)
    holder._sink._slots = way
    end = bench.slots.end()
    claims: list[Claimed | None] = []
    holder._sink._pause = lambda seconds: claims.append(claim(bench, end))
    lsn = appended(holder, b"x")
    with pytest.raises(UnavailableError, match="nothing of the change was applied"):
        holder.wait(lsn)
    way.deliver()
    assert claims and claims[0] is not None
    assert decode_slot(end + 1, bench.slots.content[end + 1]).header.kind is SlotKind.CLAIM


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_not_the_holder(tmp_path: Path) -> None:
    bench = SlotBench()
    bench.slots = BucketSlots(DirectoryBucket(LocalFileSystem(tmp_path)))
    log, _ = bench.open()
    put(log, b"one")
    before = bench.slots.end()
    with log._inner._mutex:  # or another thread may have it, which the child has not
        child = os.fork()
    if not child:
        outcome = 1
        with suppress(BaseException):
            try:
                put(log, b"child")
            except UnavailableError:
                with pytest.raises(UnavailableError, match="forked"):
                    log.commit_manifest("m", 1, 1)
                log.close()
                outcome = 0
        os._exit(outcome)
    assert os.waitpid(child, 0)[1] == 0
    assert bench.slots.end() == before
    put(log, b"two")
    log.close()
    assert bench.open()[1] == [b"one", b"two"]
    bench.close()
