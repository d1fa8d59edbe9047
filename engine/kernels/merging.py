"""Merges of sorted runs: cascades of two-way merges without a branch that the processor could guess wrong.

Two forms. `merge_words` merges two runs of words, each with its row, and settles equal words by whole strings.
`merge_packed` merges any number of runs, rows in the low bits of their words: half of the memory moves, nothing can be
equal, and a merge is cut into two that run side by side, both from both of their ends: four chains of loads that do
not wait for one another.
"""

import numpy as np

from .gather import load_offset
from .kernel import inline, kernel
from .keys import string_less
from .simd import copy_bytes, leading_zeros64, load_u64, store_u64, view_i64, view_u64

_LONGEST_TIE = 32
"""So many rows whose words tie are sorted by insertion."""
_FEWEST_STEPS = 8
"""Below so many steps that no run can end in, the rest is merged without cutting."""


@inline
def _second_mask(offsets, data, first_word, second_word, first_row, second_row):
    """Return all ones when the second of two strings (with ``offsets`` 0: of two words) sorts before the first, else 0.

    A mask, because of an ``if`` the compiler makes a branch that the processor guesses wrong half of the time.
    """
    is_second = second_word < first_word
    if offsets != 0 and second_word == first_word:
        start, other = load_offset(offsets, np.int64(second_row)), load_offset(offsets, np.int64(first_row))
        length = load_offset(offsets, np.int64(second_row) + 1) - start
        other_length = load_offset(offsets, np.int64(first_row) + 1) - other
        is_second = string_less(data + start, length, data + other, other_length)
    return np.uint64(0) - np.uint64(is_second)


@kernel
def merge_words(offsets, data, words, rows, first, middle, last, result_words, result_rows):
    """Merge the sorted runs [first, middle) and [middle, last) of words, each with its row.

    Equal words are settled by the whole strings of their rows, unless ``offsets`` is 0: then the words are the keys.
    Both ends are merged at once, towards each other: two chains of loads that do not wait for one another, without a
    branch on the data. They go on for as long as neither run can end.
    """
    left, right, left_end, right_end = words + first * 8, words + middle * 8, words + middle * 8, words + last * 8
    place, place_end = result_words + first * 8, result_words + last * 8
    to_row, to_result = rows - words, result_rows - result_words
    while left < left_end and right < right_end:
        # Half of the steps could empty the shorter run from below, and half from above.
        steps = min(left_end - left, right_end - right) >> 4
        for _ in range(max(steps, 1)):
            left_word, right_word = load_u64(left), load_u64(right)
            left_row, right_row = load_u64(left + to_row), load_u64(right + to_row)
            mask = _second_mask(offsets, data, left_word, right_word, left_row, right_row)
            store_u64(place, left_word ^ ((left_word ^ right_word) & mask))
            store_u64(place + to_result, left_row ^ ((left_row ^ right_row) & mask))
            right += 8 & np.int64(mask)
            left += 8 & ~np.int64(mask)
            place += 8
            if steps == 0:
                break
            left_word, right_word = load_u64(left_end - 8), load_u64(right_end - 8)
            left_row, right_row = load_u64(left_end - 8 + to_row), load_u64(right_end - 8 + to_row)
            mask = _second_mask(offsets, data, left_word, right_word, left_row, right_row)
            place_end -= 8
            store_u64(place_end, right_word ^ ((left_word ^ right_word) & mask))
            store_u64(place_end + to_result, right_row ^ ((left_row ^ right_row) & mask))
            left_end -= 8 & np.int64(mask)
            right_end -= 8 & ~np.int64(mask)
    rest, rest_end = (left, left_end) if left < left_end else (right, right_end)
    copy_bytes(place, rest, rest_end - rest)
    copy_bytes(place + to_result, rest + to_row, rest_end - rest)


@kernel
def _merge_rest(left, left_end, right, right_end, place, place_end):
    """Merge two runs of distinct words from both of their ends."""
    while left < left_end and right < right_end:
        steps = min(left_end - left, right_end - right) >> 4
        for _ in range(max(steps, 1)):
            left_word, right_word = load_u64(left), load_u64(right)
            taken = np.int64(right_word < left_word) << 3
            store_u64(place, min(left_word, right_word))
            right += taken
            left += 8 - taken
            place += 8
            if steps == 0:
                break
            left_word, right_word = load_u64(left_end - 8), load_u64(right_end - 8)
            taken = np.int64(right_word < left_word) << 3
            place_end -= 8
            store_u64(place_end, max(left_word, right_word))
            left_end -= taken
            right_end -= 8 - taken
    rest, rest_end = (left, left_end) if left < left_end else (right, right_end)
    copy_bytes(place, rest, rest_end - rest)


@kernel
def _lower_half(left, left_count, right, right_count):
    """Return how many words of the left run are among the smaller half of both."""
    half = (left_count + right_count) >> 1
    low, high = max(half - right_count, 0), min(half, left_count)
    while low < high:
        taken = (low + high) >> 1
        if load_u64(left + taken * 8) < load_u64(right + (half - taken - 1) * 8):
            low = taken + 1
        else:
            high = taken
    return low


@kernel
def _merge_distinct(left, right, right_end, place):
    """Merge the runs of distinct words at [left, right) and [right, right_end)."""
    size = right_end - left
    if left == right or right == right_end or load_u64(right - 8) < load_u64(right):
        copy_bytes(place, left, size)
        return
    lower = _lower_half(left, (right - left) >> 3, right, (right_end - right) >> 3)
    half = size >> 4
    left_end, right_middle = left + lower * 8, right + (half - lower) * 8
    upper_left, upper_left_end, upper_right, upper_right_end = left_end, right, right_middle, right_end
    place_end = place + half * 8
    upper_place, upper_place_end = place_end, place + size
    right_end = right_middle
    while True:
        shortest = min(left_end - left, right_end - right)
        steps = min(shortest, min(upper_left_end - upper_left, upper_right_end - upper_right)) >> 4
        if steps < _FEWEST_STEPS:
            break
        for _ in range(steps):
            left_word, right_word = load_u64(left), load_u64(right)
            taken = np.int64(right_word < left_word) << 3
            store_u64(place, min(left_word, right_word))
            right += taken
            left += 8 - taken
            place += 8
            left_word, right_word = load_u64(left_end - 8), load_u64(right_end - 8)
            taken = np.int64(right_word < left_word) << 3
            place_end -= 8
            store_u64(place_end, max(left_word, right_word))
            left_end -= taken
            right_end -= 8 - taken
            left_word, right_word = load_u64(upper_left), load_u64(upper_right)
            taken = np.int64(right_word < left_word) << 3
            store_u64(upper_place, min(left_word, right_word))
            upper_right += taken
            upper_left += 8 - taken
            upper_place += 8
            left_word, right_word = load_u64(upper_left_end - 8), load_u64(upper_right_end - 8)
            taken = np.int64(right_word < left_word) << 3
            upper_place_end -= 8
            store_u64(upper_place_end, max(left_word, right_word))
            upper_left_end -= taken
            upper_right_end -= 8 - taken
    _merge_rest(left, left_end, right, right_end, place, place_end)
    _merge_rest(upper_left, upper_left_end, upper_right, upper_right_end, upper_place, upper_place_end)


@kernel
def _key_less(offsets, data, row, other):
    """Whether key ``row`` sorts before key ``other``: strings, or words at ``data`` with ``offsets`` 0."""
    if offsets == 0:
        return load_u64(data + row * 8) < load_u64(data + other * 8)
    start, other_start = load_offset(offsets, row), load_offset(offsets, other)
    length, other_length = load_offset(offsets, row + 1) - start, load_offset(offsets, other + 1) - other_start
    return string_less(data + start, length, data + other_start, other_length)


@kernel
def _settle_ties(offsets, data, words, row_bits):
    """Sort neighbours that agree but for their rows by their whole keys; return whether no tie is too long for that."""
    row_mask = (np.uint64(1) << np.uint64(row_bits)) - np.uint64(1)
    first = np.int64(0)
    for i in range(1, words.size):
        if words[i] >> np.uint64(row_bits) != words[first] >> np.uint64(row_bits):
            first = i
            continue
        if i - first >= _LONGEST_TIE:
            return False
        word, place = words[i], i
        row = np.int64(word & row_mask)
        while place > first and _key_less(offsets, data, row, np.int64(words[place - 1] & row_mask)):
            words[place] = words[place - 1]
            place -= 1
        words[place] = word
    return True


@kernel
def merge_packed(offsets, data, words, count, cuts, runs, firsts, spare, result):
    """Merge sorted runs of ``words``; write for each row, in order, its run's entry in ``firsts`` + its number there.

    Run n is [cuts[n], cuts[n + 1]), and not empty. Rows stand in the low bits of their words; bits that have no room
    beside them are dropped, and whole keys decide then: the strings at ``offsets`` and ``data``, which decide in any
    case, or the words at ``data`` with ``offsets`` 0. ``words``, ``spare`` and ``cuts``, with room for ``runs`` + 2,
    are overwritten. Returns 0 when too many words tie.
    """
    ends = view_i64(cuts, runs + 2)
    packed = view_u64(words, count)
    places = view_i64(result, count)
    starts = view_i64(firsts, runs)
    lowest, highest = packed[0], packed[0]
    for run in range(runs):
        lowest, highest = min(lowest, packed[ends[run]]), max(highest, packed[ends[run + 1] - 1])
    row_bits = 64 - np.int64(leading_zeros64(np.uint64(count - 1)))
    dropped_bits = max(row_bits - np.int64(leading_zeros64(highest - lowest)), 0)
    shift, drop = np.uint64(row_bits), np.uint64(dropped_bits)
    for run in range(runs):
        for i in range(ends[run], ends[run + 1]):
            packed[i] = (((packed[i] - lowest) >> drop) << shift) | np.uint64(i)
            places[i] = starts[run] + (i - ends[run])
    source, target = words, spare
    while runs > 1:
        if runs & 1:  # an odd run out is merged with nothing
            ends[runs + 1] = ends[runs]
        merged = (runs + 1) >> 1
        for pair in range(merged):
            first, middle, last = ends[2 * pair], ends[2 * pair + 1], ends[2 * pair + 2]
            _merge_distinct(source + first * 8, source + middle * 8, source + last * 8, target + first * 8)
            ends[pair + 1] = last
        runs = merged
        source, target = target, source
    in_order = view_u64(source, count)
    if (offsets != 0 or dropped_bits != 0) and not _settle_ties(offsets, data, in_order, row_bits):
        return 0
    row_mask = (np.uint64(1) << shift) - np.uint64(1)
    arranged = view_i64(target, count)
    for i in range(count):
        arranged[i] = places[np.int64(in_order[i] & row_mask)]
    copy_bytes(result, target, count * 8)
    return 1
