"""Which ranges are requested, so that all that is wanted comes, once, and little else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.bucket.files.fetching import REQUEST_BYTES, requests

RANGES = st.lists(
    st.tuples(st.integers(0, 2_000), st.integers(0, 300)).map(lambda at: (at[0], at[0] + at[1])), max_size=12
)


def covered(ranges: list[tuple[int, int]]) -> set[int]:
    return {byte for first, last in ranges for byte in range(first, last)}


@given(RANGES, RANGES)
def test_all_that_is_missing_comes_once_with_little_else(
    wanted: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> None:
    found = requests(wanted, taken)
    asked, missing = covered(found), covered(wanted) - covered(taken)
    assert missing <= asked and not asked & covered(taken)
    assert len(asked) == sum(last - first for first, last in found)
    assert len(asked) <= 1.2 * len(missing)


def test_a_long_range_is_cut() -> None:
    most = REQUEST_BYTES
    assert requests([(5, 2 * most + 6)], []) == [(5, most + 5), (most + 5, 2 * most + 5), (2 * most + 5, 2 * most + 6)]
    beside = [(0, most - 1), (most, 2 * most)]
    assert requests(beside, []) == beside
