"""Which rowsets may share a key: those whose ranges do, told by a look at each."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from nyala.engine.compaction.key_merge import _overlapping


class Range:
    """The key range of a rowset, which counts how often it is asked for."""

    looks = 0

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    @property
    def min_key(self) -> bytes:
        Range.looks += 1
        return self.low.to_bytes(4)

    @property
    def max_key(self) -> bytes:
        Range.looks += 1
        return self.high.to_bytes(4)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_that_have_keys_in_common(seed: int) -> None:
    random = Random(seed)
    ranges: list[Any] = [Range(low, low + random.choice([0, 1, 3, 30])) for low in random.choices(range(60), k=seed)]
    near = {
        one
        for one in ranges
        for other in ranges
        if other is not one and one.low <= other.high and other.low <= one.high
    }
    found = _overlapping(ranges)
    assert set(found) == near and len(found) == len(near)


def test_a_tablet_may_have_thousands() -> None:
    ranges: list[Any] = [Range(2 * number, 2 * number + 1) for number in range(10_000)]
    Range.looks = 0
    assert not _overlapping(ranges)
    assert Range.looks <= 6 * len(ranges)
