"""The policy against all subsets there are, and what it must and must not do."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.compaction.policy import MIN_GAIN, Candidate, pick, place

MB = 1 << 20


def rowset(number: int, low: int, high: int, megabytes: float = 40, dead_share: float = 0.0) -> Candidate:
    return Candidate(number, low.to_bytes(8, "big"), high.to_bytes(8, "big"), int(megabytes * MB), dead_share)


@st.composite
def some_rowsets(draw: st.DrawFn) -> tuple[Candidate, ...]:
    def one(number: int) -> Candidate:
        low = draw(st.integers(0, 1000))
        high = low + draw(st.integers(0, 500))
        return rowset(number, low, high, draw(st.integers(1, 50)), draw(st.sampled_from([0, 0, 0.5])))

    return tuple(one(number) for number in range(draw(st.integers(1, 7))))


@settings(max_examples=200, deadline=None)
@given(candidates=some_rowsets(), budget=st.integers(1, 150))
def test_no_other_set_is_better(candidates: tuple[Candidate, ...], budget: int) -> None:
    placed = place(candidates)
    best = 0.0
    gains: dict[frozenset[int], float] = {}
    for count in range(1, len(placed) + 1):
        for chosen in combinations(placed, count):
            if sum(one.megabytes for one in chosen) <= budget:
                span = max(one.high for one in chosen) - min(one.low for one in chosen)
                gain = sum(one.worth for one in chosen) - span
                gains[frozenset(one.rowset_id for one in chosen)] = gain
                best = max(best, gain)
    picked = pick(candidates, budget)
    if picked is None:
        assert best <= MIN_GAIN + 1e-9
    else:
        assert picked.gain == pytest.approx(best)
        assert gains[picked.rowset_ids] == pytest.approx(best)


@given(candidates=some_rowsets())
def test_the_layout_is_by_data(candidates: tuple[Candidate, ...]) -> None:
    placed = place(candidates)
    assert min(one.low for one in placed) == 0
    assert max(one.high for one in placed) == pytest.approx(1)
    assert all(one.low < one.high for one in placed)


def test_rowsets_that_do_not_overlap_are_left_alone() -> None:
    assert pick(tuple(rowset(number, number * 100, number * 100 + 99) for number in range(10)), 1000) is None
    assert pick((), 100) is None


def test_overlap_is_merged_within_the_budget() -> None:
    rowsets = tuple(rowset(number, 0, 1000) for number in range(4))
    everything = pick(rowsets, 160)
    assert everything is not None and everything.rowset_ids == {0, 1, 2, 3}
    assert everything.gain == pytest.approx(3)
    half = pick(rowsets, 100)
    assert half is not None and len(half.rowset_ids) == 2
    assert pick(rowsets, 79) is None


def test_small_rowsets_merge_side_by_side_but_none_alone() -> None:
    small = tuple(rowset(number, number * 100, number * 100 + 99, 1) for number in range(3))
    picked = pick(small, 100)
    assert picked is not None and picked.rowset_ids == {0, 1, 2}
    assert pick(small[:1], 100) is None


def test_dead_rows_make_a_rowset_worth_rewriting_alone() -> None:
    rowsets = (rowset(1, 0, 99), rowset(2, 100, 199, dead_share=0.5))
    picked = pick(rowsets, 100)
    assert picked is not None and picked.rowset_ids == {2}
    assert picked.gain == pytest.approx(0.25)


def test_keys_of_any_length() -> None:
    rowsets = (
        Candidate(1, b"user-a", b"user-zz", 40 * MB),
        Candidate(2, b"user-b", b"user-y" * 3, 40 * MB),
        Candidate(3, b"user-zzz", b"user-zzzz", 40 * MB),
    )
    picked = pick(rowsets, 100)
    assert picked is not None and picked.rowset_ids == {1, 2}
