"""XXH64 of cells, as Spark's ``xxhash64`` computes it: one 64-bit state a row, seeded with 42, through which the cells
of one column after the other go. An int32 is hashed as 4 bytes, an int64 as 8, a string as its bytes.

The algorithm is Yann Collet's XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..cells.gather import load_offset
from ..simd.simd import load_u8, load_u32, load_u64, view_u64

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@inline
def _rotated(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inline
def _avalanche(state):
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


@inline
def _round(lane, word):
    return _rotated(lane + word * _P2, 31) * _P1


@inline
def _with_word(state, word):
    return _rotated(state ^ _round(np.uint64(0), word), 27) * _P1 + _P4


@inline
def _with_half(state, word):
    return _rotated(state ^ (word * _P1), 23) * _P2 + _P3


@inline
def _with_lane(state, lane):
    return (state ^ _round(np.uint64(0), lane)) * _P1 + _P4


@kernel
def _hash_long(address, length, seed):
    """Return the state of the whole 32-byte stripes of a string of at least 32 bytes."""
    first, second = seed + _P1 + _P2, seed + _P2
    third, fourth = seed, seed - _P1
    position = np.int64(0)
    while position <= length - 32:
        first = _round(first, load_u64(address + position))
        second = _round(second, load_u64(address + position + 8))
        third = _round(third, load_u64(address + position + 16))
        fourth = _round(fourth, load_u64(address + position + 24))
        position += 32
    state = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    state = _with_lane(_with_lane(state, first), second)
    return _with_lane(_with_lane(state, third), fourth)


@kernel
def _hash_bytes(address, length, seed):
    position = np.int64(0)
    if length >= 32:
        state = _hash_long(address, length, seed)
        position = length & ~np.int64(31)
    else:
        state = seed + _P5
    state += np.uint64(length)
    while position <= length - 8:
        state = _with_word(state, load_u64(address + position))
        position += 8
    if position <= length - 4:
        state = _with_half(state, np.uint64(load_u32(address + position)))
        position += 4
    while position < length:
        state = _rotated(state ^ (np.uint64(load_u8(address + position)) * _P5), 11) * _P1
        position += 1
    return _avalanche(state)


@kernel
def mix_int32(values, count, states):
    """Hash int32 as Spark's ``xxhash64`` does: pass ``count`` of them through the uint64 ``states``, one each."""
    hashes = view_u64(states, count)
    for i in range(count):
        word = np.uint64(load_u32(values + 4 * i))
        hashes[i] = _avalanche(_with_half(hashes[i] + _P5 + np.uint64(4), word))


@kernel
def mix_int64(values, count, states):
    """Hash int64 as Spark's ``xxhash64`` does: pass ``count`` of them through the uint64 ``states``, one each."""
    words = view_u64(values, count)
    hashes = view_u64(states, count)
    for i in range(count):
        hashes[i] = _avalanche(_with_word(hashes[i] + _P5 + np.uint64(8), words[i]))


@kernel
def mix_strings(offsets, data, count, states):
    """Hash byte strings as Spark's ``xxhash64`` does: pass ``count`` of them through the uint64 ``states``, one
    each."""
    hashes = view_u64(states, count)
    for i in range(count):
        start = load_offset(offsets, i)
        hashes[i] = _hash_bytes(data + start, load_offset(offsets, i + 1) - start, hashes[i])
