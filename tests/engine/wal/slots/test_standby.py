"""Standbys: they follow a log, take it over when nobody has it, and lose gracefully."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from nyala.engine.wal.slots import SlotLog
from nyala.engine.wal.slots.slot import SlotHeader, SlotKind
from nyala.engine.wal.slots.standby import Standby, StandbyStoppedError, TailedSlots
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.whereabouts import Holder
from tests.doubles.slots import FaultySlots, MemorySlots
from tests.engine.wal.slots.slot_bench import QUIET, SlotBench, appended, put

M1 = {"locations": ["grpc://m1:8815"]}


def standing_by(bench: SlotBench, standby: Standby, act: Any = lambda turn: None, **other: Any) -> tuple[SlotLog, Any]:
    """Open a log by a standby; ``act`` gets the number of each pause."""
    turns = [0]

    def pause(seconds: float) -> None:
        bench.boot.wait(seconds)
        turns[0] += 1
        act(turns[0])

    return bench.open(standby=standby, pause=pause, **other)


def test_a_standby_waits_while_the_holder_lives_and_takes_over_when_it_is_silent(bench: SlotBench) -> None:
    holder, _ = bench.open(about=M1)
    put(holder, b"one")
    last = [0.0]
    holders: list[Holder | None] = []
    standby = Standby()

    def live(turn: int) -> None:
        holders.append(standby.seen.holder if standby.seen else None)
        if turn < 200:  # 40 seconds: a process that does not stand by gives up after 10
            put(holder, b"x")
            last[0] = bench.boot()

    log, found = standing_by(bench, standby, live)
    assert found == [b"one"] + [b"x"] * 199
    assert 5 < bench.boot() - last[0] < 5.5
    assert holders[100] == Holder(locations=M1["locations"], epoch=1, process=holder.process.hex())
    assert standby.seen is not None and standby.seen.holder is None, "this process has the log, and is not open yet"
    with pytest.raises(UnavailableError, match="another process has the store"):
        put(holder, b"late")
    put(log, b"new")


def test_a_standby_sees_a_release_within_a_poll(bench: SlotBench) -> None:
    holder, _ = bench.open()
    began: list[float] = []

    def release(turn: int) -> None:
        if turn == 7:
            holder.close()
            began.append(bench.boot())

    standing_by(bench, Standby(), release)
    assert bench.boot() - began[0] <= QUIET.poll_seconds


@pytest.mark.parametrize("released", [True, False])
def test_a_standby_with_a_handicap_lets_others_be_first(bench: SlotBench, released: bool) -> None:
    holder, _ = bench.open()
    if released:
        holder.close()
    began = bench.boot()
    standing_by(bench, Standby(handicap_seconds=3.0))
    least = 3.0 if released else 8.0
    assert least <= bench.boot() - began < least + 0.5


def test_a_standby_goes_on_when_a_rival_is_faster(bench: SlotBench) -> None:
    bench.open()
    rivals: list[SlotLog] = []

    class Raced(FaultySlots):
        def create(self, number: int, content: bytes) -> bool:
            if not rivals:
                rivals.append(bench.open()[0])
                put(rivals[0], b"of the rival")
            return super().create(number, content)

    log, found = standing_by(bench, Standby(), way=Raced(bench.slots))
    assert found == [b"of the rival"]
    assert bench.kinds().count(SlotKind.CLAIM) == 3 and log.epoch > rivals[0].epoch


def test_a_standby_that_is_told_to_stop_claims_nothing(bench: SlotBench) -> None:
    bench.open()
    standby = Standby()
    with pytest.raises(StandbyStoppedError):
        standing_by(bench, standby, lambda turn: standby.stop() if turn == 3 else None)
    assert bench.kinds() == [SlotKind.CLAIM]


def test_a_standby_that_could_not_open_the_store_does_not_claim_it(bench: SlotBench) -> None:
    bench.open()
    checked: list[int] = []

    def check(header: SlotHeader) -> None:
        checked.append(header.number)
        if len(checked) < 4:
            raise OSError("the disk of the cache is gone")

    standby = Standby()
    standby.check = check
    standing_by(bench, standby)
    assert checked == [1] * 4 and standby.trouble == ""


def test_a_standby_survives_a_store_that_does_not_answer(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one")
    troubles: list[str] = []
    standby = Standby()
    way = FaultySlots(bench.slots, lambda call, number: "before" if 3 < number < 40 else None)
    _, found = standing_by(bench, standby, lambda turn: troubles.append(standby.trouble), way=way)
    assert found == [b"one"] and any(troubles) and standby.trouble == ""


def test_a_standby_that_can_read_the_log_again_has_no_trouble_left(bench: SlotBench) -> None:
    holder, _ = bench.open()
    troubles: list[str] = []
    standby = Standby()
    way = FaultySlots(bench.slots)

    def live(turn: int) -> None:
        troubles.append(standby.trouble)
        way.fault = lambda call, number: "before" if 10 < turn < 20 else None
        if turn < 40:
            put(holder, b"x")

    standing_by(bench, standby, live, way=way)
    assert any(troubles[10:20])
    assert not any(troubles[25:40]), "the holder lives, and its log can be read"


def test_slow_requests_of_its_own_make_a_standby_wait_longer(bench: SlotBench) -> None:
    bench.open()
    began = bench.boot()

    class Slow(FaultySlots):
        def read(self, number: int, is_patient: bool = True) -> bytes | None:
            bench.boot.wait(2.0 if number > 1 else 0.0)
            return super().read(number, is_patient)

    standing_by(bench, Standby(), way=Slow(bench.slots))
    assert bench.boot() - began > 7


def test_what_was_written_and_freed_while_a_standby_slept_is_not_claimed_over(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one")

    def sleep(turn: int) -> None:
        if turn == 2:
            put(holder, b"two", b"three")
            holder.commit_manifest("manifests/1-1", 1, 4)
            holder.free_before(4)
            bench.boot.wait(60)

    standby = Standby()
    log, found = standing_by(bench, standby, sleep)
    assert found == [] and log.newest.manifest == "manifests/1-1"
    assert bench.kinds().count(SlotKind.CLAIM) == 2, "no claim was void"


def test_a_store_is_taken_by_force_but_nothing_is_answered_while_the_former_holder_may_read(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one")
    standby = Standby()
    log = bench.unread(standby=standby, pause=lambda seconds: (bench.boot.wait(seconds), standby.take()))
    assert holder.lease.holds and bench.boot() - holder._sink.sent < 1, "the claim did not wait"
    with pytest.raises(UnavailableError, match="another process has the store"):
        holder.wait(appended(holder, b"late"))
    last_seen = standby.hold_until - QUIET.ttl_seconds
    assert [bytes(record.payload) for record in chain.from_iterable(log.replay())] == [b"one"]
    assert bench.boot() >= last_seen + QUIET.ttl_seconds and not holder.lease.holds


def test_a_forced_take_that_fails_releases_nothing_while_the_former_holder_may_read(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one")
    standby = Standby()
    standby.take()
    bench.unread(standby=standby).close()
    assert bench.kinds()[-1] is SlotKind.CLAIM, "the opening failed in the hold"
    bench.open(standby=Standby())
    assert not holder.lease.holds


def test_a_forced_take_makes_others_wait_for_the_time_of_the_former_holder(bench: SlotBench) -> None:
    holder, _ = bench.open(replace(QUIET, ttl_seconds=60.0))
    standby = Standby()
    standby.take()
    bench.unread(standby=standby)
    bench.open(standby=Standby())  # the one that took it is silent
    assert not holder.lease.holds


def test_a_holder_that_is_faster_than_a_claim_is_fenced_by_the_next_one(bench: SlotBench) -> None:
    holder, _ = bench.open()
    standby = Standby()
    standby.take()
    raced: list[int] = []

    class Raced(FaultySlots):
        def create(self, number: int, content: bytes) -> bool:
            if len(raced) < 3:
                raced.append(number)
                put(holder, b"x")
            return super().create(number, content)

    began = bench.boot()
    log, found = standing_by(bench, standby, way=Raced(bench.slots))
    assert log.epoch > holder.epoch and found == [b"x"] * 3
    assert standby.hold_until - began < QUIET.ttl_seconds + 1, "it did not wait for silence"


def test_a_holder_that_writes_all_the_time_is_taken_by_force(bench: SlotBench) -> None:
    holder, _ = bench.open()
    checked: list[int] = []

    def work() -> None:
        if bench.kinds().count(SlotKind.CLAIM) == 1:
            put(holder, b"x")

    def check(header: SlotHeader) -> None:
        checked.append(header.number)
        work()

    class Busy(FaultySlots):
        def end(self, after: int = 0) -> int:
            work()
            if self.count > 100:
                standby.stop()
            return super().end(after)

    standby = Standby()
    standby.check = check
    standby.take()
    log = bench.unread(standby=standby, way=Busy(bench.slots))
    assert log.epoch > holder.epoch and len(checked) == 1


def test_a_claim_that_landed_unnoticed_is_not_waited_for(bench: SlotBench) -> None:
    bench.open()[0].close()
    answers_from = bench.boot() + 2 * QUIET.ttl_seconds + 1
    way = FaultySlots(
        bench.slots, lambda call, _: "after" if call == "create" and bench.boot() < answers_from else None
    )
    standing_by(bench, Standby(), way=way)
    assert bench.boot() < answers_from + 1
    assert bench.kinds()[-2:] == [SlotKind.CLAIM] * 2


def test_a_forced_claim_that_is_void_is_followed_by_another(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"one")
    raced: list[int] = []

    class Freed(FaultySlots):
        def create(self, number: int, content: bytes) -> bool:
            if not raced:
                raced.append(number)
                put(holder, *[b"x"] * 6)
                holder.commit_manifest("manifests/1-1", 1, 8)
                holder.free_before(8)
            return super().create(number, content)

    standby = Standby()
    standby.take()
    began = bench.boot()
    log, _ = standing_by(bench, standby, way=Freed(bench.slots))
    assert log.epoch == 10 and standby.hold_until - began <= QUIET.ttl_seconds, "it did not wait for silence"


def test_force_ends_when_another_process_was_faster(bench: SlotBench) -> None:
    bench.open()
    standby = Standby()
    standby.take()
    rivals: list[SlotLog] = []

    class Raced(FaultySlots):
        def create(self, number: int, content: bytes) -> bool:
            if not rivals:
                bench.boot.wait(6)
                rivals.append(bench.open()[0])
            return super().create(number, content)

    began = bench.boot()
    standing_by(bench, standby, way=Raced(bench.slots))
    assert bench.boot() - began > 11 and not standby.is_forced


def test_force_is_for_the_holder_that_was_known(bench: SlotBench) -> None:
    bench.open()
    standby = Standby()
    next_one: list[SlotLog] = []

    def replace_holder(turn: int) -> None:
        if turn == 3:
            other = Standby()
            other.take()
            next_one.append(bench.open(standby=other)[0])
            standby.take()
        if turn > 3:
            put(next_one[0], b"x")
        if turn == 10:
            standby.stop()

    with pytest.raises(StandbyStoppedError):
        standing_by(bench, standby, replace_holder)
    assert not standby.is_forced


def test_force_does_not_last_for_ever(bench: SlotBench) -> None:
    holder, _ = bench.open()
    forced_until = bench.boot() + 12 * QUIET.ttl_seconds

    def check(_: SlotHeader) -> None:
        if bench.boot() < forced_until + 1:
            raise OSError("the disk of the cache is gone")

    def live(_: int) -> None:
        put(holder, b"x")
        if bench.boot() > forced_until + 5:
            standby.stop()

    standby = Standby()
    standby.check = check
    standby.take()
    with pytest.raises(StandbyStoppedError):
        standing_by(bench, standby, live)


def test_a_handicap_after_a_release_ends_when_another_process_had_the_log(bench: SlotBench) -> None:
    bench.open()[0].close()
    last: list[float] = []

    def take_and_die(turn: int) -> None:
        if turn == 3:
            put(bench.open()[0], b"x")
            last.append(bench.boot())

    standing_by(bench, Standby(handicap_seconds=5.0, handicap_later=1.0), take_and_die)
    assert 6 < bench.boot() - last[0] < 6.5


def test_the_slots_that_a_holder_replays_are_read_once(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, *[b"%d" % number for number in range(40)])
    calls: list[int] = []

    def note(turn: int) -> None:
        if turn == 10:
            bench.slots.calls.clear()

    standing_by(bench, Standby(), note)
    calls = [numbers[0] for call, numbers in bench.slots.calls if call == "read"]
    assert set(calls) == {41, 42}, "only the slot after the end is asked for"
    assert calls.count(41) == 1, "whether the end is as it was seen, before the claim"


def test_a_standby_that_has_no_room_for_a_slot_does_not_fetch_it_again(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, *[b"x" * 1000] * 40)

    def note(turn: int) -> None:
        if turn == 10:
            bench.slots.calls.clear()
        if turn == 20:
            calls.extend(numbers[0] for call, numbers in bench.slots.calls if call == "read")

    calls: list[int] = []
    standing_by(bench, Standby(kept_bytes=10_000), note)
    assert set(calls) == {42}, "only the slot after the end is asked for"


def test_a_standby_that_is_slower_than_the_holder_stays_near_the_end(bench: SlotBench) -> None:
    holder, _ = bench.open()
    behind: list[int] = []
    standby = Standby(kept_bytes=0)

    class Busy(FaultySlots):
        def read(self, number: int, is_patient: bool = True) -> bytes | None:
            if len(behind) < 200:
                put(holder, b"a", b"b")
                behind.append(holder.newest.number - (standby.seen.end if standby.seen else 0))
            return super().read(number, is_patient)

    standing_by(bench, standby, way=Busy(bench.slots))
    assert max(behind) < 100


def test_a_holder_whose_claim_could_not_be_read_is_waited_for_as_long_as_it_says(bench: SlotBench) -> None:
    holder, _ = bench.open()
    put(holder, b"a")
    next_one: list[SlotLog] = []
    failures: list[int] = []

    class Failing(FaultySlots):
        def read(self, number: int, is_patient: bool = True) -> bytes | None:
            if next_one and number == next_one[0].epoch and not failures:
                failures.append(number)
                raise UnavailableError("no answer")
            return super().read(number, is_patient)

    def replace_holder(turn: int) -> None:
        if turn == 3:  # while this standby stands still
            put(holder, b"b")
            bench.boot.wait(6)
            next_one.append(bench.open(replace(QUIET, ttl_seconds=30.0))[0])
            put(next_one[0], b"c", b"d")
            next_one[0].commit_manifest("manifests/1-1", 1, 5)
            next_one[0].free_before(5)

    standing_by(bench, Standby(), replace_holder, way=Failing(bench.slots))
    assert failures and not next_one[0].lease.holds


def test_slots_are_kept_within_bounds() -> None:
    slots = MemorySlots()
    for number in range(1, 6):
        slots.create(number, b"x" * 10)
    tailed = TailedSlots(slots, 25)
    assert [tailed.read(number) for number in range(1, 7)] == [b"x" * 10] * 5 + [None]
    assert [number for number in range(1, 7) if tailed.has(number)] == [1, 2]
    tailed.forget_before(2)
    tailed.read(5)
    assert [number for number in range(1, 7) if tailed.has(number)] == [2, 5]
    tailed.keep_nothing()
    assert tailed.read(2) == b"x" * 10 and not tailed.has(2)


def test_the_longer_of_two_times_is_waited_for_by_a_standby(bench: SlotBench) -> None:
    bench.open(replace(QUIET, ttl_seconds=60.0))
    began = bench.boot()
    standing_by(bench, Standby())
    assert 60 < bench.boot() - began < 61


@pytest.mark.parametrize("more", [-1, 0, 1, 20])
def test_a_standby_forgets_slots_of_a_log_that_was_put_back_to_an_earlier_state(bench: SlotBench, more: int) -> None:
    """Others have written as many slots since, or fewer, or more."""
    first, _ = bench.open()
    put(first, b"at first")
    first.close()
    saved = dict(bench.slots.content)
    gone, _ = bench.open()
    put(gone, *[b"is gone"] * 5)
    stays = [b"stays"] * (5 + more)
    standby = Standby()

    def act(turn: int) -> None:
        if turn == 500:
            standby.stop()
        if turn == 4:
            gone.lease.lose()
            bench.logs.remove(gone)
            bench.slots.content = saved
            put(bench.open()[0], *stays)

    _, found = standing_by(bench, standby, act)
    assert found == [b"at first", *stays]
