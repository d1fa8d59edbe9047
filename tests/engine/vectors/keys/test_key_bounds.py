"""Ranges of keys in clusters: what overlaps is together, what does not is apart."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.keys.key_bounds import overlapping

KEYS = st.binary(max_size=2)


@given(st.lists(st.tuples(KEYS, KEYS).map(lambda pair: (min(pair), max(pair))), max_size=9))
def test_clusters_of_ranges(ranges: list[tuple[bytes, bytes]]) -> None:
    clusters = overlapping(ranges)
    in_order = [number for cluster in clusters for number in cluster]
    assert sorted(in_order) == list(range(len(ranges)))
    assert [ranges[number][0] for number in in_order] == sorted(least for least, _ in ranges)
    for before, after in pairwise(clusters):
        assert max(ranges[number][1] for number in before) < ranges[after[0]][0]
    for cluster in clusters:
        for place, number in enumerate(cluster[1:], 1):
            assert ranges[number][0] <= max(ranges[other][1] for other in cluster[:place])


def test_ranges_that_share_one_key_overlap() -> None:
    assert overlapping([(b"b", b"c"), (b"d", b"d"), (b"a", b"b")]) == [[2, 0], [1]]
