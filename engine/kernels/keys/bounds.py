"""Which of some sorted bounds lie at or before each of many keys: where rows go in ranges."""

import numpy as np

from ..ahead.kernel import kernel
from ..cells.gather import load_offset
from ..simd.simd import view_i32
from .keys import string_less


@kernel
def count_bounds(bound_offsets, bound_data, bound_count, offsets, data, count, result):
    """Write for each of ``count`` encoded keys how many of the sorted bounds are at or before it, int32."""
    found = view_i32(result, count)
    for i in range(count):
        start = load_offset(offsets, i)
        length = load_offset(offsets, i + 1) - start
        first, size = np.int64(0), np.int64(bound_count)
        while size > 0:
            half = size >> 1
            bound = load_offset(bound_offsets, first + half)
            bound_length = load_offset(bound_offsets, first + half + 1) - bound
            if string_less(data + start, length, bound_data + bound, bound_length):
                size = half
            else:
                first += half + 1
                size -= half + 1
        found[i] = first
