"""Merge two sorted runs of distinct words (uint64) eight at a time.

A merge holds the greatest eight words that it has taken. It takes the next eight of the run whose next word is the
lesser, and of these sixteen the lesser eight come next: what is left in that run is above all that was taken of it, and
no more than seven words of either run are above the next of the other (Inoue and Taura, "SIMD- and cache-friendly
algorithm for sorting an array of structures", 2015, section 3).

Each step waits for the one before, so the runs are cut into several merges that take turns. One that cannot take eight
words of each run any more puts those that it holds back, and is finished word by word.
"""

import numpy as np

from ..ahead.form import FORM, Form
from ..ahead.kernel import inline, kernel
from ..simd.merge_portable import merge_from_both_ends, words_of_first
from ..simd.simd import address_of, copy64, load_u64, store_u64

if FORM is Form.JIT:
    from ..simd.merge_llvm import merge_eight

_MERGES = 6
"""So many take turns: with fewer the processor waits, with more its registers do not suffice."""
_FEWEST_WORDS = 64 * _MERGES
"""Below so many words there is nothing to be won."""

_LEFT, _LEFT_END, _RIGHT, _RIGHT_END, _PLACE, _LEFT_FIRST = 0, 8, 16, 24, 32, 40
"""What is known of a merge (int64 addresses): what it has not taken, where its result goes on, where it began."""
_HELD = 64
"""The eight words that it holds."""
_MERGE_BYTES = 128


@inline
def _field(merge, field):
    return np.int64(load_u64(merge + field))


@inline
def _set_field(merge, field, address):
    store_u64(merge + field, np.uint64(address))


@inline
def _next_source(merge):
    """Return the next eight words of the run whose next is the lesser, and move past them."""
    left, right = _field(merge, _LEFT), _field(merge, _RIGHT)
    of_right = np.int64(load_u64(right) < load_u64(left)) << 6
    source = left + ((right - left) & -(of_right >> 6))
    _set_field(merge, _LEFT, left + 64 - of_right)
    _set_field(merge, _RIGHT, right + of_right)
    return source


@kernel
def _take_eight(merge):
    """Write eight words."""
    source, place = _next_source(merge), _field(merge, _PLACE)
    merge_eight(merge + _HELD, source, place)
    _set_field(merge, _PLACE, place + 64)


@kernel
def _steps_left(merge):
    """Return how many times it may take eight words whichever run they are of."""
    left, right = _field(merge, _LEFT_END) - _field(merge, _LEFT), _field(merge, _RIGHT_END) - _field(merge, _RIGHT)
    return min(left, right) >> 6


@kernel
def _put_back(merge):
    """Give the words that it holds back to their runs."""
    left, right = _field(merge, _LEFT), _field(merge, _RIGHT)
    least, first, end = load_u64(merge + _HELD), max(_field(merge, _LEFT_FIRST), left - 64), left
    while left > first and load_u64(left - 8) >= least:
        left -= 8
    _set_field(merge, _LEFT, left)
    _set_field(merge, _RIGHT, right - 64 + (end - left))


@kernel
def _finish(merge):
    """Write all that is left, word by word."""
    left, left_end = _field(merge, _LEFT), _field(merge, _LEFT_END)
    right, right_end = _field(merge, _RIGHT), _field(merge, _RIGHT_END)
    place = _field(merge, _PLACE)
    merge_from_both_ends(left, left_end, right, right_end, place, place + (left_end - left) + (right_end - right))


@kernel
def _cut_into_merges(left, left_end, right, right_end, place, merges):
    """Describe merges of equal length but for the last, one after the other, of all words."""
    left_count, right_count = (left_end - left) >> 3, (right_end - right) >> 3
    length = (left_count + right_count) // _MERGES
    taken = np.int64(0)
    for number in range(_MERGES):
        merge, first = merges + number * _MERGE_BYTES, number * length
        last = first + length if number + 1 < _MERGES else left_count + right_count
        taken_next = words_of_first(left, left_count, right, right_count, last)
        _set_field(merge, _LEFT, left + taken * 8)
        _set_field(merge, _LEFT_FIRST, left + taken * 8)
        _set_field(merge, _LEFT_END, left + taken_next * 8)
        _set_field(merge, _RIGHT, right + (first - taken) * 8)
        _set_field(merge, _RIGHT_END, right + (last - taken_next) * 8)
        _set_field(merge, _PLACE, place + first * 8)
        taken = taken_next


@kernel
def _begin(merge):
    """Hold the first eight words; return whether it has so many."""
    if _steps_left(merge) < 2:
        _finish(merge)
        return False
    copy64(merge + _HELD, _next_source(merge))
    return True


@kernel
def merge_overlapping(left, left_end, right, right_end, place):
    """Merge two sorted runs of keys' words, at [left, left_end) and [right, right_end)."""
    if (left_end - left) + (right_end - right) < 8 * _FEWEST_WORDS:
        merge_from_both_ends(left, left_end, right, right_end, place, place + (left_end - left) + (right_end - right))
        return
    room = np.empty(8 + _MERGES * (_MERGE_BYTES >> 3) + _MERGES, np.int64)
    merges = (address_of(room) + 63) & ~np.int64(63)
    running = room[-_MERGES:]  # addresses of merges; as a part of the room it keeps the memory of all of them
    _cut_into_merges(left, left_end, right, right_end, place, merges)
    count = 0
    for number in range(_MERGES):
        running[count] = merges + number * _MERGE_BYTES
        count += np.int64(_begin(running[count]))
    while count > 0:
        steps = _steps_left(running[0])
        for number in range(1, count):
            steps = min(steps, _steps_left(running[number]))
        if count == _MERGES:
            for _ in range(steps):
                for number in range(_MERGES):  # a constant: the compiler writes all of them out
                    _take_eight(merges + number * _MERGE_BYTES)
        else:
            for _ in range(steps):
                for number in range(count):
                    _take_eight(running[number])
        for number in range(count - 1, -1, -1):
            if _steps_left(running[number]) == 0:
                _put_back(running[number])
                _finish(running[number])
                count -= 1
                running[number] = running[count]
