"""Those who wait for a listing of the log share it, and its failure."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from nyala.engine.replica.log_listing import LogListing
from nyala.schemas.errors import UnavailableError
from tests.doubles.waiting import until


class Asked:
    """A lock that counts who asked for it."""

    def __init__(self) -> None:
        self.count = 0
        self._lock, self._mutex = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._mutex:
            self.count += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Subject:
    """A listing of a bucket that answers when a test says so."""

    def __init__(self) -> None:
        self.sent = 0
        self.may_answer = threading.Event()
        self.is_away = True
        ticks = count(1)
        self.listing = LogListing(lambda: float(next(ticks)))
        self.asked: Any = Asked()
        self.listing._one_at_a_time = self.asked
        self.answers: list[Any] = []

    def _list_end(self) -> int:
        self.sent += 1
        assert self.may_answer.wait(30)
        if self.is_away:
            raise UnavailableError("the bucket is away")
        return 7

    def since(self, moment: float) -> tuple[float, int]:
        return self.listing.since(moment, self._list_end)

    def ask(self, moment: float) -> None:
        try:
            self.answers.append(self.since(moment))
        except UnavailableError as error:
            self.answers.append(error.message)

    def ask_in_threads(self, threads: int, moment: float) -> list[threading.Thread]:
        """Return when all of them wait."""
        found = [threading.Thread(target=self.ask, args=(moment,)) for _ in range(threads)]
        before = self.asked.count
        for each in found:
            each.start()
        until(lambda: self.asked.count == before + threads)
        return found


def test_one_failure_is_that_of_all_who_asked_before_it_ended() -> None:
    subject = Subject()
    waiting = subject.ask_in_threads(20, 1.0)
    subject.may_answer.set()
    for each in waiting:
        each.join(30)
    assert subject.answers == ["the bucket is away"] * 20
    assert subject.sent == 1
    subject.ask(1.0)
    assert subject.sent == 2, "whoever asks later has a request sent"
    subject.is_away = False
    subject.ask(1.0)
    assert subject.answers[-1] == (3.0, 7)


def test_who_can_use_an_answer_gets_it_though_another_request_failed() -> None:
    subject = Subject()
    subject.may_answer.set()
    subject.is_away = False
    assert subject.since(0.5) == (1.0, 7)
    subject.is_away = True
    with pytest.raises(UnavailableError):
        subject.since(1.5)
    assert subject.since(0.7) == (1.0, 7)
    assert subject.sent == 2


def test_an_answer_is_for_those_only_who_asked_before_it_was_sent() -> None:
    subject = Subject()
    subject.is_away = False
    first = subject.ask_in_threads(1, 0.5)
    later = subject.ask_in_threads(5, 1.5)
    subject.may_answer.set()
    for each in (*first, *later):
        each.join(30)
    assert subject.answers[0] == (1.0, 7) and subject.answers[1:] == [(2.0, 7)] * 5
    assert subject.sent == 2
