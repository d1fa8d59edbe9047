"""Sort keys, and merge runs of keys that are sorted already.

Sorting bytes: strip the prefix that all keys share, sort by the next 8 bytes as integers (numpy's
vectorised sort), and refine only the groups that tie, 8 bytes at a time. It is a radix sort from the
most significant digit with digits of 64 bits.

Merging: runs whose ranges do not overlap are laid end to end. Those that do are merged two by two,
each key represented by 8 bytes that usually decide; a cascade of such merges is faster than a heap
because it has no branch that the processor could guess wrong.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..kernels import keys as key_kernels
from ..kernels import sorting as kernels
from .key_vector import BytesKeys, KeyVector, U64Keys, concat_keys, key_bytes
from .memory import address_of, allocate


def argsort_keys(keys: KeyVector) -> np.ndarray:
    """Return the row numbers (int64) in key order; equal keys come in any order."""
    if isinstance(keys, U64Keys):
        return np.argsort(keys.values)
    count = len(keys)
    if count < 2:
        return np.arange(count)
    places = address_of(keys.offsets), address_of(keys.data)
    depth = int(kernels.common_prefix_length(*places, count))
    words = _words(keys, depth)
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
    """Return whether every key sorts before the next."""
    if isinstance(keys, U64Keys):
        return bool((keys.values[:-1] < keys.values[1:]).all())
    places = address_of(keys.offsets), address_of(keys.data)
    return bool(key_kernels.strings_ascend(*places, len(keys)))


def merge_order(streams: Sequence[KeyVector]) -> np.ndarray:
    """Return the merged order of sorted streams, all of one form, as rows (int64) of the streams laid end to end.

    Equal keys of two streams come in any order. It costs least when the streams are given in the order of their first
    keys.
    """
    numbers = [number for number, keys in enumerate(streams) if len(keys)]
    numbers.sort(key=lambda number: key_bytes(streams[number], 0))
    sorted_streams = [streams[number] for number in numbers]
    rows = _merged([[sorted_streams[number] for number in cluster] for cluster in _overlapping(sorted_streams)])
    if all(first < second for first, second in pairwise(numbers)):
        return rows
    lengths = np.array([len(keys) for keys in streams])
    starts, lengths = (np.cumsum(lengths) - lengths)[numbers], lengths[numbers]
    return rows + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)[rows]


def _overlapping(streams: Sequence[KeyVector]) -> list[list[int]]:
    """Cut streams, given in the order of their first keys, where no key range crosses the cut."""
    clusters: list[list[int]] = []
    end = b""
    for number, keys in enumerate(streams):
        if clusters and key_bytes(keys, 0) <= end:
            clusters[-1].append(number)
        else:
            clusters.append([number])
        end = max(end, key_bytes(keys, len(keys) - 1))
    return clusters


def _merged(clusters: Sequence[Sequence[KeyVector]]) -> np.ndarray:
    """Return the rows, in key order, of clusters of streams laid end to end, each cluster above the one before."""
    result = allocate(sum(len(keys) for cluster in clusters for keys in cluster), np.int64)
    first = 0
    for cluster in clusters:
        lengths = [len(keys) for keys in cluster]
        last = first + sum(lengths)
        if len(cluster) == 1:
            result[first:last] = np.arange(first, last)
        else:
            np.add(_cascade(concat_keys(cluster), lengths), first, out=result[first:last])
        first = last
    return result


def _cascade(keys: KeyVector, lengths: Sequence[int]) -> np.ndarray:
    """Return the rows of ``keys`` in order; they are sorted runs of the given lengths."""
    words = _leading_words(keys)
    rows = allocate(len(keys), np.int64)
    rows[:] = np.arange(len(keys))
    next_words, next_rows = allocate(len(keys), np.uint64), allocate(len(keys), np.int64)
    strings = (address_of(keys.offsets), address_of(keys.data)) if isinstance(keys, BytesKeys) else (0, 0)
    cuts = np.cumsum([0, *lengths]).tolist()
    while len(cuts) > 2:
        source = address_of(words), address_of(rows)
        target = address_of(next_words), address_of(next_rows)
        if len(cuts) % 2 == 0:  # an odd run out is merged with nothing
            cuts.append(cuts[-1])
        for first, middle, last in zip(cuts[:-2:2], cuts[1:-1:2], cuts[2::2], strict=True):
            kernels.merge_words(*strings, *source, first, middle, last, *target)
        cuts = cuts[::2]
        words, next_words, rows, next_rows = next_words, words, next_rows, rows
    return rows


def _leading_words(keys: KeyVector) -> np.ndarray:
    """Return 8 bytes of each key, after what all share, in memory that may be written."""
    if isinstance(keys, BytesKeys):
        places = address_of(keys.offsets), address_of(keys.data)
        return _words(keys, int(kernels.common_prefix_length(*places, len(keys))))
    words = allocate(len(keys), np.uint64)
    words[:] = keys.values
    return words


def _words(keys: BytesKeys, depth: int) -> np.ndarray:
    words = allocate(len(keys), np.uint64)
    places = address_of(keys.offsets), address_of(keys.data)
    kernels.prefix_words(*places, len(keys), depth, address_of(words))
    return words
