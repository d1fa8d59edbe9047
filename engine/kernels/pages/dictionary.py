"""Give equal byte strings equal codes: an open-addressing hash table over a growing dictionary.

A slot is a uint64: the value's 32-bit hash in the high half, its code + 1 in the low half; 0 is empty.
Collisions go to the next slot. The distinct values lie end to end, as in a BytesVector, in memory
with slack, so that up to 16 bytes of one are loaded without looking where it ends; the bytes past
the end are masked off. Most values of a dictionary column are that short, and then hashing and
comparing take no branch that depends on the length.

Both factors of the hash's product carry a secret of the process: who writes the strings cannot
choose them to collide. Codes do not depend on it; they follow the order of first appearance.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy_bytes,
    load_u8,
    load_u64,
    multiply_fold,
    store_u32,
    view_i32,
    view_i64,
    view_u32,
    view_u64,
)

VALUE_SLACK_BYTES = 16
"""Readable bytes that must follow the dictionary's values."""

DONE, NEEDS_SLOTS, NEEDS_BYTES, EXCEEDED = range(4)
"""Why `add_values` stopped: all rows have codes; a table must grow first; the limits are reached."""

# The state of a dictionary: int64 fields, addresses and numbers.
SLOTS, SLOT_COUNT = 0, 1  # u8 x a power of two
HASHES = 2  # u4 x MAX_VALUES: the hash of each value
OFFSETS = 3  # i4 x (MAX_VALUES + 1): where each value starts
VALUES, VALUES_CAPACITY = 4, 5  # the bytes of the values
VALUE_COUNT = 6
MAX_VALUES, MAX_BYTES = 7, 8
NEXT_ROW = 9  # the first row without a code
SEED = 10
STATE_FIELDS = 11

_K1 = np.uint64(0x9E3779B185EBCA87)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_K3 = np.uint64(0x165667B19E3779F9)
_LOW_BYTES = np.array([(1 << (8 * n)) - 1 for n in range(9)] + [2**64 - 1] * 8, np.uint64)
"""Mask of the first 8 of n bytes, n from 0 to 16."""
_HIGH_BYTES = np.array([0] * 9 + [(1 << (8 * n)) - 1 for n in range(1, 9)], np.uint64)
"""Mask of the second 8 of n bytes."""


@kernel
def _load_slowly(address, length):
    """Return up to 8 bytes as a uint64 without reading past them."""
    word = np.uint64(0)
    for i in range(length):
        word |= np.uint64(load_u8(address + i)) << np.uint64(8 * i)
    return word


@inline
def _hash_short(low, high, length, seed):
    """Return the hash of up to 16 bytes, given as two words."""
    left = low ^ _K1 ^ seed
    right = high ^ _K2 ^ (np.uint64(length) * _K3) ^ (seed * _K3)
    folded = multiply_fold(left, right)
    return np.uint32((folded ^ (folded >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@kernel
def _hash_long(address, length, seed):
    """Return the hash of more than 16 bytes."""
    state = seed
    position = 0
    while position + 16 < length:
        low = load_u64(address + position)
        high = load_u64(address + position + 8)
        state = multiply_fold(low ^ _K1 ^ state, high ^ _K2 ^ (seed * _K3))
        position += 16
    low = load_u64(address + length - 16)
    high = load_u64(address + length - 8)
    return _hash_short(low ^ state, high, length, seed)


@kernel
def _equal_long(left, right, length):
    """Return whether two strings of ``length`` >= 8 bytes are equal."""
    position = 0
    while position + 8 <= length:
        if load_u64(left + position) != load_u64(right + position):
            return False
        position += 8
    return load_u64(left + length - 8) == load_u64(right + length - 8)


@inline
def _load_short(source, length, data_end):
    """Return up to 16 bytes as two words, zero where the string has ended."""
    if source + 16 <= data_end:
        low = load_u64(source) & _LOW_BYTES[length]
        high = load_u64(source + 8) & _HIGH_BYTES[length]
    else:
        low = _load_slowly(source, min(length, 8))
        high = _load_slowly(source + 8, max(length - 8, 0))
    return low, high


@inline
def _is_value(value, source, length, low, high):
    """Return whether the dictionary's value at ``value`` is the string, both of one length."""
    if length > 16:
        return _equal_long(source, value, length)
    found_low = load_u64(value) & _LOW_BYTES[length]
    found_high = load_u64(value + 8) & _HIGH_BYTES[length]
    return (found_low == low) & (found_high == high)


@inline
def _find(table, hashed, offsets, values, source, length, low, high):
    """Return (code, slot) of a value, or (-1, the empty slot where it belongs)."""
    slot_mask = table.size - 1
    slot = np.int64(hashed) & slot_mask
    code = np.int64(-1)
    while True:
        entry = table[slot]
        if entry == 0:
            break
        if entry >> np.uint64(32) == np.uint64(hashed):
            candidate = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            start = np.int64(offsets[candidate])
            if np.int64(offsets[candidate + 1]) - start == length and _is_value(
                values + start, source, length, low, high
            ):
                code = candidate
                break
        slot = (slot + 1) & slot_mask
    return code, slot


@kernel
def _append(state, table, slot, hashed, source, length):
    """Add a value to the dictionary; return DONE or what is in its way."""
    count = state[VALUE_COUNT]
    offsets = view_i32(state[OFFSETS], state[MAX_VALUES] + 1)
    end = np.int64(offsets[count]) + length
    if count >= state[MAX_VALUES] or end > state[MAX_BYTES]:
        return EXCEEDED
    if 2 * count >= table.size:
        return NEEDS_SLOTS
    if end > state[VALUES_CAPACITY]:
        return NEEDS_BYTES
    copy_bytes(state[VALUES] + end - length, source, length)
    offsets[count + 1] = np.int32(end)
    store_u32(state[HASHES] + 4 * count, hashed)
    table[slot] = _entry(hashed, count)
    state[VALUE_COUNT] = count + 1
    return DONE


@inline
def _entry(hashed, code):
    return (np.uint64(hashed) << np.uint64(32)) | np.uint64(code + 1)


@kernel
def add_values(
    state_address: int,
    offsets: int,
    data: int,
    data_end: int,
    valid: int,
    row_count: int,
    codes: int,
) -> int:
    """Encode a page by a dictionary: write the codes (i4) of rows [NEXT_ROW, row_count), adding the values not seen
    before.

    Rows are those of a BytesVector whose bytes may be read up to ``data_end``. ``valid`` is the
    address of one bool a row, or 0; a NULL row gets code 0 and adds nothing. Return DONE, or why it
    stopped at row NEXT_ROW: after a table has grown, the next call goes on from there.
    """
    state = view_i64(state_address, STATE_FIELDS)
    row_offsets = view_i32(offsets, row_count + 1)
    row_codes = view_i32(codes, row_count)
    table = view_u64(state[SLOTS], state[SLOT_COUNT])
    value_offsets = view_i32(state[OFFSETS], state[MAX_VALUES] + 1)
    values = state[VALUES]
    seed = np.uint64(state[SEED])
    for row in range(state[NEXT_ROW], row_count):
        if valid != 0 and load_u8(valid + row) == 0:
            row_codes[row] = 0
            continue
        start = np.int64(row_offsets[row])
        length = np.int64(row_offsets[row + 1]) - start
        source = data + start
        low = high = np.uint64(0)
        if length > 16:
            hashed = _hash_long(source, length, seed)
        else:
            low, high = _load_short(source, length, data_end)
            hashed = _hash_short(low, high, length, seed)
        code, slot = _find(table, hashed, value_offsets, values, source, length, low, high)
        if code < 0:
            code = state[VALUE_COUNT]
            outcome = _append(state, table, slot, hashed, source, length)
            if outcome != DONE:
                state[NEXT_ROW] = row
                return outcome
        row_codes[row] = code
    state[NEXT_ROW] = row_count
    return DONE


@kernel
def fill_slots(state_address: int) -> None:
    """Enter all values of a dictionary that encodes pages into its hash table, which is empty (zeroed)."""
    state = view_i64(state_address, STATE_FIELDS)
    table = view_u64(state[SLOTS], state[SLOT_COUNT])
    hashes = view_u32(state[HASHES], state[VALUE_COUNT])
    slot_mask = table.size - 1
    for code in range(state[VALUE_COUNT]):
        slot = np.int64(hashes[code]) & slot_mask
        while table[slot] != 0:
            slot = (slot + 1) & slot_mask
        table[slot] = _entry(hashes[code], code)
