"""Sorting and merging keys, against Python's own order of bytes."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.keys.keys import U64Keys, argsort_keys, merge_order

from ..conftest import byte_strings, bytes_keys, compiled


def sorted_by_us(values):
    return [values[row] for row in argsort_keys(bytes_keys(values))]


@compiled
@given(st.lists(byte_strings, max_size=60))
def test_sort_is_memcmp(values):
    assert sorted_by_us(values) == sorted(values)


@compiled
@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_sort_of_words_is_unsigned(values):
    order = argsort_keys(U64Keys(np.array(values, np.uint64), 8))
    assert [values[row] for row in order] == sorted(values)
    assert order.dtype == np.int64


@pytest.mark.parametrize("alphabet", [b"\0", b"\0\1", b"\0\xff", b"ab"])
@pytest.mark.parametrize("prefix", [0, 7, 8, 30])
def test_sort_of_large_tied_groups(alphabet, prefix):
    """More rows than the plain sort takes, tied for several words, zeros at every border."""
    random = np.random.default_rng(prefix)
    letters = np.frombuffer(alphabet, np.uint8)
    heads = [b"p" * prefix + bytes([group] * 9) for group in range(3)]
    values = [
        heads[random.integers(3)] + letters[random.integers(0, len(letters), length)].tobytes()
        for length in random.integers(0, 40, 3_000)
    ]
    assert sorted_by_us(values) == sorted(values)


def test_prefixes_of_each_other():
    values = [bytes(length) for length in range(100)]
    values += [b"k" * length for length in range(100)]
    np.random.default_rng(0).shuffle(values)
    assert sorted_by_us(values) == sorted(values)


@st.composite
def sorted_streams(draw, values):
    """Return distinct values dealt to streams, each sorted."""
    cells = draw(st.sets(values, max_size=60))
    deal = draw(st.sampled_from(["any", "ranges"]))
    count = draw(st.integers(1, 7))
    streams: list[list] = [[] for _ in range(count)]
    for place, cell in enumerate(sorted(cells)):
        number = place * count // max(len(cells), 1) if deal == "ranges" else None
        streams[draw(st.integers(0, count - 1)) if number is None else number].append(cell)
    return draw(st.permutations(streams))


@compiled
@given(sorted_streams(byte_strings))
def test_merge_of_strings(streams):
    rows = merge_order([bytes_keys(stream) for stream in streams])
    laid = list(chain(*streams))
    assert [laid[row] for row in rows] == sorted(laid)
    assert rows.dtype == np.int64


@compiled
@given(sorted_streams(st.integers(0, 2**64 - 1) | st.integers(0, 100)))
def test_merge_of_words(streams):
    rows = merge_order([U64Keys(np.array(stream, np.uint64), 8) for stream in streams])
    laid = list(chain(*streams))
    assert [laid[row] for row in rows] == sorted(laid)


def test_merge_leaves_its_streams_alone():
    left, right = np.array([1, 4], np.uint64), np.array([2, 3], np.uint64)
    left.flags.writeable = right.flags.writeable = False
    assert merge_order([U64Keys(left, 8), U64Keys(right, 8)]).tolist() == [0, 2, 3, 1]


def test_merge_of_nothing():
    assert merge_order([]).tolist() == []
    assert merge_order([bytes_keys([])]).tolist() == []


def test_merge_keeps_every_one_of_equal_keys():
    rows = merge_order([bytes_keys([b"a", b"b"]), bytes_keys([b"b"]), bytes_keys([b"a"])]).tolist()
    assert sorted(rows) == [0, 1, 2, 3]
    assert set(rows[:2]) == {0, 3}


@pytest.mark.parametrize("low", [0, 2**63 - 50_000, 2**64 - 2_000_000])
@pytest.mark.parametrize("step", [1, 1_000, 2**46])
@pytest.mark.parametrize("runs", [2, 3, 7, 16])
def test_merge_of_long_runs(low: int, step: int, runs: int):
    """Words that leave room for the row, and ones that do not; runs long enough to be merged in four chains."""
    random = np.random.default_rng(runs)
    step = min(step, (2**64 - 1 - low) // 20_000)
    keys = np.uint64(low) + np.arange(20_000, dtype=np.uint64) * np.uint64(step)
    deal = np.sort(random.integers(0, runs, len(keys))) if step == 1_000 else random.integers(0, runs, len(keys))
    swapped = random.integers(0, len(keys), 50)
    deal[swapped] = random.permutation(deal[swapped])
    streams = [keys[deal == run] for run in random.permutation(runs)]
    rows = merge_order([U64Keys(stream, 8) for stream in streams])
    assert (np.concatenate(streams)[rows] == keys).all()
    strings = [bytes_keys([b"prefix" + key.tobytes()[::-1] * 2 for key in stream]) for stream in streams]
    assert (np.concatenate(streams)[merge_order(strings)] == keys).all()


def test_merge_of_strings_that_tie_for_long():
    rows = sorted(bytes([number // 1_000]) * 9 + b"%06d" % number for number in range(3_000))
    streams = [rows[run::3] for run in range(3)]
    laid = list(chain(*streams))
    assert [laid[row] for row in merge_order([bytes_keys(stream) for stream in streams])] == rows


def test_merge_keeps_equal_keys_of_a_stream_in_place():
    streams = [np.repeat(np.arange(0, 300, 2, dtype=np.uint64), 3), np.arange(1, 300, 2, dtype=np.uint64)]
    rows = merge_order([U64Keys(stream, 8) for stream in streams])
    assert (np.diff(rows[rows < 450]) == 1).all()
