"""Threads that take turns: locks lock, time jumps, deadlocks are named, and a seed has one trace."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from nyala.engine import threads
from nyala.engine.mvcc.clock import SystemClock, boot_seconds

from .choices import Priorities, RandomWalk, choices_of
from .scheduler import HangError, Scheduler, Stopped
from .world import simulated


def run(work: Callable[[], object], seed: int = 0, lines_kept: int = 0) -> Scheduler:
    """Run ``work`` in a simulation."""
    scheduler = Scheduler(choices_of(Random(f"{seed} choices")), Random(seed), lines_kept=lines_kept)
    with simulated(scheduler, Random(seed)):
        scheduler.run(work)
    return scheduler


def beside(*works: Callable[[], object]) -> None:
    """Run works in threads of their own, and wait for all."""
    running = [threads.Thread(target=work, name=f"work {number}") for number, work in enumerate(works)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def counted(lock: object, rounds: int = 20) -> int:
    """Return a sum that two threads add to; without a lock additions are lost, if the seed wills it."""
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(rounds):
            with lock:  # pyright: ignore[reportGeneralTypeIssues]
                before = total
                threads.sleep(0)
                total = before + 1

    beside(add, add)
    return total


class NoLock:
    """Locks nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize("make", ["Lock", "RLock", "Condition", "BoundedSemaphore"])
def test_what_excludes_others_does(make: str) -> None:
    for seed in range(20):
        sums = list[int]()
        run(lambda sums=sums: sums.append(counted(getattr(threads, make)())), seed)
        assert sums == [40]


def test_additions_without_a_lock_are_lost() -> None:
    sums = list[int]()
    run(lambda: sums.append(counted(NoLock())))
    assert sums[0] < 40


def test_time_is_virtual() -> None:
    def work() -> None:
        clock, began = SystemClock(), boot_seconds()
        before = clock.physical_microseconds()
        beside(lambda: threads.sleep(3600), lambda: threads.Event().wait(7200))
        assert 7200 <= boot_seconds() - began < 7201
        assert 7200 <= (clock.physical_microseconds() - before) / 1e6 < 7201

    assert 7200 <= run(work).now < 7201


def test_a_condition_wakes_who_waits_and_times_out() -> None:
    def work() -> None:
        condition, is_there = threads.Condition(), list[int]()

        def wait() -> None:
            with condition:
                assert condition.wait_for(lambda: is_there, 10)

        def bring() -> None:
            threads.sleep(5)
            with condition:
                is_there.append(1)
                condition.notify_all()

        beside(wait, wait, bring)
        with condition:
            assert not condition.wait_for(lambda: False, 2)

    assert 7 <= run(work).now < 7.5


def test_a_pool_works_and_hands_on_errors() -> None:
    def work() -> None:
        with threads.ThreadPoolExecutor(3, "pool") as pool:
            assert list(pool.map(lambda number: number * 2, range(10))) == list(range(0, 20, 2))
            call = pool.submit(lambda: 1 // 0)
            threads.wait([call])
            assert isinstance(call.exception(), ZeroDivisionError)
        with pytest.raises(RuntimeError, match="shutdown"):
            pool.submit(int)

    run(work)


def test_a_deadlock_names_the_place_of_each_thread() -> None:
    def work() -> None:
        first, second = threads.Lock(), threads.Lock()

        def one_way() -> None:
            with first:
                threads.sleep(1)
                with second:
                    pass

        def other_way() -> None:
            with second:
                threads.sleep(1)
                with first:
                    pass

        beside(one_way, other_way)

    with pytest.raises(HangError, match=r"(?s)all threads wait for each other.*one_way.*other_way"):
        run(work)


def test_a_thread_that_fails_is_noted() -> None:
    failures = run(lambda: beside(lambda: 1 // 0)).failures
    assert [(name, type(error)) for name, error in failures] == [("work 0", ZeroDivisionError)]


def test_a_run_stops_at_any_step_and_nothing_goes_on() -> None:
    for step in range(1, 200, 7):
        events = list[int]()

        def count(events: list[int] = events) -> None:
            for number in range(100):
                threads.sleep(0.01)
                events.append(number)

        scheduler = Scheduler(RandomWalk(Random(step), 0.3), Random(step))
        scheduler.stop_at(step, lambda events=events: events.append(-1))
        with simulated(scheduler, Random(step)), pytest.raises(Stopped):
            scheduler.run(lambda count=count: beside(count, count))
        assert events[-1] == -1
        assert not scheduler.failures


def test_the_end_of_a_run_is_the_same_when_a_library_puts_it_into_other_words() -> None:
    def work() -> None:
        for _ in range(100):
            try:
                threads.sleep(0.01)
            except BaseException as error:
                raise ValueError("a serializer failed") from error

    for step in range(1, 60, 7):
        scheduler = Scheduler(RandomWalk(Random(step), 0.3), Random(step))
        scheduler.stop_at(step, lambda: None)
        with simulated(scheduler, Random(step)), pytest.raises(Stopped):
            scheduler.run(lambda: (beside(work, work), work()))
        assert not scheduler.failures


def test_a_seed_has_one_trace_and_another_seed_another() -> None:
    def work() -> None:
        lock = threads.Lock()
        beside(*[lambda: counted(lock, 5)] * 3)

    traces = [run(work, seed).trace for seed in range(10)]
    assert traces == [run(work, seed).trace for seed in range(10)]
    assert len(set(traces)) == 10


def test_priorities_let_one_thread_stand_still() -> None:
    """Under a walk, threads that work alike end alike; a low priority makes the first one last."""
    order = list[list[int]]()

    def work() -> None:
        ends = list[int]()

        def step(number: int) -> None:
            lock = threads.Lock()
            for _ in range(50):
                with lock:
                    pass
            ends.append(number)

        beside(*[lambda number=number: step(number) for number in range(4)])
        order.append(ends)

    for seed in range(20):
        scheduler = Scheduler(Priorities(Random(seed), 1, 100), Random(seed))
        with simulated(scheduler, Random(seed)):
            scheduler.run(work)
    assert len({tuple(ends) for ends in order}) > 5
