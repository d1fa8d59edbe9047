"""XXH64 of cells and columns: the hash that maps rows to buckets, for a client without compiled kernels.

The values are those of Spark's ``xxhash64``: the hash of one column is the seed of the next. numpy hashes all rows of a
column at once, strings in groups of equal length. The package xxhash hashes single cells, and the strings of a column
whose groups are small: a group takes numpy as long as 1,000 cells take the package.
(Y. Collet, "xxHash fast digest algorithm", XXH64; Spark's ``XXH64.java``.)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

try:
    import xxhash
except ModuleNotFoundError:
    need = "a client of several servers needs xxhash: pip install 'nyala[servers]'"
    raise ModuleNotFoundError(need, name="xxhash") from None

P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
STRIPE = 32
LARGE_GROUP = 1000

hash_bytes = xxhash.xxh64_intdigest
"""Return the hash of bytes, seeded with an integer of 64 bits."""


def hash_integer(value: int, seed: int, length: int) -> int:
    """Return the hash of an integer of ``length`` bytes, 4 or 8, seeded with ``seed``, by which a client finds a row's
    server."""
    unsigned = value & ((1 << 8 * length) - 1)
    return hash_bytes(unsigned.to_bytes(length, "little"), seed)


def mix_ints(values: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the hashes of int32 ``values``, seeded with ``states`` (uint64), by which a client finds the servers of
    rows."""
    words = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    return _avalanche(_mix_4(states + P5 + np.uint64(4), words))


def mix_longs(values: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the hashes of int64 ``values``, seeded with ``states`` (uint64), by which a client finds the servers of
    rows."""
    words = values.astype(np.int64).view(np.uint64)
    return _avalanche(_mix_8(states + P5 + np.uint64(8), words))


def mix_bytes(cells: pa.Array, states: np.ndarray) -> np.ndarray:
    """Return the hashes of the bytes of binary or string ``cells`` (offsets of 32 bits), seeded with ``states``, by
    which a client finds the servers of rows."""
    offsets = np.frombuffer(cells.buffers()[1], np.int32, len(cells) + 1, cells.offset * 4)
    data = np.frombuffer(cells.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    firsts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    if len(cells) <= LARGE_GROUP * len(firsts):
        single = cells.cast(pa.binary()).to_pylist()
        return np.fromiter(map(hash_bytes, single, states.tolist()), np.uint64, len(cells))
    hashes = np.empty(len(cells), np.uint64)
    for rows in np.split(order, firsts[1:]):
        length = int(lengths[rows[0]])
        digits = data[starts[rows][:, None] + np.arange(length)]
        hashes[rows] = _mix_digits(np.ascontiguousarray(digits), states[rows])
    return hashes


def _mix_digits(digits: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the hashes of rows of bytes (n by length)."""
    length = digits.shape[1]
    at = length - length % STRIPE
    mixed = _mix_stripes(digits[:, :at], seeds) if at else seeds + P5
    mixed = mixed + np.uint64(length)
    while at + 8 <= length:
        mixed = _mix_8(mixed, _words(digits[:, at : at + 8], np.uint64)[:, 0])
        at += 8
    if at + 4 <= length:
        mixed = _mix_4(mixed, _words(digits[:, at : at + 4], np.uint32)[:, 0].astype(np.uint64))
        at += 4
    for place in range(at, length):
        mixed = _rotated(mixed ^ (digits[:, place].astype(np.uint64) * P5), 11) * P1
    return _avalanche(mixed)


def _mix_stripes(digits: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    words = _words(digits, np.uint64)
    lanes = [seeds + P1 + P2, seeds + P2, seeds.copy(), seeds - P1]
    for place in range(words.shape[1]):
        lanes[place % 4] = _round(lanes[place % 4], words[:, place])
    mixed = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        mixed = (mixed ^ _round(np.zeros_like(lane), lane)) * P1 + P4
    return mixed


def _words(digits: np.ndarray, kind: type[np.unsignedinteger]) -> np.ndarray:
    return np.ascontiguousarray(digits).view(np.dtype(kind).newbyteorder("<"))


def _mix_4(mixed: np.ndarray, words: np.ndarray) -> np.ndarray:
    return _rotated(mixed ^ (words * P1), 23) * P2 + P3


def _mix_8(mixed: np.ndarray, words: np.ndarray) -> np.ndarray:
    return _rotated(mixed ^ _round(np.zeros_like(words), words), 27) * P1 + P4


def _round(lane: np.ndarray, words: np.ndarray) -> np.ndarray:
    return _rotated(lane + words * P2, 31) * P1


def _rotated(values: np.ndarray, bits: int) -> np.ndarray:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(mixed: np.ndarray) -> np.ndarray:
    mixed = (mixed ^ (mixed >> np.uint64(33))) * P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * P3
    return mixed ^ (mixed >> np.uint64(32))
