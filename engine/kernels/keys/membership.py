"""Which integers are in a set: an open-addressing table of the numbers themselves, a quarter to a half full.

``empty`` is a number that is not in the set and marks free slots. Slots are a power of two; the high bits of a product
choose one, collisions go to the next.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import view_i64, view_u8

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@inline
def _first_slot(number, shift):
    return np.int64((np.uint64(number) * _FACTOR) >> np.uint64(shift))


@kernel
def put_members(numbers, count, slots, slot_count, shift, empty):
    """Put int64 ``numbers`` into a hash set; ``shift`` is 64 less the bits of a slot's number."""
    number = view_i64(numbers, count)
    slot = view_i64(slots, slot_count)
    for i in range(count):
        place = _first_slot(number[i], shift)
        while slot[place] != empty and slot[place] != number[i]:
            place = (place + 1) & (slot_count - 1)
        slot[place] = number[i]


@kernel
def find_members(numbers, count, slots, slot_count, shift, empty, found):
    """Write one bool for each of int64 ``numbers``: whether it is in a hash set."""
    number = view_i64(numbers, count)
    slot = view_i64(slots, slot_count)
    mark = view_u8(found, count)
    for i in range(count):
        place = _first_slot(number[i], shift)
        while slot[place] != empty and slot[place] != number[i]:
            place = (place + 1) & (slot_count - 1)
        mark[i] = np.uint8(slot[place] == number[i] and number[i] != empty)
