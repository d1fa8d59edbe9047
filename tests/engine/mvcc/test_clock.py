"""Timestamps only go up, whatever the time of day does."""

import threading
import time

from nyala.engine.mvcc.clock import SystemClock, microseconds_of, timestamp_of
from tests.doubles.clock import ManualClock


def test_timestamps_hold_the_time_of_day() -> None:
    clock = ManualClock(5_000)
    assert clock.now() == 5_000 << 12
    assert clock.now() == (5_000 << 12) + 1
    clock.advance(1)
    assert clock.now() == timestamp_of(5_001)
    assert microseconds_of(timestamp_of(5_001) + 4_095) == 5_001


def test_a_clock_set_back_changes_nothing() -> None:
    clock = ManualClock(5_000)
    first = clock.now()
    clock.advance(-4_000)
    assert clock.now() == first + 1
    assert clock.physical_microseconds() == 1_000


def test_a_busy_microsecond_carries_over() -> None:
    clock = ManualClock(5_000)
    timestamps = [clock.now() for _ in range(10_000)]
    assert timestamps == list(range(timestamps[0], timestamps[0] + 10_000))
    clock.advance(1)
    assert clock.now() == timestamps[-1] + 1


def test_update_only_moves_forward() -> None:
    clock = ManualClock(5_000)
    clock.update(timestamp_of(9_000))
    clock.update(timestamp_of(7_000))
    assert clock.now() == timestamp_of(9_000) + 1


def test_the_system_clock_tells_the_time() -> None:
    clock = SystemClock()
    assert abs(microseconds_of(clock.now()) - time.time() * 1e6) < 5e6
    assert abs(clock.physical_microseconds() - time.time() * 1e6) < 5e6


def test_no_two_threads_get_the_same() -> None:
    clock = SystemClock()
    seen: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        mine.extend(clock.now() for _ in range(5_000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in seen)
    assert len({timestamp for mine in seen for timestamp in mine}) == 20_000
