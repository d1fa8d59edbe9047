"""Orders of keys: radix-like refinement of tied byte strings.

A string is seen as words: 8 bytes from some depth on, big-endian, padded with zeros, so that words
compare as the bytes do. Padding makes "a" and "a\\0" tie; `_sort_by_ending` puts the prefix first.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.gather import load_offset
from ..simd.simd import byte_swap64, load_u8, load_u64, prefetch, trailing_zeros64, view_i64, view_u64
from .keys import string_less

_SMALL_GROUP = 16
"""Strings sorted by plain comparison, without looking at words."""
_LOOK_AHEAD = 16
"""Strings between the one being read and the one being fetched into the cache."""


@kernel
def common_prefix_length(offsets, data, count):
    """Return how many leading bytes all keys (at least one byte string) share."""
    start = load_offset(offsets, 0)
    shared = load_offset(offsets, 1) - start
    for i in range(1, count):
        other = load_offset(offsets, i)
        shared = min(shared, load_offset(offsets, i + 1) - other)
        position = np.int64(0)
        while position + 8 <= shared:
            differ = load_u64(data + start + position) ^ load_u64(data + other + position)
            if differ != 0:
                shared = position + (trailing_zeros64(differ) >> 3)
            position += 8
        while position < shared:
            if load_u8(data + start + position) != load_u8(data + other + position):
                shared = position
            position += 1
    return shared


@inline
def _word_at(address, length):
    """Return the first 8 of ``length`` bytes (which may be negative) as a big-endian word."""
    if length >= 8:
        return byte_swap64(load_u64(address))
    word = np.uint64(0)
    for i in range(length):
        word |= np.uint64(load_u8(address + i)) << np.uint64(56 - 8 * i)
    return word


@kernel
def prefix_words(offsets, data, count, depth, result):
    """Write the word of each key to sort at ``depth``."""
    words = view_u64(result, count)
    for i in range(count):
        start = load_offset(offsets, i) + depth
        words[i] = _word_at(data + start, load_offset(offsets, i + 1) - start)


@kernel
def tied_groups(words, order, count, groups):
    """Write (first, last) of each run of rows in ``order`` whose keys have equal words; return their number."""
    words_of_row = view_u64(words, count)
    rows = view_i64(order, count)
    ties = view_i64(groups, count)
    group_count = first = np.int64(0)
    for i in range(1, count + 1):
        if i < count and words_of_row[rows[i]] == words_of_row[rows[first]]:
            continue
        if i - first > 1:
            ties[2 * group_count], ties[2 * group_count + 1] = first, i
            group_count += 1
        first = i
    return group_count


@kernel
def _insertion_sort(offsets, data, rows, depth):
    """Sort a few rows by their whole strings, which agree up to ``depth``."""
    for i in range(1, rows.size):
        row = rows[i]
        start = load_offset(offsets, row) + depth
        length = load_offset(offsets, row + 1) - start
        place = i
        while place > 0:
            other = rows[place - 1]
            other_start = load_offset(offsets, other) + depth
            other_length = load_offset(offsets, other + 1) - other_start
            if not string_less(data + start, length, data + other_start, other_length):
                break
            rows[place] = other
            place -= 1
        rows[place] = row


@inline
def _merge(words, rows, first, middle, last, target_words, target_rows):
    """Merge the sorted runs [first, middle) and [middle, last), without a branch on the data."""
    left, right, place = first, middle, first
    while left < middle and right < last:
        left_word, right_word = words[left], words[right]
        is_right = right_word < left_word
        target_words[place] = right_word if is_right else left_word
        target_rows[place] = rows[right if is_right else left]
        right += np.int64(is_right)
        left += np.int64(not is_right)
        place += 1
    _copy_rest(words, rows, left, middle, target_words, target_rows, place)
    _copy_rest(words, rows, right, last, target_words, target_rows, place + middle - left)


@inline
def _copy_rest(words, rows, first, last, target_words, target_rows, place):
    for i in range(last - first):
        target_words[place + i] = words[first + i]
        target_rows[place + i] = rows[first + i]


@kernel
def _sort_by_word(words, rows, spare_words, spare_rows):
    """Sort ``words`` and, along with them, ``rows``, in place: a merge sort, so never slow."""
    count = rows.size
    width = 1
    while width < count:
        for first in range(0, count, 2 * width):
            middle, last = min(first + width, count), min(first + 2 * width, count)
            _merge(words, rows, first, middle, last, spare_words, spare_rows)
        words[:] = spare_words
        rows[:] = spare_rows
        width *= 2


@kernel
def _are_equal(words):
    same = 1
    while same < words.size and words[same] == words[0]:
        same += 1
    return same >= words.size


@kernel
def _sort_by_ending(offsets, depth, words, rows, spare_words, spare_rows):
    """Sort rows whose words at ``depth`` are equal; return where those begin that go on after it.

    Of such rows the ones that end within the word are prefixes of the others, the shortest first.
    """
    for i in range(rows.size):
        length = load_offset(offsets, rows[i] + 1) - load_offset(offsets, rows[i])
        words[i] = np.uint64(min(length - depth, 9))
    if not _are_equal(words):
        _sort_by_word(words, rows, spare_words, spare_rows)
    ended = 0
    while ended < rows.size and words[ended] < 9:
        ended += 1
    return ended


@kernel
def split_groups(offsets, data, order, groups, group_count, depth, scratch, count, next_groups):
    """Sort each group of rows by the word of their keys at ``depth``; write and count the groups still tied.

    The strings of a group agree up to ``depth``. A small group is sorted for good. ``scratch`` is
    room for 3 x ``count`` int64, ``count`` being the rows of all; ``next_groups`` like ``groups``.
    """
    all_rows = view_i64(order, count)
    ties = view_i64(groups, 2 * group_count)
    open_ties = view_i64(next_groups, count)
    open_count = np.int64(0)
    for group in range(group_count):
        first, last = ties[2 * group], ties[2 * group + 1]
        size = last - first
        rows = all_rows[first:last]
        if size <= _SMALL_GROUP:
            _insertion_sort(offsets, data, rows, depth)
            continue
        words = view_u64(scratch, size)
        for i in range(size):
            if i + _LOOK_AHEAD < size:
                prefetch(data + load_offset(offsets, rows[i + _LOOK_AHEAD]) + depth)
            start = load_offset(offsets, rows[i]) + depth
            words[i] = _word_at(data + start, load_offset(offsets, rows[i] + 1) - start)
        spare_words = view_u64(scratch + 8 * size, size)
        spare_rows = view_i64(scratch + 16 * size, size)
        if not _are_equal(words):
            _sort_by_word(words, rows, spare_words, spare_rows)
        run = np.int64(0)
        for i in range(1, size + 1):
            if i < size and words[i] == words[run]:
                continue
            if i - run > 1:
                tied, spare = slice(run, i), slice(0, i - run)
                ended = _sort_by_ending(offsets, depth, words[tied], rows[tied], spare_words[spare], spare_rows[spare])
                if i - run - ended > 1:
                    open_ties[2 * open_count] = first + run + ended
                    open_ties[2 * open_count + 1] = first + i
                    open_count += 1
            run = i
    return open_count
