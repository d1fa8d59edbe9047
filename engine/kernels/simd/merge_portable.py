"""Merge two sorted runs of distinct words (uint64) in plain integers: the whole of it for processors without wide
vectors, and the ends of runs for all.
"""

import numpy as np

from ..ahead.kernel import kernel
from .simd import copy_bytes, load_u64, store_u64

_FEWEST_STEPS = 8
"""Below so many steps that no run can end in, the rest is merged without cutting."""


@kernel
def words_of_first(left, left_count, right, right_count, count):
    """Without vector instructions, return how many of the ``count`` least words of two runs are of the left one."""
    low, high = max(count - right_count, 0), min(count, left_count)
    while low < high:
        taken = (low + high) >> 1
        if load_u64(left + taken * 8) < load_u64(right + (count - taken - 1) * 8):
            low = taken + 1
        else:
            high = taken
    return low


@kernel
def merge_from_both_ends(left, left_end, right, right_end, place, place_end):
    """Merge two runs of distinct words from both of their ends, without vector instructions."""
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
def merge_overlapping_portable(left, left_end, right, right_end, place):
    """Merge two runs of words without vector instructions: in two halves side by side, each from both of its ends."""
    left_count, right_count = (left_end - left) >> 3, (right_end - right) >> 3
    half = (left_count + right_count) >> 1
    lower = words_of_first(left, left_count, right, right_count, half)
    upper_left, upper_right, upper_place = left + lower * 8, right + (half - lower) * 8, place + half * 8
    upper_left_end, upper_right_end = left_end, right_end
    upper_place_end = upper_place + (upper_left_end - upper_left) + (upper_right_end - upper_right)
    left_end, right_end, place_end = upper_left, upper_right, upper_place
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
    merge_from_both_ends(left, left_end, right, right_end, place, place_end)
    merge_from_both_ends(upper_left, upper_left_end, upper_right, upper_right_end, upper_place, upper_place_end)
