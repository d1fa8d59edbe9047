"""Encoded keys as bytes: written one column at a time, compared, and found again in a batch.

Integers are big-endian with the sign bit flipped. A string that is not the last column has each 0x00
written as 0x00 0x01 and ends with 0x00 0x00; the last one is raw. All writes are exact, because a
column of row i is written when row i + 1 may hold its earlier columns already.

``places`` is the address of one int64 a row: where in ``result`` the row's next column goes. Each
writer moves it on.
"""

import numpy as np

from ..ahead.families import family
from ..ahead.kernel import inline, kernel
from ..cells.gather import copy_exactly, load_offset
from ..simd.simd import (
    byte_swap64,
    load_u8,
    load_u64,
    store_u8,
    store_u16,
    store_u64,
    trailing_zeros64,
    view_i32,
    view_i64,
    view_u8,
    view_u64,
)
from ..simd.widths import load_cell, store_cell

_SIGN = np.uint64(1 << 63)
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_HASH_BITS = np.uint64(0xFFFFFFFF00000000)
_ROW_BITS = np.uint64(0x00000000FFFFFFFF)


def _write_int(width):
    def write_int(values, count, places, result):
        """Write a key column of integers."""
        targets, shift = view_i64(places, count), np.uint64(64 - 8 * width)
        for i in range(count):
            word = (load_cell(values + i * width, width) << shift) ^ _SIGN
            store_cell(result + targets[i], width, byte_swap64(word))
            targets[i] += width

    return write_int


write_int8, write_int16, write_int32, write_int64 = family("write_int{}", _write_int, (1, 2, 4, 8))


@kernel
def write_int128(values, count, places, result):
    """Write a key column of 16-byte integers."""
    targets = view_i64(places, count)
    for i in range(count):
        high = load_u64(values + i * 16 + 8) ^ _SIGN
        store_u64(result + targets[i], byte_swap64(high))
        store_u64(result + targets[i] + 8, byte_swap64(load_u64(values + i * 16)))
        targets[i] += 16


@kernel
def write_raw(offsets, data, count, places, result):
    """Write a key column of strings that is the last one."""
    targets = view_i64(places, count)
    for i in range(count):
        start = load_offset(offsets, i)
        length = load_offset(offsets, i + 1) - start
        copy_exactly(result + targets[i], data + start, length)
        targets[i] += length


@inline
def _zero_bytes(word):
    """Return a word whose lowest set bit is in the lowest zero byte of ``word``; 0 if none is."""
    return (word - _ONES) & ~word & _HIGH_BITS


@kernel
def add_escaped_lengths(offsets, data, count, lengths):
    """Add to each int64 of ``lengths`` the bytes that `write_escaped` writes for the row."""
    totals = view_i64(lengths, count)
    for i in range(count):
        start = load_offset(offsets, i)
        length = load_offset(offsets, i + 1) - start
        zeros = np.int64(0)
        cells = view_u8(data + start, length)
        for j in range(length):
            zeros += np.int64(cells[j] == 0)
        totals[i] += length + zeros + 2


@kernel
def write_escaped(offsets, data, count, places, result):
    """Write a key column of strings that others follow: zero bytes escaped, then the terminator."""
    targets = view_i64(places, count)
    for i in range(count):
        source = data + load_offset(offsets, i)
        end = data + load_offset(offsets, i + 1)
        target = result + targets[i]
        while source < end:
            if source + 8 <= end:
                word = load_u64(source)
                zeros = _zero_bytes(word)
                if zeros == 0:
                    store_u64(target, word)
                    source, target = source + 8, target + 8
                    continue
                clean = trailing_zeros64(zeros) >> 3
                copy_exactly(target, source, clean)
                source, target = source + clean, target + clean
            cell = load_u8(source)
            store_u8(target, cell)
            source, target = source + 1, target + 1
            if cell == 0:
                store_u8(target, np.uint8(1))
                target += 1
        store_u16(target, np.uint16(0))
        targets[i] = target + 2 - result


@inline
def strings_equal(left, right, length):
    """Return whether two keys of ``length`` bytes are equal."""
    position = np.int64(0)
    while position + 8 <= length:
        if load_u64(left + position) != load_u64(right + position):
            return False
        position += 8
    while position < length:
        if load_u8(left + position) != load_u8(right + position):
            return False
        position += 1
    return True


@kernel
def string_less(left, left_length, right, right_length):
    """Return whether the key on the left sorts before the right one: memcmp, a prefix first."""
    shorter = min(left_length, right_length)
    position = np.int64(0)
    while position + 8 <= shorter:
        left_word, right_word = load_u64(left + position), load_u64(right + position)
        if left_word != right_word:
            return byte_swap64(left_word) < byte_swap64(right_word)
        position += 8
    while position < shorter:
        left_byte, right_byte = load_u8(left + position), load_u8(right + position)
        if left_byte != right_byte:
            return left_byte < right_byte
        position += 1
    return left_length < right_length


@kernel
def outermost_strings(offsets, data, count, result):
    """Write which of the keys, at least one byte string, is the least and which the greatest (int64)."""
    found = view_i64(result, 2)
    least = greatest = np.int64(0)
    for i in range(1, count):
        start, first, last = load_offset(offsets, i), load_offset(offsets, least), load_offset(offsets, greatest)
        length = load_offset(offsets, i + 1) - start
        if string_less(data + start, length, data + first, load_offset(offsets, least + 1) - first):
            least = i
        elif string_less(data + last, load_offset(offsets, greatest + 1) - last, data + start, length):
            greatest = i
    found[0], found[1] = least, greatest


@kernel
def equal_strings_at(offsets, data, indices, other_offsets, other_data, other_indices, count, result):
    """Write for each pair of rows, one of each batch, whether their keys, byte strings, are equal."""
    rows = view_i64(indices, count)
    other_rows = view_i64(other_indices, count)
    equal = view_u8(result, count)
    for i in range(count):
        start = load_offset(offsets, rows[i])
        length = load_offset(offsets, rows[i] + 1) - start
        other = load_offset(other_offsets, other_rows[i])
        is_equal = length == load_offset(other_offsets, other_rows[i] + 1) - other
        if is_equal:
            is_equal = strings_equal(data + start, other_data + other, length)
        equal[i] = is_equal


@kernel
def strings_less_equal(offsets, data, count, bound, bound_length, result):
    """Write for each key, a byte string, whether it sorts at or before the bound."""
    at_or_before = view_u8(result, count)
    for i in range(count):
        start = load_offset(offsets, i)
        length = load_offset(offsets, i + 1) - start
        at_or_before[i] = not string_less(bound, bound_length, data + start, length)


@kernel
def string_lower_bound(offsets, data, count, bound, bound_length):
    """Return the number of sorted keys, byte strings, that sort before the bound."""
    first, size = np.int64(0), np.int64(count)
    while size > 0:
        half = size >> 1
        start = load_offset(offsets, first + half)
        length = load_offset(offsets, first + half + 1) - start
        if string_less(data + start, length, bound, bound_length):
            first += half + 1
            size -= half + 1
        else:
            size = half
    return first


@kernel
def strings_ascend(offsets, data, count):
    """Return whether each key, a byte string, sorts before the next."""
    for i in range(count - 1):
        start = load_offset(offsets, i)
        end = load_offset(offsets, i + 1)
        next_length = load_offset(offsets, i + 2) - end
        if not string_less(data + start, end - start, data + end, next_length):
            return False
    return True


@inline
def _slot_of(hashed, mask):
    return np.int64(hashed & np.uint64(mask))


@kernel
def first_of_u64(values, hashes, count, slots, slot_count, result):
    """Write for each row the first row with the same key (uint64).

    ``slots`` are ``slot_count`` zeroed uint64, a power of two above ``count``: the upper half of a
    slot is the upper half of the hash, the lower half the row + 1; 0 is empty.
    """
    words = view_u64(values, count)
    hashed = view_u64(hashes, count)
    table = view_u64(slots, slot_count)
    firsts = view_i64(result, count)
    for i in range(count):
        tag = hashed[i] & _HASH_BITS
        slot = _slot_of(hashed[i], slot_count - 1)
        firsts[i] = i
        while True:
            found = table[slot]
            if found == 0:
                table[slot] = tag | np.uint64(i + 1)
                break
            row = np.int64(found & _ROW_BITS) - 1
            if (found & _HASH_BITS) == tag and words[row] == words[i]:
                firsts[i] = row
                break
            slot = (slot + 1) & (slot_count - 1)


@kernel
def first_of_strings(offsets, data, hashes, count, slots, slot_count, result):
    """Write for each row the first row with the same key, a byte string; ``slots`` as in `first_of_u64`."""
    starts = view_i32(offsets, count + 1)
    hashed = view_u64(hashes, count)
    table = view_u64(slots, slot_count)
    firsts = view_i64(result, count)
    for i in range(count):
        tag = hashed[i] & _HASH_BITS
        slot = _slot_of(hashed[i], slot_count - 1)
        start = np.int64(starts[i])
        length = np.int64(starts[i + 1]) - start
        firsts[i] = i
        while True:
            found = table[slot]
            if found == 0:
                table[slot] = tag | np.uint64(i + 1)
                break
            row = np.int64(found & _ROW_BITS) - 1
            if (found & _HASH_BITS) == tag:
                other = np.int64(starts[row])
                if np.int64(starts[row + 1]) - other == length and strings_equal(data + start, data + other, length):
                    firsts[i] = row
                    break
            slot = (slot + 1) & (slot_count - 1)
