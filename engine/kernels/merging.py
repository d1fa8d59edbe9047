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


@inline
def _run_entry(table, place, row_bits):
    """Return the entry of ``table`` for the run that a place, run << ``row_bits`` | row, names."""
    return np.int64(load_u64(table + (place >> row_bits) * 8))


@kernel
def _key_less(offsets, data, place, other, row_bits):
    """Whether the key at ``place`` sorts before that at ``other``: strings, or words at ``data`` with ``offsets`` 0."""
    row_mask = (np.int64(1) << row_bits) - 1
    start, other_start = _run_entry(data, place, row_bits), _run_entry(data, other, row_bits)
    row, other_row = place & row_mask, other & row_mask
    if offsets == 0:
        return load_u64(start + row * 8) < load_u64(other_start + other_row * 8)
    ends, other_ends = _run_entry(offsets, place, row_bits), _run_entry(offsets, other, row_bits)
    length = load_offset(ends, row + 1) - load_offset(ends, row)
    other_length = load_offset(other_ends, other_row + 1) - load_offset(other_ends, other_row)
    return string_less(
        start + load_offset(ends, row), length, other_start + load_offset(other_ends, other_row), other_length
    )


@kernel
def _settle_ties(offsets, data, words, place_bits, row_bits):
    """Sort neighbours that agree but for their places by their whole keys; return whether no tie is too long."""
    place_mask = (np.uint64(1) << np.uint64(place_bits)) - np.uint64(1)
    first = np.int64(0)
    for i in range(1, words.size):
        if words[i] >> np.uint64(place_bits) != words[first] >> np.uint64(place_bits):
            first = i
            continue
        if i - first >= _LONGEST_TIE:
            return False
        word, at = words[i], i
        place = np.int64(word & place_mask)
        while at > first and _key_less(offsets, data, place, np.int64(words[at - 1] & place_mask), row_bits):
            words[at] = words[at - 1]
            at -= 1
        words[at] = word
    return True


@inline
def _bits_of(count):
    """Return how many bits the numbers below ``count`` need."""
    return 64 - np.int64(leading_zeros64(np.uint64(count - 1)))


@kernel
def squeeze_words(words, count):
    """Leave out of each byte of words its upper bits that are the same in all, and move the lower ones together: words
    compare as before, and digits, say, fill half of the bits, so that a place has room beside them."""
    cells = view_u64(words, count)
    varying = np.uint64(0)
    for i in range(count):
        varying |= cells[i] ^ cells[0]
    masks, shifts = np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    kept = np.int64(0)
    for byte in range(8):
        bits = 64 - np.int64(leading_zeros64((varying >> np.uint64(8 * byte)) & np.uint64(255)))
        masks[byte] = ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)) << np.uint64(8 * byte)
        shifts[byte] = np.uint64(8 * byte - kept)
        kept += bits
    if kept == 64:
        return
    mask0, mask1, mask2, mask3 = masks[0], masks[1], masks[2], masks[3]
    mask4, mask5, mask6, mask7 = masks[4], masks[5], masks[6], masks[7]
    shift0, shift1, shift2, shift3 = shifts[0], shifts[1], shifts[2], shifts[3]
    shift4, shift5, shift6, shift7 = shifts[4], shifts[5], shifts[6], shifts[7]
    for i in range(count):
        word = cells[i]
        low = ((word & mask0) >> shift0) | ((word & mask1) >> shift1) | ((word & mask2) >> shift2)
        middle = ((word & mask3) >> shift3) | ((word & mask4) >> shift4) | ((word & mask5) >> shift5)
        cells[i] = low | middle | ((word & mask6) >> shift6) | ((word & mask7) >> shift7)


@kernel
def _packed_bits(starts, ends):
    """Return the least word of all runs, the bits of a row, those of a place, and those that words have too many."""
    lowest = highest = load_u64(starts[0])
    longest = np.int64(1)
    for run in range(starts.size):
        length = ends[run + 1] - ends[run]
        lowest, longest = min(lowest, load_u64(starts[run])), max(longest, length)
        highest = max(highest, load_u64(starts[run] + (length - 1) * 8))
    row_bits = _bits_of(longest)
    place_bits = row_bits + _bits_of(starts.size)
    return lowest, row_bits, place_bits, max(place_bits - np.int64(leading_zeros64(highest - lowest)), 0)


@kernel
def _merge_all(ends, runs, words, spare):
    """Merge runs two by two until one is left, to and fro between ``words`` and ``spare``; return where it is."""
    while runs > 1:
        if runs & 1:  # an odd run out is merged with nothing
            ends[runs + 1] = ends[runs]
        runs = (runs + 1) >> 1
        for pair in range(runs):
            first, middle, last = ends[2 * pair], ends[2 * pair + 1], ends[2 * pair + 2]
            _merge_distinct(words + first * 8, words + middle * 8, words + last * 8, spare + first * 8)
            ends[pair + 1] = last
        words, spare = spare, words
    return words


@kernel
def merge_packed(offsets, data, sources, cuts, runs, firsts, words, spare, result):
    """Merge sorted runs of words; write for each row, in order, its run's entry in ``firsts`` + its number there.

    Run n, not empty, lies at ``sources[n]`` and has cuts[n + 1] - cuts[n] words; cuts[0] is 0. Words are packed with
    the places of their rows, run << bits | row, in the low bits. Bits that have no room above are dropped, and whole
    keys decide then: the strings at ``offsets[n]`` and ``data[n]``, which decide in any case, or the words at
    ``data[n]`` with ``offsets`` 0. ``words`` may be the memory of the sources, end to end; it, ``spare`` and ``cuts``,
    with room for ``runs`` + 2, are overwritten. Returns 0 when too many words tie.
    """
    ends, starts = view_i64(cuts, runs + 2), view_i64(sources, runs)
    count = ends[runs]
    lowest, row_bits, place_bits, dropped_bits = _packed_bits(starts, ends)
    shift, drop = np.uint64(place_bits), np.uint64(dropped_bits)
    for run in range(runs):
        length = ends[run + 1] - ends[run]
        source, packed = view_u64(starts[run], length), view_u64(words + ends[run] * 8, length)
        place = np.uint64(run << row_bits)
        for i in range(length):
            packed[i] = (((source[i] - lowest) >> drop) << shift) | (place + np.uint64(i))
    in_order = view_u64(_merge_all(ends, runs, words, spare), count)
    if (offsets != 0 or dropped_bits != 0) and not _settle_ties(offsets, data, in_order, place_bits, row_bits):
        return 0
    places, first_places = view_i64(result, count), view_i64(firsts, runs)
    place_mask, row_mask = (np.int64(1) << place_bits) - 1, (np.int64(1) << row_bits) - 1
    for i in range(count):
        place = np.int64(in_order[i]) & place_mask
        places[i] = first_places[place >> row_bits] + (place & row_mask)
    return 1
