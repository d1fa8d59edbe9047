"""A log of slots with one holder at a time, and no faults."""

import json
import threading
from collections.abc import Iterable
from itertools import chain

import pytest

from nyala.engine.mvcc.clock import timestamp_of
from nyala.engine.wal.slots import SlotOptions, check_slots
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.schemas.errors import CorruptionError, InternalError, UnavailableError
from tests.dose import dose
from tests.doubles.slots import FaultySlots
from tests.doubles.waiting import until
from tests.engine.wal.slots.slot_bench import SlotBench, appended, put


def test_what_is_appended_comes_back(bench: SlotBench) -> None:
    log, before = bench.open()
    assert (before, log.first_lsn, log.writer.last_lsn, log.reign) == ([], 1, 0, 1)
    assert put(log, b"one", b"", b"three" * 9) == 3
    assert log.writer.append_at_once([b"four", b"five"], lambda n: [log.clock.now() for _ in range(n)]) == 4
    log.wait(5)
    assert log.close() is None
    again, found = bench.open()
    assert found == [b"one", b"", b"three" * 9, b"four", b"five"]
    assert (again.reign, again.writer.last_lsn, again.writer.durable_lsn, again.store_uuid) == (2, 5, 5, log.store_uuid)
    assert put(again, b"six") == 6
    claim, records, release = SlotKind.CLAIM, SlotKind.RECORDS, SlotKind.RELEASE
    assert bench.kinds() == [claim, *[records] * 4, release, claim, records]


def test_a_log_is_used_after_its_replay(bench: SlotBench) -> None:
    log = bench.unread()
    with pytest.raises(InternalError):
        log.writer.reserve(1)
    assert list(log.peek()) == list(log.replay()) == []
    with pytest.raises(InternalError):
        list(log.replay())
    put(log, b"x")


def test_what_is_looked_through_is_fetched_once(bench: SlotBench) -> None:
    put(bench.open()[0], *[b"x"] * 40)
    bench.logs[0].close()
    log = bench.unread()
    bench.slots.calls.clear()
    assert (
        [record.lsn for record in chain.from_iterable(log.peek())]
        == [record.lsn for record in chain.from_iterable(log.replay())]
        == list(range(1, 41))
    )
    assert sorted(numbers for call, numbers in bench.slots.calls if call == "read") == [(n,) for n in range(1, 44)]


def test_a_manifest_counts_from_its_slot_on(bench: SlotBench) -> None:
    log, _ = bench.open()
    assert (log.newest.manifest, log.newest.needed_slot) == ("", 1)
    log.commit_manifest("manifests/1-1", 11, 1)
    put(log, b"one", b"two")
    log.commit_manifest("manifests/1-2", 12, 2)
    log.close()
    again, found = bench.open()
    assert (again.newest.manifest, again.newest.manifest_crc) == ("manifests/1-2", 12)
    assert (again.newest.needed_slot, again.first_lsn, found) == (4, 2, [b"two"])


def test_a_manifest_shares_a_slot_with_records_that_wait(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one")
    appended(log, b"two")
    log.commit_manifest("manifests/1-1", 11, 2)
    assert log.writer.durable_lsn == 2
    assert (log.newest.kind, log.newest.manifest, log.newest.number) == (SlotKind.RECORDS, "manifests/1-1", 3)
    assert (log.newest.needed_slot, log.newest.needed_lsn) == (3, 2)


def test_a_manifest_may_be_committed_during_the_replay(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two", b"three")
    log.close()
    again = bench.unread()
    records = again.replay()
    next(records)
    again.wait(1)
    again.commit_manifest("manifests/2-1", 1, 2)
    assert again.newest.needed_slot == 1, "which slots there are is not known yet"
    assert len(list(records)) == 2
    again.commit_manifest("manifests/2-2", 1, 2)
    assert again.newest.needed_slot == 3


def test_slots_are_freed_after_the_slot_that_no_longer_needs_them(bench: SlotBench) -> None:
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, free_slots=3))
    put(log, b"one", b"two", b"three")
    assert not log.can_free_before(3)
    assert log.can_free_before(4)
    assert log.free_before(4) == 0 and 2 in bench.slots.content, "no manifest says so"
    log.commit_manifest("manifests/1-1", 1, 4)
    size = sum(map(len, (bench.slots.content[number] for number in (2, 3, 4))))
    assert log.free_before(4) == size
    assert sorted(bench.slots.content) == [1, 5], "the claim and the newest"
    assert log.stats().segment_count == 1
    put(log, b"four")
    log.close()
    assert bench.open()[1] == [b"four"]
    assert check_slots(bench.slots).claims == [1, 8]


def test_a_closed_log_has_no_more_slots_than_are_needed(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two", b"three")
    log.commit_manifest("manifests/1-1", 1, 3)
    log.close()
    assert sorted(bench.slots.content) == [1, 4, 5, 6]
    assert check_slots(bench.slots).leftovers == []


def test_groups_are_read_while_others_append(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two", b"three")
    assert [[record.lsn for record in group] for group in log.records_up_to(2)] == [[1], [2]]
    assert [bytes(group[0].payload) for group in log.records_up_to(3)] == [b"one", b"two", b"three"]


def test_stats_count(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two")
    stats = log.stats()
    log.close()
    assert (stats.records, stats.groups, stats.segment_count, stats.last_lsn) == (2, 2, 3, 2)
    assert stats.bytes_written == sum(len(bench.slots.content[number]) for number in (2, 3))


def test_an_idle_holder_beats(bench: SlotBench) -> None:
    log, _ = bench.open(SlotOptions(beat_seconds=0.01))
    bench.boot.wait(1)
    until(lambda: SlotKind.BEAT in bench.kinds())
    assert log.lease.holds


def test_a_beat_says_what_is_safe(bench: SlotBench) -> None:
    log, _ = bench.open()
    put(log, b"one")
    newest = log.clock.now()
    bench.clock.advance(10_000)
    log.commit_manifest("m", 1, 1)
    assert log.newest.safe >= newest
    assert log.clock.now() > log.newest.safe


def test_records_that_still_wait_are_not_safe(bench: SlotBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer.GROUP_RECORDS_MAX", 1)
    log, _ = bench.open()
    times = [log.clock.now() for _ in range(2)]
    log.writer.append([[b"one"], [b"two"]], lambda _: times)
    log.wait(2)
    headers = [decode_slot(number, bench.slots.content[number]).header for number in (2, 3)]
    assert headers[0].safe == times[0] < times[1] <= headers[1].safe


def test_a_slot_has_a_bound_in_bytes(bench: SlotBench) -> None:
    log, _ = bench.open()
    small, large = b"s" * 1000, b"l" * 5000
    log._sink.group_bytes = 4000
    times = [log.clock.now() for _ in range(9)]
    lsn = log.writer.append([[small]] * 4 + [[large]] + [[small]] * 4, lambda _: times)
    log.wait(lsn + 8)
    slots = [decode_slot(number, bench.slots.content[number]) for number in sorted(bench.slots.content)[1:]]
    assert [len(list(slot.records())) for slot in slots] == [3, 1, 1, 3, 1]
    log.close()
    assert bench.open()[1] == [small] * 4 + [large] + [small] * 4


def test_a_manifest_waits_for_records_that_its_slot_has_no_room_for(bench: SlotBench) -> None:
    log, _ = bench.open()
    log._sink.group_bytes = 4000
    times = [log.clock.now() for _ in range(9)]
    log.writer.append([[b"s" * 1000]] * 9, lambda _: times)
    log.commit_manifest("manifests/1-1", 1, 10)
    with pytest.raises(InternalError, match="the last is 9"):
        log.commit_manifest("manifests/1-2", 1, 11)
    log.close()
    again, found = bench.open()
    assert (again.newest.manifest, found, again.writer.last_lsn) == ("manifests/1-1", [], 9)


def test_one_slot_serves_all_who_wait(bench: SlotBench) -> None:
    log, _ = bench.open()
    threads = [threading.Thread(target=lambda: put(log, *[b"x"] * 20)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.writer.last_lsn == log.writer.durable_lsn == 160
    assert log.stats().records == 160


def test_nothing_but_commits_lingers(bench: SlotBench) -> None:
    """Else a beat would come late, and the holder of an idle log would lose it."""
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, linger_seconds=30))
    asked = threading.Thread(target=log.check_held, daemon=True)
    asked.start()
    asked.join(10)
    assert not asked.is_alive()


def test_a_lingering_log_waits_for_others(bench: SlotBench) -> None:
    log, _ = bench.open(SlotOptions(beat_seconds=1e6, linger_seconds=0.2))
    threads = [threading.Thread(target=lambda: put(log, b"x")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.stats().groups <= 2


def test_a_closed_log_refuses(bench: SlotBench, caplog: pytest.LogCaptureFixture) -> None:
    log, _ = bench.open()
    log.close()
    log.close()
    assert not caplog.records
    for call in (lambda: appended(log, b"x"), lambda: log.commit_manifest("m", 1, 1), log.lease.check):
        with pytest.raises(UnavailableError):
            call()


def test_a_holder_beats_while_it_frees_the_log(bench: SlotBench) -> None:
    log, _ = bench.open(SlotOptions(beat_seconds=0.01))

    class Slow(FaultySlots):
        def delete(self, numbers: Iterable[int]) -> None:
            before = bench.slots.end()
            bench.boot.wait(1)
            until(lambda: bench.slots.end() > before)
            super().delete(numbers)

    put(log, b"one", b"two")
    log.commit_manifest("m", 1, 3)
    log._slots = Slow(bench.slots)
    log.close()
    assert 2 not in bench.slots.content and bench.kinds()[-1] is SlotKind.RELEASE


def test_about_tells_of_the_holder(bench: SlotBench) -> None:
    bench.open(about={"at": "host"})
    payload = bytes(decode_slot(1, bench.slots.content[1]).payload)
    assert json.loads(payload) == {"at": "host", "ttl_seconds": 5.0}


def test_timestamps_stay_below_the_ceiling(bench: SlotBench) -> None:
    log, _ = bench.open()
    ceiling = log.newest.ceiling
    assert ceiling == timestamp_of(bench.clock.physical_microseconds() + 5_000_000)
    bench.clock.advance(3_600_000_000)
    assert log.clock.now() < ceiling, "a leap of the clock is followed once a slot says so"
    put(log, b"x")
    assert log.newest.ceiling > log.clock.now() > ceiling
    log.clock.update(log.newest.ceiling)
    with pytest.raises(UnavailableError, match="has not confirmed the log"):
        log.clock.now()
    log.commit_manifest("m", 1, 1)
    log.clock.now()


def test_the_next_holder_starts_above_every_timestamp(bench: SlotBench) -> None:
    log, _ = bench.open()
    bench.clock.advance(1_000_000)
    handed_out = log.clock.now()
    log.close()
    bench.clock.advance(-3_600_000_000)
    again, _ = bench.open()
    assert again.clock.now() > log.newest.ceiling == log.newest.safe > handed_out
    put(again, b"x")


def test_a_log_that_is_released_gives_no_more_timestamps(bench: SlotBench) -> None:
    log, _ = bench.open()
    log.clock.update(ahead := log.clock.now() + timestamp_of(1_000_000))
    log.close()
    assert log.newest.ceiling >= ahead, "what was promised before stays below"
    log.clock.update(log.newest.ceiling)
    bench.clock.advance(2_000_000)
    for call in (log.clock.now, lambda: log.clock.update(log.newest.ceiling + 1)):
        with pytest.raises(UnavailableError):
            call()
    assert log.clock.settle() == log.newest.ceiling


def test_reads_of_now_end_before_others_may_write(bench: SlotBench) -> None:
    held: list[bool] = []
    log, _ = bench.open()
    way = FaultySlots(bench.slots, lambda call, number: held.append(log.lease.holds))
    log._sink._slots = way
    log.close()
    assert held == [False]


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_clock_does_not_run_ahead_however_often_a_log_is_opened(bench: SlotBench, is_clean: bool) -> None:
    """After a crash TTL of silence passes, which takes the ceiling with it."""

    def pause(seconds: float) -> None:
        bench.boot.wait(seconds)
        bench.clock.advance(round(seconds * 1e6))

    times = dose(20, 100)
    for _ in range(times):
        log, _ = bench.open(pause=pause)
        put(log, b"x")
        if is_clean:
            log.close()
        ahead = log.clock.settle() - timestamp_of(bench.clock.physical_microseconds())
        assert ahead < timestamp_of(1_000_000)
    assert bench.boot() - 100 < 1 if is_clean else bench.boot() - 100 > (times - 1) * 5.0


@pytest.mark.parametrize("number", [2, 3])
def test_a_gap_is_corruption(bench: SlotBench, number: int) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two")
    log.close()
    lost = bench.slots.content.pop(number)
    assert ["missing" in problem.why for problem in check_slots(bench.slots).problems] == [True]
    with pytest.raises(CorruptionError, match="missing"):
        bench.open()
    bench.slots.content[number] = lost


def test_a_slot_of_another_log_is_corruption(bench: SlotBench) -> None:
    other = SlotBench(8)
    for each in (bench, other):
        log, _ = each.open()
        put(log, b"one")
        log.close()
    mine, bench.slots.content[2] = bench.slots.content[2], other.slots.content[2]
    assert "store" in check_slots(bench.slots).problems[0].why
    with pytest.raises(CorruptionError, match="store"):
        bench.open()
    bench.slots.content[2] = mine
