"""Kernels that no small table comes to: each part of the engine with them, called by itself, and its result checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from nyala.engine.codecs.frames import AlpCodec, FrameOfReferenceCodec
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.kernels.cells import aggregate
from nyala.engine.kernels.keys import merge_vectors
from nyala.engine.kernels.pages.frames import DICTIONARY
from nyala.engine.kernels.simd import simd
from nyala.engine.rowset.key_index import KeyIndex
from nyala.engine.vectors.gather_many import take_from
from nyala.engine.vectors.keys.key_merging import merge_order
from nyala.engine.vectors.keys.key_order import keys_ascend
from nyala.engine.vectors.keys.key_vector import BytesKeys, KeyVector, U64Keys
from nyala.engine.vectors.memory.memory import address_of, allocate
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.places import Places, bits_for
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector


def run_parts() -> None:
    """Run all of them."""
    _look_alike_keys()
    _merged_keys()
    _merged_words()
    _cells_of_large_dictionaries()
    _exceptions()
    _few_numbers()
    _noise()
    _pages_of_strings()
    _sums_by_group()


def _bytes(strings: list[bytes]) -> BytesVector:
    data = allocate(sum(map(len, strings)), np.uint8)
    data[:] = np.frombuffer(b"".join(strings), np.uint8)
    return BytesVector(np.cumsum([0, *map(len, strings)]).astype(np.int32), data)


def _sums_by_group() -> None:
    """Counts and sums of floats without NULL, in tables that take turns."""
    groups, cells = np.arange(10, dtype=np.int32) % 3, np.arange(10.0)
    counts, totals = np.zeros((aggregate.TABLES, 3), np.int64), np.zeros((aggregate.TABLES, 3))
    places = address_of(groups), address_of(cells), 10, 3
    aggregate.count_and_add(*places, address_of(counts), address_of(totals), aggregate.TABLES)
    assert counts.sum(axis=0).tolist() == [4, 3, 3]
    assert totals.sum(axis=0).tolist() == [18.0, 12.0, 15.0]


def _look_alike_keys() -> None:
    """Keys whose hashes have one tag and one home, around the end of the table: found, and removed, by turns."""
    index, count = KeyIndex(), 20
    hashes = np.full(count, (1 << 64) - 1, np.uint64)
    locations = np.arange(count, dtype=np.int64)
    index.insert(hashes, locations)
    assert (index.find(hashes, lambda at, found: at == found) == locations).all()
    index.remove(hashes[::2].copy(), locations[::2].copy())
    found = index.find(hashes, lambda at, found: at == found)
    assert (found == np.where(locations % 2, locations, -1)).all()


def _merged_keys() -> None:
    """Streams of strings that differ after 8 bytes, and of words that differ nowhere but where their places go."""
    texts = [b"%04d" % number * 3 + b"x" * (number % 5) for number in range(150)]
    late = [b"a", *(b"b" * 15 + b"%04d" % number for number in range(149))]
    near = np.arange(150, dtype=np.uint64) + np.uint64(1 << 63)
    near[0] = 0
    for whole in (near, np.array(texts, object), np.array(late, object)):
        streams: list[KeyVector] = []
        for rest in range(3):
            own = whole[rest::3]
            strings = _bytes(list(own)) if own.dtype == object else None
            streams.append(U64Keys(own.copy(), 8) if strings is None else BytesKeys(strings.offsets, strings.data))
            assert keys_ascend(streams[-1])
        order = merge_order(streams)
        assert (np.concatenate([whole[rest::3] for rest in range(3)])[order] == whole).all()


def _lesser_eight(carry: int, source: int, target: int) -> None:
    """Do what ``merge_eight`` does, which only the compiler has."""
    words = sorted(int(simd.load_u64(place + 8 * i)) for place in (carry, source) for i in range(8))
    for i in range(8):
        simd.store_u64(target + 8 * i, words[i])
        simd.store_u64(carry + 8 * i, words[8 + i])


def _merged_words() -> None:
    """Runs of words, long enough to be merged in several places at once, of like and of unlike lengths."""
    cast(Any, merge_vectors).merge_eight = _lesser_eight
    words = np.arange(1_500, dtype=np.uint64) * np.uint64((1 << 63) // 1_500)
    for is_left in (words % 3 == 0, words < words[100], np.zeros(len(words), np.bool_)):
        runs = [words[is_left], words[~is_left]]
        ends = [(address_of(run), address_of(run) + run.nbytes) for run in runs]
        result = np.empty_like(words)
        merge_vectors.merge_overlapping(*ends[0], *ends[1], address_of(result))
        assert (result == words).all()


def _all_places(lengths: list[int]) -> Iterator[int]:
    row_bits, _ = bits_for(lengths)
    for number, length in enumerate(lengths):
        yield from ((number << row_bits) | row for row in range(length))


def _cells_of_large_dictionaries() -> None:
    """Dictionaries with strings that are too long to be copied in one piece."""
    lengths = [70, 50]
    dictionaries = [[b"a", b"", b"b" * 33], [b"c" * 70, b"d" * 8]]
    codes = [np.arange(length, dtype=np.int32) % len(each) for length, each in zip(lengths, dictionaries, strict=True)]
    vectors = [DictionaryVector(*each) for each in zip(codes, map(_bytes, dictionaries), strict=True)]
    words = np.array(list(_all_places(lengths)), np.uint64)[::-1].copy()
    taken = take_from(vectors, Places(words, *bits_for(lengths)))
    assert isinstance(taken, BytesVector)
    cells = [dictionary[code] for own, dictionary in zip(codes, dictionaries, strict=True) for code in own]
    assert taken.data[: taken.data_bytes].tobytes() == b"".join(reversed(cells))


def _exceptions() -> None:
    """Cells of which some take many more bits than the others, read alone."""
    cells = np.arange(1_100, dtype=np.int64)
    cells[::97] <<= 50
    codec, rows = FrameOfReferenceCodec(), np.arange(0, 1_100, 97)[::-1].copy()
    payload = codec.encode(FixedVector(cells), PhysicalType.INT64)
    for wanted in (rows, rows + 1):
        found = codec.gather(payload, PhysicalType.INT64, len(cells), wanted)
        assert (found.values == cells[wanted]).all()


def _few_numbers() -> None:
    """A block with a dictionary, of cells of each width, read alone."""
    for physical in (PhysicalType.INT16, PhysicalType.INT32, PhysicalType.INT64):
        limits = np.iinfo(physical.dtype)
        few = np.array([limits.min, 1, 2, 5, limits.max], physical.dtype)
        cells = FixedVector(few[np.arange(1_100) ** 2 % 5])
        payload = FrameOfReferenceCodec().encode(cells, physical)
        assert payload[21] == DICTIONARY
        rows = np.array([0, 7, 1_023, 1_099])
        assert (FrameOfReferenceCodec().gather(payload, physical, 1_100, rows).values == cells.values[rows]).all()


def _noise() -> None:
    """Floating point numbers that are no decimals, of both signs, all of them and one alone."""
    codec, noise = AlpCodec(), np.random.default_rng(1).normal(size=1_100)
    for physical in (PhysicalType.FLOAT32, PhysicalType.FLOAT64):
        cells = noise.astype(physical.dtype)
        payload = codec.encode(FixedVector(cells), physical)
        assert (codec.decode(payload, physical, len(cells), 0, len(cells)).values == cells).all()
        assert codec.gather(payload, physical, len(cells), np.array([1_050])).values[0] == cells[1_050]


def _pages_of_strings() -> None:
    """Strings decoded by their codecs: a table reads them so only in unusual cases."""
    cells = _bytes([b"page %d" % (number * 7) for number in range(1_100)])
    for codec in (codec_by_name("prefix"), codec_by_name("fsst")):
        payload = codec.encode(cells, PhysicalType.BYTES)
        codec.check(payload, PhysicalType.BYTES, len(cells))
        found = codec.decode(payload, PhysicalType.BYTES, len(cells), 0, len(cells))
        assert isinstance(found, BytesVector)
        assert found.data[: found.data_bytes].tobytes() == cells.data[: cells.data_bytes].tobytes()
