"""Merges of sorted runs: cascades of two-way merges without a branch that the processor could guess wrong.

Two forms. `merge_words` merges two runs of words, each with its row, and settles equal words by whole strings.
`merge_packed` merges any number of runs, rows in the low bits of their words: half of the memory moves, nothing can be
equal, and two runs are merged eight words at a time (`merge_vectors`), or at least from several places at once, in
chains of loads that do not wait for one another (`merge_portable`).
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.gather import load_offset
from ..simd.cpu import HAS_WIDE_MINIMUM
from ..simd.simd import copy_bytes, leading_zeros64, load_u64, store_u64, view_i64, view_u64
from .keys import string_less

_LONGEST_TIE = 32
"""So many rows whose words tie are sorted by insertion."""

if HAS_WIDE_MINIMUM:
    from .merge_vectors import merge_overlapping
else:
    from ..simd.merge_portable import merge_overlapping_portable as merge_overlapping


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
    """Merge the sorted runs [first, middle) and [middle, last) of keys' words, each with its row.

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


@inline
def _words_below(words, end, word):
    """Return the address past the words of a run that are less than ``word``."""
    low, high = np.int64(0), (end - words) >> 3
    while low < high:
        middle = (low + high) >> 1
        if load_u64(words + middle * 8) < word:
            low = middle + 1
        else:
            high = middle
    return words + low * 8


@kernel
def _merge_distinct(left, right, right_end, place):
    """Merge the runs of distinct words at [left, right) and [right, right_end); what lies below or above all of the
    other run is copied whole."""
    left_end, place_end = right, place + (right_end - left)
    if left < left_end and right < right_end:
        left_first, right_first = load_u64(left), load_u64(right)
        if left_first < right_first:
            start, left = left, _words_below(left, left_end, right_first)
            copy_bytes(place, start, left - start)
            place += left - start
        else:
            start, right = right, _words_below(right, right_end, left_first)
            copy_bytes(place, start, right - start)
            place += right - start
    if left < left_end and right < right_end:
        left_last, right_last = load_u64(left_end - 8), load_u64(right_end - 8)
        if left_last < right_last:
            end, right_end = right_end, _words_below(right, right_end, left_last)
            copy_bytes(place_end - (end - right_end), right_end, end - right_end)
        else:
            end, left_end = left_end, _words_below(left, left_end, right_last)
            copy_bytes(place_end - (end - left_end), left_end, end - left_end)
        merge_overlapping(left, left_end, right, right_end, place)
        return
    rest, rest_end = (left, left_end) if left < left_end else (right, right_end)
    copy_bytes(place, rest, rest_end - rest)


@inline
def _entry(table, place, row_bits):
    """Return the entry of ``table`` for the vector that a place, its number << ``row_bits`` | row, names."""
    return np.int64(load_u64(table + (place >> row_bits) * 8))


@kernel
def _key_less(offsets, data, place, other, row_bits):
    """Whether the key at ``place`` sorts before that at ``other``: strings, or words at ``data`` with ``offsets`` 0."""
    row_mask = (np.int64(1) << row_bits) - 1
    start, other_start = _entry(data, place, row_bits), _entry(data, other, row_bits)
    row, other_row = place & row_mask, other & row_mask
    if offsets == 0:
        return load_u64(start + row * 8) < load_u64(other_start + other_row * 8)
    ends, other_ends = _entry(offsets, place, row_bits), _entry(offsets, other, row_bits)
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


@kernel
def squeeze_words(words, count):
    """Leave out of each byte of keys' words its upper bits that are the same in all, and move the lower ones together:
    words compare as before, and digits, say, fill half of the bits, so that a place has room beside them."""
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
def _extent(starts, ends):
    """Return the least word of all runs, and how far the greatest is from it."""
    lowest = highest = load_u64(starts[0])
    for run in range(starts.size):
        length = ends[run + 1] - ends[run]
        lowest, highest = min(lowest, load_u64(starts[run])), max(highest, load_u64(starts[run] + (length - 1) * 8))
    return lowest, highest - lowest


@kernel
def _join(starts, ends, joined):
    """Take runs that follow one another for one: write the ends of those that are left, and return how many."""
    runs, last = np.int64(0), np.uint64(0)
    joined[0] = 0
    for run in range(starts.size):
        if run == 0 or load_u64(starts[run]) < last:
            runs += 1
        joined[runs] = ends[run + 1]
        last = load_u64(starts[run] + (ends[run + 1] - ends[run] - 1) * 8)
    return runs


@inline
def _rounds(runs):
    """Return how often runs are merged two by two until one is left."""
    return 64 - np.int64(leading_zeros64(np.uint64(runs - 1)))


@kernel
def _merge_all(ends, runs, words, spare):
    """Merge runs two by two until one is left, to and fro between ``words`` and ``spare``."""
    while runs > 1:
        if runs & 1:  # an odd run out is merged with nothing
            ends[runs + 1] = ends[runs]
        runs = (runs + 1) >> 1
        for pair in range(runs):
            first, middle, last = ends[2 * pair], ends[2 * pair + 1], ends[2 * pair + 2]
            _merge_distinct(words + first * 8, words + middle * 8, words + last * 8, spare + first * 8)
            ends[pair + 1] = last
        words, spare = spare, words


@kernel
def merge_packed(offsets, data, sources, cuts, numbers, runs, row_bits, place_bits, result, spare):
    """Merge sorted runs of keys' words, packed with the places of their rows: the number of a run's vector <<
    ``row_bits`` | its row, in the low ``place_bits``.

    Run n, not empty, lies at ``sources[n]``, has cuts[n + 1] - cuts[n] words, where cuts[0] is 0, and is vector
    ``numbers[n]``; numbers ascend. Bits that have no room above the places are dropped, and whole keys decide then: the
    strings at ``offsets`` and ``data`` of the vector, which decide in any case, or the words at ``data`` with
    ``offsets`` 0. ``result`` and ``spare`` have room for all; ``result`` may hold the sources, end to end. Returns 0
    when too many words tie.
    """
    ends, starts, vectors = view_i64(cuts, runs + 1), view_i64(sources, runs), view_i64(numbers, runs)
    count = ends[runs]
    lowest, extent = _extent(starts, ends)
    dropped_bits = max(place_bits - np.int64(leading_zeros64(extent)), 0)
    shift, drop = np.uint64(place_bits), np.uint64(dropped_bits)
    joined = np.empty(runs + 2, np.int64)
    runs_left = _join(starts, ends, joined)
    is_odd = _rounds(runs_left) & 1  # so that the last round ends in the result
    words, other = (spare, result) if is_odd else (result, spare)
    for run in range(runs):
        length = ends[run + 1] - ends[run]
        source, packed = view_u64(starts[run], length), view_u64(words + ends[run] * 8, length)
        place = np.uint64(vectors[run] << row_bits)
        for i in range(length):
            packed[i] = (((source[i] - lowest) >> drop) << shift) | (place + np.uint64(i))
    _merge_all(joined, runs_left, words, other)
    if offsets != 0 or dropped_bits != 0:
        return np.int64(_settle_ties(offsets, data, view_u64(result, count), place_bits, row_bits))
    return 1


@kernel
def rows_at_places(places, count, row_bits, place_bits, firsts, result):
    """Write for each place of merged keys (see `merge_packed`) its row + the entry of its vector in ``firsts``."""
    words, rows = view_u64(places, count), view_i64(result, count)
    place_mask, row_mask = (np.int64(1) << place_bits) - 1, (np.int64(1) << row_bits) - 1
    for i in range(count):
        place = np.int64(words[i]) & place_mask
        rows[i] = _entry(firsts, place, row_bits) + (place & row_mask)
