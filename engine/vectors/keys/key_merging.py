"""Merges sorted runs of keys.

Runs whose ranges do not overlap are concatenated. Others are merged two by two. A key is represented by 8 bytes that
usually decide, with its place in their low bits if enough bits are left. A cascade of such merges is faster than a heap
because it has no unpredictable branch.
"""

from collections.abc import Sequence

import numpy as np

from ...kernels.keys import merging as kernels
from ..memory.memory import address_of, addresses, allocate
from ..places import Places, bits_for
from .key_bounds import KeyBounds, overlapping
from .key_order import words_at, write_words
from .key_vector import BytesKeys, KeyVector, U64Keys, concat_keys, key_bytes


def merge_order(streams: Sequence[KeyVector]) -> np.ndarray:
    """Return the merged order of sorted streams of encoded keys, all of one form, as rows (int64) of the concatenated
    streams.

    Equal keys of two streams are in any order; those of one keep theirs.
    """
    places = merge_places(streams)
    firsts = np.cumsum([0, *map(len, streams)])
    rows = allocate(len(places), np.int64)
    bits = places.row_bits, places.place_bits
    kernels.rows_at_places(address_of(places.words), len(places), *bits, address_of(firsts), address_of(rows))
    return rows


def merge_places(streams: Sequence[KeyVector]) -> Places:
    """Return the merged order as `merge_order` does, but as pairs of a stream's number and a row of it."""
    row_bits, place_bits = bits_for([len(keys) for keys in streams])
    numbers = [number for number, keys in enumerate(streams) if len(keys)]
    bounds = [_bounds_of(streams[number]) for number in numbers]
    places = Places(allocate(sum(map(len, streams)), np.uint64), row_bits, place_bits)
    first = 0
    for near in overlapping(bounds):
        cluster = [numbers[which] for which in near]
        last = first + sum(len(streams[number]) for number in cluster)
        part = Places(places.words[first:last], row_bits, place_bits)
        if len(cluster) == 1:
            part.words[:] = _places_of(cluster[0], last - first, row_bits)
        else:
            _merge(streams, sorted(cluster), part)
        first = last
    return places


def _bounds_of(keys: KeyVector) -> KeyBounds:
    """Return the first key and the last."""
    return key_bytes(keys, 0), key_bytes(keys, len(keys) - 1)


def _places_of(number: int, length: int, row_bits: int) -> np.ndarray:
    """Return the places of all rows of a stream."""
    return np.arange(number << row_bits, (number << row_bits) + length, dtype=np.uint64)


def _merge(streams: Sequence[KeyVector], numbers: Sequence[int], result: Places) -> None:
    """Write the merged order of overlapping streams."""
    keys = [streams[number] for number in numbers]
    depth = _shared_prefix(keys)
    if not _merge_packed(streams, numbers, depth, result):
        laid = [_places_of(number, len(streams[number]), result.row_bits) for number in numbers]
        np.take(np.concatenate(laid), _cascade(concat_keys(keys), depth, list(map(len, keys))), out=result.words)


def _merge_packed(streams: Sequence[KeyVector], numbers: Sequence[int], depth: int, result: Places) -> bool:
    """Merge with the places in the low bits of the words; False if the other bits distinguish too few keys."""
    spare, words = allocate(len(result), np.uint64), address_of(result.words)
    cuts = np.cumsum([0, *(len(streams[number]) for number in numbers)])
    strings = [stream for stream in streams if isinstance(stream, BytesKeys)]
    if strings:
        sources = words + cuts[:-1] * 8
        for number, source in zip(numbers, sources.tolist(), strict=True):
            write_words(strings[number], depth, source)
        kernels.squeeze_words(words, len(result))
        ends, cells = addresses([stream.offsets for stream in strings]), addresses([stream.data for stream in strings])
        whole = address_of(ends), address_of(cells)
    else:
        cells = addresses([stream.values for stream in streams if isinstance(stream, U64Keys)])
        sources = cells[numbers]
        whole = 0, address_of(cells)
    vectors = np.array(numbers, np.int64)
    runs = address_of(sources), address_of(cuts), address_of(vectors), len(numbers), result.row_bits, result.place_bits
    return bool(kernels.merge_packed(*whole, *runs, words, address_of(spare)))


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
        if len(cuts) % 2 == 0:  # an odd last run has no partner
            cuts.append(cuts[-1])
        for first, middle, last in zip(cuts[:-2:2], cuts[1:-1:2], cuts[2::2], strict=True):
            kernels.merge_words(*strings, *source, first, middle, last, *target)
        cuts = cuts[::2]
        words, next_words, rows, next_rows = next_words, words, next_rows, rows
    return rows


def _shared_prefix(streams: Sequence[KeyVector]) -> int:
    """Return how many leading bytes all strings share: those that the least and the greatest share."""
    if not isinstance(streams[0], BytesKeys):
        return 0
    least = min(key_bytes(keys, 0) for keys in streams)
    greatest = max(key_bytes(keys, len(keys) - 1) for keys in streams)
    differing = (place for place, (low, high) in enumerate(zip(least, greatest, strict=False)) if low != high)
    return next(differing, min(len(least), len(greatest)))


def _leading_words(keys: KeyVector, depth: int) -> np.ndarray:
    """Return 8 bytes of each key (uint64) from ``depth`` on, in writable memory."""
    if isinstance(keys, BytesKeys):
        return words_at(keys, depth)
    words = allocate(len(keys), np.uint64)
    words[:] = keys.values
    return words
