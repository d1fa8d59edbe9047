"""Requests that are under way at the same time: their order, their bound, and what an error leaves."""

import threading
import time
from itertools import count, islice

import pytest

from nyala.engine.bucket.at_once import at_once, in_order
from tests.doubles.waiting import until


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100])
def test_answers_come_in_the_order_of_the_requests(size: int) -> None:
    assert list(in_order(lambda each: each * 2, range(size))) == at_once(lambda each: each * 2, range(size))
    assert list(in_order(lambda each: each * 2, range(size))) == [each * 2 for each in range(size)]


def test_the_next_requests_are_under_way_while_an_answer_is_looked_at() -> None:
    second = threading.Event()

    def ask(number: int) -> int:
        if number == 1:
            second.set()
        return number

    answers = in_order(ask, range(100))
    assert next(answers) == 0
    assert second.wait(10)
    assert list(answers) == list(range(1, 100))


def test_a_reader_that_stops_early_has_made_few_requests() -> None:
    requests = []
    answers = in_order(requests.append, count())
    assert list(islice(answers, 3)) == [None] * 3
    answers.close()
    assert len(requests) <= 3 + 16
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("nyala-ask")])


def test_a_reader_that_is_dropped_waits_for_no_thread() -> None:
    """The garbage collector drops it on any thread, also on one that starts or ends: there a join waits for ever."""
    goes_on = threading.Event()

    def ask(number: int) -> int:
        if number:
            assert goes_on.wait(60)
        return number

    answers = in_order(ask, range(20))
    assert next(answers) == 0
    began = time.monotonic()
    answers.close()
    assert time.monotonic() - began < 30
    goes_on.set()


def test_an_error_comes_at_its_place() -> None:
    def ask(number: int) -> int:
        if number == 20:
            raise OSError("no answer")
        return number

    answers = in_order(ask, range(100))
    assert list(islice(answers, 20)) == list(range(20))
    with pytest.raises(OSError, match="no answer"):
        next(answers)
