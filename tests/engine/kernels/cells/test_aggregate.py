"""Sums by group in tables that take turns, beside numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.kernels.cells import aggregate as kernels
from nyala.engine.vectors.memory.memory import address_of


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-(1 << 31), (1 << 31) - 1), st.booleans()), max_size=23),
    tables=st.sampled_from([1, kernels.TABLES]),
)
def test_sums_by_group_are_those_of_numpy(rows: list[tuple[int, int, bool]], tables: int) -> None:
    groups = np.array([group for group, _, _ in rows], np.int32)
    words = np.array([word for _, word, _ in rows], np.int32)
    valid = np.array([known for _, _, known in rows], np.uint8)
    floats, shape = words.astype(np.float64) / 4, (tables, 5)
    expected = np.zeros(5)
    np.add.at(expected, groups, floats)

    counts, totals = np.zeros(shape, np.int64), np.zeros(shape)
    places = address_of(groups), address_of(floats), len(rows), 5
    kernels.count_and_add(*places, address_of(counts), address_of(totals), tables)
    assert counts.sum(axis=0).tolist() == np.bincount(groups, minlength=5).tolist()
    assert totals.sum(axis=0).tolist() == expected.tolist()

    alone, sums = np.zeros(shape), np.zeros(shape, np.int64)
    kernels.add_floats(*places, address_of(alone), tables)
    kernels.add_words(address_of(groups), address_of(words), len(rows), 5, address_of(sums), tables)
    assert (alone == totals).all()
    assert sums.sum(axis=0).tolist() == (4 * expected).tolist()

    known, all_rows = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    kernels.count_rows(address_of(groups), address_of(valid), len(rows), 5, address_of(known), tables)
    kernels.count_rows(address_of(groups), 0, len(rows), 5, address_of(all_rows), tables)
    assert known.sum(axis=0).tolist() == np.bincount(groups, valid, 5).tolist()
    assert (all_rows == counts).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_cells_that_are_not_known_become_zero(dtype: type) -> None:
    cells = np.array([1, -1, 7, -(1 << 31), 5], dtype)
    if dtype is np.float64:
        cells[1:3] = np.nan, -np.inf
    valid, kept = np.array([1, 0, 0, 1, 1], np.uint8), np.empty_like(cells)
    kernels.keep_known(address_of(cells), address_of(valid), len(cells), cells.itemsize, address_of(kept))
    assert kept.tolist() == [1, 0, 0, -(1 << 31), 5]
