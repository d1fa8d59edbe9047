"""Keys compared, hashed, picked and searched, in both of their forms."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.keys.keys import (
    BytesKeys,
    U64Keys,
    concat_keys,
    equal_at,
    first_occurrences,
    hash_keys,
    key_bytes,
    keys_as_bytes,
    keys_ascend,
    keys_less_equal,
    lower_bound,
    outermost_keys,
    slice_keys,
    take_keys,
)

from ..conftest import byte_strings, bytes_keys, cells_of, compiled

WIDTHS = [0, 1, 4, 8]  # 0 stands for keys of any length


def lists_of_keys(width, **limits):
    if width:
        near = st.sampled_from([0, 1, 2, 255]).map(lambda low: low.to_bytes(width, "big"))
        return st.lists(st.binary(min_size=width, max_size=width) | near, **limits)
    return st.lists(byte_strings, **limits)


def make_keys(width, values):
    if not width:
        return slice_keys(bytes_keys([b"before", *values]), 1, len(values) + 1)
    return U64Keys(np.array([int.from_bytes(key, "big") for key in values], np.uint64), width)


def values_of(keys):
    return [key_bytes(keys, row) for row in range(len(keys))]


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_the_least_and_the_greatest(width, data):
    values = data.draw(lists_of_keys(width, min_size=1, max_size=20))
    assert outermost_keys(make_keys(width, values)) == (min(values), max(values))


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_take_slice_and_concat(width, data):
    values = data.draw(lists_of_keys(width, max_size=20))
    keys = make_keys(width, values)
    assert values_of(keys) == values
    assert cells_of(keys_as_bytes(keys)) == values
    cut = data.draw(st.integers(0, len(values)))
    assert values_of(concat_keys([slice_keys(keys, cut, len(values)), slice_keys(keys, 0, cut)])) == (
        values[cut:] + values[:cut]
    )
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=20 * bool(values)))
    assert values_of(take_keys(keys, np.array(rows, np.int64))) == [values[row] for row in rows]


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_bounds_of_any_length_cut_as_bytes_compare(width, data):
    values = data.draw(lists_of_keys(width, max_size=20))
    bound = data.draw(byte_strings | st.sampled_from([*values, b""]))
    bound = bound + data.draw(st.sampled_from([b"", b"\0", b"\xff"]))
    keys = make_keys(width, values)
    assert keys_less_equal(keys, bound).tolist() == [value <= bound for value in values]
    ordered = make_keys(width, sorted(values))
    assert lower_bound(ordered, bound) == sum(value < bound for value in values)


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_equal_at_compares_whole_keys(width, data):
    left = data.draw(lists_of_keys(width, min_size=1, max_size=10))
    right = data.draw(st.lists(st.sampled_from(left), max_size=10)) + left[:1]
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(left) - 1), st.integers(0, len(right) - 1)), max_size=30))
    rows = np.array(pairs, np.int64).reshape(-1, 2).T
    equal = equal_at(make_keys(width, left), rows[0], make_keys(width, right), rows[1])
    assert equal.dtype == np.bool_
    assert equal.tolist() == [left[i] == right[j] for i, j in pairs]


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_first_occurrences_are_those_of_a_dict(width, data):
    values = data.draw(lists_of_keys(width, max_size=20))
    values += data.draw(st.lists(st.sampled_from(values or [bytes(width)]), max_size=20))
    keys = make_keys(width, values)
    expected = [values.index(value) for value in values]
    assert first_occurrences(keys, hash_keys(keys)).tolist() == expected
    same_hash = np.full(len(values), 7, np.uint64)
    assert first_occurrences(keys, same_hash).tolist() == expected


@pytest.mark.parametrize("width", WIDTHS)
@compiled
@given(data=st.data())
def test_keys_ascend_only_when_strictly_sorted(width, data):
    values = data.draw(lists_of_keys(width, max_size=6))
    for case in (values, sorted(values), sorted(set(values))):
        ascends = all(a < b for a, b in pairwise(case))
        assert keys_ascend(make_keys(width, case)) == ascends


def test_a_key_has_one_hash_wherever_it_lies():
    values = [bytes(range(length)) for length in range(80)]
    together = hash_keys(bytes_keys(values))
    alone = [hash_keys(bytes_keys([value]))[0] for value in values]
    assert together.tolist() == alone
    assert len(set(alone)) == len(values)


def similar_keys():
    """Return families of keys that differ little: a weak hash would show on them."""
    numbers = np.arange(200_000, dtype=np.uint64)
    zeros = [bytes(length) for length in range(2_000)]
    decimal = [b"customer/%09d" % number for number in range(200_000)]
    return {
        "sequence": U64Keys(numbers, 8),
        "high bits": U64Keys(numbers << np.uint64(44), 8),
        "zeros": bytes_keys(zeros),
        "decimal": bytes_keys(decimal),
    }


@pytest.mark.parametrize("family", ["sequence", "high bits", "zeros", "decimal"])
def test_hashes_of_similar_keys_are_spread(family):
    keys = similar_keys()[family]
    hashes = hash_keys(keys)
    assert len(np.unique(hashes)) == len(keys)
    for shift in (0, 24, 32, 52):  # the tag, and the top bits, which place a key in the index
        buckets = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(1023)).astype(np.int64), minlength=1024)
        expected = len(keys) / 1024
        chi_squared = ((buckets - expected) ** 2 / expected).sum()
        assert chi_squared < 1023 + 6 * (2 * 1023) ** 0.5, "six standard deviations"


def test_no_word_makes_the_hash_forget_the_others():
    constants = [0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3]
    for fixed in constants:
        heads = [fixed ^ other for other in (0, *constants, 16, 24, 32)]
        keys = [word.to_bytes(8, "little") + tail.to_bytes(8, "little") for word in heads for tail in range(64)]
        longer = [key + b"12345678" for key in keys]
        hashes = hash_keys(bytes_keys([*keys, *longer]))
        assert len(np.unique(hashes)) == len(set(keys)) + len(set(longer))


def test_forms_do_not_mix():
    words, strings = U64Keys(np.zeros(1, np.uint64), 8), bytes_keys([b"a"])
    row = np.zeros(1, np.int64)
    with pytest.raises(AssertionError):
        equal_at(words, row, strings, row)
    with pytest.raises(AssertionError):
        concat_keys([words, strings])
    assert isinstance(strings, BytesKeys)
