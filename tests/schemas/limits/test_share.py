"""Shares of users in a limit."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from nyala.schemas.limits.share import is_over_share, most_greedy


@pytest.mark.parametrize("limit", [1, 2, 3, 16, 100, 256])
def test_a_user_alone_has_half_and_another_one_comes_in(limit: int) -> None:
    own = 0
    while not is_over_share(limit, own + 1, own + 1):
        own += 1
    assert own == max(limit // 2, 1)
    assert limit == 1 or not is_over_share(limit, own + 1, 1)


def test_however_users_take_and_give_back_another_one_has_room() -> None:
    random, limit = Random(0), 64
    held: Counter[str] = Counter()
    for _ in range(20_000):
        user = random.choice("aaaabbc")
        if random.random() < 0.3 and held[user]:
            held[user] -= 1
        elif held.total() < limit and not is_over_share(limit, held.total() + 1, held[user] + 1):
            held[user] += 1
        assert held.total() <= limit - limit // 16, "a fourth one may have a sixteenth"
        assert max(held.values(), default=0) <= limit // 2


def test_the_user_with_most_gives_way() -> None:
    assert most_greedy({"a": 1, "b": 3, "": 2}) == "b"
