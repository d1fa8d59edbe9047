"""Long work takes turns, short work does not, and nobody waits for ever."""

from __future__ import annotations

import threading
import time

from nyala.flight_server.requests.cpu_turns import SHORT_SECONDS, Turns, Work
from tests.doubles.waiting import until


def burn(seconds: float) -> None:
    """Use so much processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def alone() -> bool:
    return False


def test_who_has_worked_least_is_next() -> None:
    turns = Turns(1)
    assert turns.take(0)
    order: list[float] = []

    def wait(spent: float) -> None:
        assert turns.take(spent, 10)
        order.append(spent)
        turns.give_back()

    threads = [threading.Thread(target=wait, args=(spent,)) for spent in (3.0, 1.0, 2.0)]
    for thread in threads:
        thread.start()
    until(lambda: len(turns._queue) == 3)
    turns.give_back()
    for thread in threads:
        thread.join(10)
    assert order == [1.0, 2.0, 3.0]
    assert turns.take(0, 0) and not turns.take(0, 0), "all was given back, once"


def test_nobody_waits_for_ever() -> None:
    turns = Turns(1)
    assert turns.take(0)
    assert not turns.take(0, 0.01)
    assert not turns.are_wanted
    turns.give_back()
    assert turns.take(0, 0)


def test_short_work_takes_no_turn_and_long_work_does() -> None:
    turns = Turns(1)
    work = Work(turns)
    work.begin()
    work.step(False, alone)
    assert turns.take(0, 0), "it has none yet"
    turns.give_back()
    burn(1.5 * SHORT_SECONDS)
    work.step(False, alone)
    assert not turns.take(0, 0), "it has the only one"
    work.end()
    assert turns.take(0, 0), "it gave it back when it paused"
    turns.give_back()
    work.begin()
    work.step(False, alone)
    assert not turns.take(0, 0), "what it spent before the pause counts"
    work.end()


def test_a_turn_goes_on_to_who_waits() -> None:
    turns = Turns(1)
    work = Work(turns)
    work.begin()
    burn(1.1 * SHORT_SECONDS)
    work.step(False, alone)
    got = threading.Event()

    def wait() -> None:
        if turns.take(0, 10):
            got.set()
            turns.give_back()

    thread = threading.Thread(target=wait)
    thread.start()
    while not turns.are_wanted:
        time.sleep(0.001)
    work.step(False, alone)
    assert not got.is_set(), "a turn lasts a while"
    burn(1.1 * SHORT_SECONDS)
    work.step(False, alone)
    assert got.wait(10)
    thread.join(10)
    work.end()


def test_who_gives_way_rests_while_others_run_only() -> None:
    def seconds(others: bool) -> float:
        work = Work(Turns(1))
        work.begin()
        burn(0.005)
        before = time.monotonic()
        work.step(True, lambda: others)
        work.end()
        return time.monotonic() - before

    assert seconds(True) >= 0.01
    assert min(seconds(False) for _ in range(5)) < 0.01
