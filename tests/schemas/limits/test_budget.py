"""Budgets of bytes, and the shares of users in them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.schemas.errors import UnavailableError
from nyala.schemas.limits.budget import Budget, BudgetShare


def test_a_user_leaves_bytes_to_another() -> None:
    budget = Budget("staged streams", 100)
    greedy, modest = (BudgetShare(budget, user=user) for user in ("greedy", "modest"))
    greedy.take(25)
    greedy.take(25)
    with pytest.raises(UnavailableError, match="use 50 of 100 bytes, 50 of them by the user 'greedy'"):
        greedy.take(1)
    modest.take(40)  # the first portion, whatever is left
    with pytest.raises(UnavailableError):
        modest.take(1)
    greedy.give_back()
    modest.take(5)
    nobody = BudgetShare(budget)
    nobody.take(30)
    nobody.take(25)
    for share in (modest, nobody):
        share.give_back()
    greedy.take(101)  # one portion may always be taken
    greedy.give_back()
    assert not budget._taken


def test_who_waits_gets_what_is_given_back() -> None:
    budget = Budget("sorts", 100)
    first, second = BudgetShare(budget), BudgetShare(budget, wait_seconds=10)
    first.take(80)
    giver = threading.Timer(0.05, first.keep, [30])
    giver.start()
    second.take(60)
    giver.join()
    with pytest.raises(UnavailableError, match="sorts use 90 of 100 bytes; try again"):
        first.take(20)


def test_what_is_spare_leaves_half() -> None:
    budget = Budget("scans", 100)
    share = BudgetShare(budget)
    assert share.take_spare(30) and share.take_spare(20) and not share.take_spare(1)
    share.take(50)
    share.give_back()
    assert not budget._taken
    assert not share.take_spare(51)


def test_of_those_who_hold_and_wait_the_one_with_most_gets_on() -> None:
    budget = Budget("sorts", 100)
    first, second, third = (BudgetShare(budget, wait_seconds=10) for _ in range(3))
    for share, size in ((first, 30), (second, 40), (third, 30)):
        share.take(size)
    began = time.monotonic()

    def run(share: BudgetShare) -> bool:
        with share:
            try:
                share.take(25)
            except UnavailableError:
                return False
            return True

    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(run, (first, second, third)))
    assert outcomes[1] and outcomes.count(False) in (1, 2)
    assert time.monotonic() - began < 5
    assert not budget._taken
