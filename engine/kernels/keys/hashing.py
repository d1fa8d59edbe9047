"""64-bit hashes of keys: fold the 128-bit product of two words, as wyhash does.

A plain folded product is 0 whenever one factor is, so that whoever knows the constants could make
any number of keys with one hash. Here both factors are xored back into the product (wyhash calls
that variant protected), which leaves no such factor. The Bloom filters of base files are made of these hashes: a
change here needs a new number for theirs (`rowset.key_filter`).
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.gather import load_offset
from ..simd.simd import load_u8, load_u16, load_u32, load_u64, multiply_fold, view_u64

_K1 = np.uint64(0xA0761D6478BD642F)
_K2 = np.uint64(0xE7037ED1A0B428DB)
_K3 = np.uint64(0x8EBC6AF09C88C6E3)


@inline
def _mix(left, right):
    return multiply_fold(left, right) ^ left ^ right


@inline
def hash_word(word):
    """Return the hash of a key that is one uint64: every bit of it depends on every bit of the word."""
    return _mix(_mix(word ^ _K1, _K2), _K3)


@inline
def _load_1_to_7(address, length):
    """Return 1 to 7 bytes as a u64, distinct for distinct bytes of one length."""
    if length >= 4:
        high = np.uint64(load_u32(address + length - 4))
        return np.uint64(load_u32(address)) | (high << np.uint64(32))
    high = np.uint64(load_u8(address + length - 1))
    if length >= 2:
        return np.uint64(load_u16(address)) | (high << np.uint64(16))
    return high


@kernel
def hash_string(address, length):
    """Return the hash of a key of ``length`` bytes; none outside them is read."""
    state = _K3
    position = np.int64(0)
    while length - position > 16:
        left = load_u64(address + position) ^ state
        right = load_u64(address + position + 8) ^ _K2
        state = _mix(left, right)
        position += 16
    rest = length - position
    left = right = np.uint64(0)
    if rest >= 8:
        left, right = load_u64(address + position), load_u64(address + length - 8)
    elif rest > 0:
        left = _load_1_to_7(address + position, rest)
    return _mix(_mix(left ^ _K1, right ^ state), _K2 ^ np.uint64(length))


@kernel
def hash_u64(values, count, result):
    """Write the hash of each of ``count`` keys that are uint64."""
    words = view_u64(values, count)
    hashes = view_u64(result, count)
    for i in range(count):
        hashes[i] = hash_word(words[i])


@kernel
def hash_strings(offsets, data, count, result):
    """Write the hash of each of ``count`` keys that are byte strings."""
    hashes = view_u64(result, count)
    for i in range(count):
        start = load_offset(offsets, i)
        hashes[i] = hash_string(data + start, load_offset(offsets, i + 1) - start)
