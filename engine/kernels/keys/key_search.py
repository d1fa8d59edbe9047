"""Find a batch of keys in sorted ones: in which mini-block a key would be, and at which row of decoded mini-blocks."""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.gather import load_offset
from ..simd.simd import view_i64, view_u64
from .keys import string_less, strings_equal


@inline
def _string_upper_bound(offsets, data, first, size, key, key_length):
    """Return the first of the strings ``first`` to ``first + size`` that sorts after the key."""
    while size > 0:
        half = size >> 1
        start = load_offset(offsets, first + half)
        length = load_offset(offsets, first + half + 1) - start
        if string_less(key, key_length, data + start, length):
            size = half
        else:
            first += half + 1
            size -= half + 1
    return first


@kernel
def last_strings_at_or_before(offsets, data, sorted_count, key_offsets, key_data, count, result):
    """Write for each key (int64) the last of the sorted strings that is not after it; -1 when all are."""
    found = view_i64(result, count)
    for i in range(count):
        start = load_offset(key_offsets, i)
        length = load_offset(key_offsets, i + 1) - start
        found[i] = _string_upper_bound(offsets, data, np.int64(0), np.int64(sorted_count), key_data + start, length) - 1


@kernel
def rows_of_words(words, word_count, firsts, lasts, keys, count, result):
    """Write for each key (uint64) the row at which it is in the sorted words [firsts[i], lasts[i]), or -1."""
    cells = view_u64(words, word_count)
    wanted = view_u64(keys, count)
    begins = view_i64(firsts, count)
    ends = view_i64(lasts, count)
    found = view_i64(result, count)
    for i in range(count):
        key, first, size = wanted[i], begins[i], ends[i] - begins[i]
        while size > 1:
            half = size >> 1
            first += half * np.int64(cells[first + half] <= key)
            size -= half
        found[i] = first if size == 1 and cells[first] == key else np.int64(-1)


@kernel
def rows_of_strings(offsets, data, firsts, lasts, key_offsets, key_data, count, result):
    """Write for each key the row at which it is in the sorted strings [firsts[i], lasts[i]), or -1."""
    begins = view_i64(firsts, count)
    ends = view_i64(lasts, count)
    found = view_i64(result, count)
    for i in range(count):
        key = key_data + load_offset(key_offsets, i)
        length = load_offset(key_offsets, i + 1) - load_offset(key_offsets, i)
        row = _string_upper_bound(offsets, data, begins[i], ends[i] - begins[i], key, length) - 1
        found[i] = -1
        if row >= begins[i]:
            start = load_offset(offsets, row)
            if load_offset(offsets, row + 1) - start == length and strings_equal(data + start, key, length):
                found[i] = row
