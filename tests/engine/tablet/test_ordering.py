"""Which rows of a batch are stale, against a model that takes them one by one."""

from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.tablet.ordering import ranks_of, rows_in_time


def one_by_one(
    ranks: list[int], stored: list[int], keys: list[int], acts: list[bool], meets: bool
) -> tuple[list[bool], list[int], list[int]]:
    standing, applied = list(stored), [False] * len(stored)
    stale, first, last = [], [-1] * len(stored), [-1] * len(stored)
    for row, (rank, key) in enumerate(zip(ranks, keys, strict=True)):
        stale.append(rank < standing[key])
        if stale[-1]:
            continue
        last[key] = row
        if first[key] < 0:
            first[key] = row
        if acts[key] and not (meets and applied[key]):
            standing[key], applied[key] = rank, True
    return stale, first, last


@given(data=st.data(), count=st.integers(1, 5), meets=st.booleans())
def test_a_batch_is_ordered_as_its_rows_one_by_one(data, count, meets):
    keys = list(range(count)) + data.draw(st.lists(st.integers(0, count - 1), max_size=10))
    keys = data.draw(st.permutations(keys))
    ranks = data.draw(st.lists(st.integers(-3, 3), min_size=len(keys), max_size=len(keys)))
    stored = data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    acts = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    got = rows_in_time(np.array(ranks), np.array(stored), np.array(keys), np.array(acts), meets)
    stale, first, last = one_by_one(ranks, stored, keys, acts, meets)
    assert got.stale.tolist() == stale
    assert [row for row, each in zip(got.first.tolist(), acts, strict=True) if each] == [
        row for row, each in zip(first, acts, strict=True) if each
    ]
    if not meets:
        assert got.last.tolist() == last


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.int8(), [-128, 0, 127]),
        (pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]),
        (pa.string(), ["", "a", "a\0", "b", "\u00e4"]),
        (pa.binary(), [b"", b"\0", b"\xff"]),
        (pa.decimal128(38, 4), [Decimal("-" + "9" * 34), Decimal("-0.0001"), Decimal("0"), Decimal("9" * 34)]),
        (pa.decimal128(5, 2), [Decimal("-1.00"), Decimal("2.50")]),
        (pa.timestamp("us"), [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1)]),
    ],
    ids=str,
)
def test_ranks_compare_as_the_cells_do(kind: pa.DataType, ascending: list) -> None:
    cells = pa.array([None, *ascending], kind)
    mine, theirs = ranks_of([cells, cells[::-1]])
    assert (mine[1:] > mine[:-1]).all()
    assert theirs.tolist() == mine.tolist()[::-1]
