"""Sort keys.

To sort bytes, strip the prefix that all keys share, sort by the next 8 bytes as integers (numpy's vectorised sort), and
refine only groups of ties, 8 bytes at a time. It is a radix sort from the most significant digit with 64-bit digits.
"""

import numpy as np

from ...kernels.keys import keys as key_kernels
from ...kernels.keys import sorting as kernels
from ..memory.memory import address_of, allocate
from .key_vector import BytesKeys, KeyVector, U64Keys


def argsort_keys(keys: KeyVector) -> np.ndarray:
    """Sort encoded keys: return their row numbers (int64) in order; equal keys are in any order."""
    if isinstance(keys, U64Keys):
        return np.argsort(keys.values)
    count = len(keys)
    if count < 2:
        return np.arange(count)
    places = address_of(keys.offsets), address_of(keys.data)
    depth = int(kernels.common_prefix_length(*places, count))
    words = words_at(keys, depth)
    order = np.argsort(words)
    ties, next_ties = allocate(count, np.int64), allocate(count, np.int64)
    group_count = kernels.tied_groups(address_of(words), address_of(order), count, address_of(ties))
    scratch = allocate(3 * count if group_count else 0, np.int64)
    while group_count:
        group_count = kernels.split_groups(
            *places,
            address_of(order),
            address_of(ties),
            group_count,
            depth,
            address_of(scratch),
            count,
            address_of(next_ties),
        )
        ties, next_ties = next_ties, ties
        depth += 8
    return order


def keys_ascend(keys: KeyVector) -> bool:
    """Return whether every encoded key sorts before the next."""
    if isinstance(keys, U64Keys):
        return bool((keys.values[:-1] < keys.values[1:]).all())
    places = address_of(keys.offsets), address_of(keys.data)
    return bool(key_kernels.strings_ascend(*places, len(keys)))


def words_at(keys: BytesKeys, depth: int) -> np.ndarray:
    """Return the 8 bytes of each encoded key from ``depth`` on as a number (uint64), padded with zeros."""
    words = allocate(len(keys), np.uint64)
    write_words(keys, depth, address_of(words))
    return words


def write_words(keys: BytesKeys, depth: int, target: int) -> None:
    """Write the result of `words_at` to the address ``target``."""
    kernels.prefix_words(address_of(keys.offsets), address_of(keys.data), len(keys), depth, target)
