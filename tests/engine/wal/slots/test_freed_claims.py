"""Claims that stop nobody are freed: a log that is opened again and again does not grow, and a zombie is stopped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nyala.engine.bucket import MemoryBucket
from nyala.engine.wal.sink import LogLostError
from nyala.engine.wal.slots import BucketSlots, SlotLog, SlotOptions, check_slots, claim
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.claim import Claimant
from nyala.engine.wal.slots.claim_note import is_fence
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import UnavailableError
from tests.doubles.slots import FaultySlots
from tests.doubles.watched_bucket import WatchedBucket
from tests.engine.wal.slots.slot_bench import QUIET, SlotBench, put


def lived(bench: SlotBench, life: int, log: SlotLog | None = None) -> SlotLog:
    """Let a process have the log, write, and flush what was written."""
    log = log or bench.open()[0]
    put(log, b"of %d" % life)
    log.commit_manifest(f"manifests/{log.reign}-1", 1, log.writer.last_lsn + 1)
    return log


def test_a_log_that_is_opened_and_closed_for_ever_does_not_grow(bench: SlotBench) -> None:
    for life in range(30):
        lived(bench, life).close()
        assert len(bench.slots.numbers()) <= 4, "the first claim, this one, the slot of the manifest, the release"
    assert check_slots(bench.slots).leftovers == []
    assert bench.open()[1] == []


def test_a_claim_after_silence_stays_and_stops_its_zombie_however_many_had_the_log_since(bench: SlotBench) -> None:
    zombie, _ = bench.open()
    put(zombie, b"x")
    fence = lived(bench, 0)
    fence.close()
    for life in range(5):
        lived(bench, life).close()
    assert fence.epoch in bench.slots.content and len(bench.slots.content) <= 5
    with pytest.raises(UnavailableError, match="another process has the store"):
        put(zombie, b"late")
    report = check_slots(bench.slots)
    assert report.claims[:2] == [zombie.epoch, fence.epoch] and report.leftovers == []


def test_the_claim_in_force_stays_since_others_read_in_it_how_long_to_wait(bench: SlotBench) -> None:
    bench.open()[0].close()
    log, _ = bench.open(replace(QUIET, ttl_seconds=60), about={"locations": ["grpc://m1:8815"]})
    assert not is_fence(decode_slot(log.epoch, bench.slots.content[log.epoch]))
    for life in range(3):
        lived(bench, life, log)
        log.free_before(0)
    assert sorted(bench.slots.content) == [1, log.epoch, bench.slots.end()]
    put(log, b"x")
    began, standby = bench.boot(), Standby()
    bench.open(standby=standby)
    assert bench.boot() - began > 60, "as the claim says"


def test_a_claimant_that_stood_still_holds_nothing_in_the_place_of_a_freed_claim(bench: SlotBench) -> None:
    bench.open()[0].close()
    seen = decode_slot(2, bench.slots.content[2])
    lived(bench, 1).close()
    holder = lived(bench, 2)
    holder.free_before(0)
    assert 3 not in bench.slots.content, "the claim that it did not see was freed"
    late = Claimant(bench.slots, QUIET, bench.uuid, bench.boot, bench.boot.wait)
    clock = CeilingClock(bench.clock, 0)
    assert late.claim(seen, clock, bench.uuid().bytes, {}, bench.boot() + 60) is None
    put(holder, b"it goes on")
    assert check_slots(bench.slots).leftovers == [3], "it means nothing"


def test_a_claimant_that_takes_the_log_for_empty_meets_the_first_claim(bench: SlotBench) -> None:
    for life in range(3):
        lived(bench, life).close()

    class Empty(FaultySlots):
        """Lists nothing, as a store that lies."""

        def numbers(self) -> list[int]:
            return []

        def end(self, after: int = 0) -> int:
            return 0

    late = Claimant(Empty(bench.slots), QUIET, bench.uuid, bench.boot, bench.boot.wait)
    clock = CeilingClock(bench.clock, 0)
    assert late.claim(None, clock, bench.uuid().bytes, {}, bench.boot() + 60) is None


def test_no_slot_is_sent_after_a_release(bench: SlotBench) -> None:
    log, _ = bench.open()
    log.close()
    beat = log._sink.take([], log.writer.last_lsn + 1, 0, True)
    log._sink.write(beat)
    with pytest.raises(LogLostError, match="this process has released the store"):
        log._sink.sync(beat)
    assert bench.kinds() == [SlotKind.CLAIM, SlotKind.RELEASE]


def test_a_claim_of_an_older_version_stays(bench: SlotBench, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(bench, 0).close()
    with monkeypatch.context() as older:
        older.setattr(claim, "pack_note", lambda about, ttl_seconds, last: json.dumps({"ttl_seconds": 5.0}).encode())
        old = lived(bench, 1)
        old.close()
    for life in range(3):
        lived(bench, life).close()
    assert old.epoch in bench.slots.content and len(bench.slots.content) == 5


def test_a_claim_whose_note_is_damaged_stays(bench: SlotBench) -> None:
    lived(bench, 0).close()
    former = lived(bench, 1)
    former.close()
    log = lived(bench, 2)
    content = bytearray(bench.slots.content[former.epoch])
    content[-1] ^= 1
    bench.slots.content[former.epoch] = bytes(content)
    log.free_before(0)
    log.close()
    assert former.epoch in bench.slots.content
    del bench.slots.content[former.epoch]


def test_looks_at_the_end_list_no_more_than_what_came_since(bench: SlotBench) -> None:
    bucket = WatchedBucket(MemoryBucket())
    asked: list[str] = []
    listed = bucket.list

    def noting(prefix: str, after: str = "") -> list[tuple[str, int]]:
        asked.append(after)
        return listed(prefix, after)

    bucket.list = noting
    bench.slots = BucketSlots(bucket)
    holder, _ = bench.open(SlotOptions(beat_seconds=1e6))
    put(holder, *[b"x"] * 5)
    asked.clear()
    bench.open(standby=Standby())
    first, *others = asked
    assert first == "" and len(others) == 2, "where the end is; whether it still is; what is above the claim"
    assert all(int(each.rpartition("/")[2]) >= 5 for each in others)
