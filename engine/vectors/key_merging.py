"""Merge runs of keys that are sorted already.

Runs whose ranges do not overlap are laid end to end. Those that do are merged two by two, each key represented by 8
bytes that usually decide, and its place in their low bits where that leaves enough of them; a cascade of such merges is
faster than a heap because it has no branch that the processor could guess wrong.
"""

from collections.abc import Sequence

import numpy as np

from ..kernels import merging as kernels
from .key_order import words_at, write_words
from .key_vector import BytesKeys, KeyVector, U64Keys, concat_keys, key_bytes
from .memory import address_of, addresses, allocate


def merge_order(streams: Sequence[KeyVector]) -> np.ndarray:
    """Return the merged order of sorted streams, all of one form, as rows (int64) of the streams laid end to end.

    Equal keys of two streams come in any order; those of one stay as they are.
    """
    lengths = np.array([len(keys) for keys in streams], np.int64)
    return merge_places(streams, np.cumsum(lengths) - lengths)


def merge_places(streams: Sequence[KeyVector], firsts: np.ndarray) -> np.ndarray:
    """Return the merged order as `merge_order` does, but row n of stream s as ``firsts[s]`` (int64) + n."""
    numbers = [number for number, keys in enumerate(streams) if len(keys)]
    numbers.sort(key=lambda number: key_bytes(streams[number], 0))
    result = allocate(sum(len(streams[number]) for number in numbers), np.int64)
    first = 0
    for cluster in _overlapping(streams, numbers):
        keys = [streams[number] for number in cluster]
        last = first + sum(map(len, keys))
        if len(cluster) == 1:
            result[first:last] = np.arange(firsts[cluster[0]], firsts[cluster[0]] + last - first)
        else:
            _merge(keys, firsts[cluster], result[first:last])
        first = last
    return result


def _overlapping(streams: Sequence[KeyVector], numbers: Sequence[int]) -> list[list[int]]:
    """Cut streams, numbered in the order of their first keys, where no key range crosses the cut."""
    clusters: list[list[int]] = []
    end = b""
    for number in numbers:
        keys = streams[number]
        if clusters and key_bytes(keys, 0) <= end:
            clusters[-1].append(number)
        else:
            clusters.append([number])
        end = max(end, key_bytes(keys, len(keys) - 1))
    return clusters


def _merge(streams: Sequence[KeyVector], firsts: np.ndarray, result: np.ndarray) -> None:
    """Write the merged order of streams that overlap."""
    lengths = [len(stream) for stream in streams]
    depth = _shared_prefix(streams)
    if not _merge_packed(streams, depth, lengths, firsts, result):
        laid = np.concatenate([np.arange(first, first + length) for first, length in zip(firsts, lengths, strict=True)])
        np.take(laid, _cascade(concat_keys(streams), depth, lengths), out=result)


def _merge_packed(
    streams: Sequence[KeyVector], depth: int, lengths: Sequence[int], firsts: np.ndarray, result: np.ndarray
) -> bool:
    """Merge with the places in the low bits of the words; False when these do not tell enough of the keys apart."""
    words, spare = allocate(len(result), np.uint64), allocate(len(result), np.uint64)
    cuts = np.zeros(len(lengths) + 2, np.int64)
    np.cumsum(lengths, out=cuts[1:-1])
    strings = [stream for stream in streams if isinstance(stream, BytesKeys)]
    if strings:
        sources = address_of(words) + cuts[:-2] * 8
        for stream, source in zip(strings, sources.tolist(), strict=True):
            write_words(stream, depth, source)
        kernels.squeeze_words(address_of(words), len(words))
        ends, cells = addresses([stream.offsets for stream in strings]), addresses([stream.data for stream in strings])
        whole = address_of(ends), address_of(cells)
    else:
        sources = addresses([stream.values for stream in streams if isinstance(stream, U64Keys)])
        whole = 0, address_of(sources)
    runs = address_of(sources), address_of(cuts), len(lengths), address_of(firsts)
    return bool(kernels.merge_packed(*whole, *runs, address_of(words), address_of(spare), address_of(result)))


def _cascade(keys: KeyVector, depth: int, lengths: Sequence[int]) -> np.ndarray:
    """Return the rows of ``keys`` in order; they are sorted runs of the given lengths."""
    words = _leading_words(keys, depth)
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


def _shared_prefix(streams: Sequence[KeyVector]) -> int:
    """Return how many leading bytes all strings share: those that the least and the greatest do."""
    if not isinstance(streams[0], BytesKeys):
        return 0
    least = min(key_bytes(keys, 0) for keys in streams)
    greatest = max(key_bytes(keys, len(keys) - 1) for keys in streams)
    differing = (place for place, (low, high) in enumerate(zip(least, greatest, strict=False)) if low != high)
    return next(differing, min(len(least), len(greatest)))


def _leading_words(keys: KeyVector, depth: int) -> np.ndarray:
    """Return 8 bytes of each key (uint64) from ``depth`` on, in memory that may be written."""
    if isinstance(keys, BytesKeys):
        return words_at(keys, depth)
    words = allocate(len(keys), np.uint64)
    words[:] = keys.values
    return words
