"""Codes in order of first appearance, limits, growth; codes joined with their dictionary."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.codecs import dictionary
from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.dictionary import DictionaryBuilder, DictionaryCodec, attach
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, materialize

CODEC = DictionaryCodec()


def strings(*cells: bytes, valid: list[bool] | None = None) -> BytesVector:
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    data = np.frombuffer(b"".join(cells), np.uint8)
    return BytesVector(offsets, data, None if valid is None else np.array(valid))


def codes(builder: DictionaryBuilder, *cells: bytes, valid: list[bool] | None = None) -> list[int]:
    """Add the cells and return their codes; the limits must allow it."""
    added = builder.add(strings(*cells, valid=valid))
    assert added is not None
    return added.tolist()


def values(builder: DictionaryBuilder) -> list[bytes]:
    distinct = builder.dictionary()
    data = distinct.data.tobytes()
    ends = distinct.offsets.tolist()
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(st.binary(max_size=3) | st.binary(max_size=40), max_size=60), max_size=4))
def test_codes_are_those_of_arrow(batches):
    builder = DictionaryBuilder()
    found = [code for batch in batches for code in codes(builder, *batch)]
    joined = pa.array([cell for batch in batches for cell in batch], pa.binary())
    expected = joined.dictionary_encode()
    assert values(builder) == expected.dictionary.to_pylist()
    assert found == expected.indices.to_pylist()


def test_strings_that_differ_only_in_length_or_in_one_byte():
    cells = [b"\0" * n for n in range(40)]
    cells += [b"a" * n + b"b" + b"a" * (39 - n) for n in range(40)]
    assert codes(DictionaryBuilder(), *cells, *cells) == [*range(80), *range(80)]


def test_tables_grow_with_the_values():
    cells = [b"value %d" % i for i in range(50_000)]
    builder = DictionaryBuilder()
    assert codes(builder, *cells) == list(range(50_000))
    assert codes(builder, *cells[::-1]) == list(range(50_000))[::-1]
    assert values(builder) == cells


def test_null_rows_get_code_zero_and_add_nothing():
    builder = DictionaryBuilder()
    null = [False, True, False, True]
    assert codes(builder, b"", b"b", b"", b"b", valid=null) == [0, 0, 0, 0]
    assert values(builder) == [b"b"]


@pytest.mark.parametrize("limits", [{"max_values": 3}, {"max_bytes": 5}])
def test_beyond_a_limit_nothing_is_added(limits):
    builder = DictionaryBuilder(**limits)
    assert codes(builder, b"a", b"bb", b"a") == [0, 1, 0]
    assert builder.add(strings(b"bb", b"c", b"dd", b"e")) is None
    assert values(builder) == [b"a", b"bb"]
    assert len(builder) == 2 and builder.data_bytes == 3
    assert codes(builder, b"e", b"bb") == [2, 1]
    assert values(builder) == [b"a", b"bb", b"e"]


def test_exactly_at_the_limits():
    builder = DictionaryBuilder(max_values=2, max_bytes=4)
    assert codes(builder, b"abc", b"d", b"abc") == [0, 1, 0]
    assert builder.add(strings(b"")) is None


def test_a_value_larger_than_all_room_so_far():
    cell = bytes(range(256)) * 2000
    builder = DictionaryBuilder()
    assert codes(builder, b"small", cell, cell) == [0, 1, 1]
    assert values(builder) == [b"small", cell]


def test_codes_do_not_depend_on_the_secret_of_the_process(monkeypatch):
    cells = [b"value %d" % (i * i % 997) for i in range(3000)]
    found = []
    for seed in (0, 1, 2**62 + 12345):
        monkeypatch.setattr(dictionary, "_SEED", seed)
        found.append(codes(DictionaryBuilder(), *cells))
    assert found[0] == found[1] == found[2]


def test_strings_that_zero_a_factor_without_the_secret_do_not_collide():
    """Bytes 8 to 15 cancel the constants of the hash; without a secret all these would be equal."""
    k2, k3 = 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    high = (k2 ^ (16 * k3) & (2**64 - 1)).to_bytes(8, "little")
    builder = DictionaryBuilder()
    builder.add(strings(*[i.to_bytes(8, "little") + high for i in range(500)]))
    assert len(np.unique(builder._hashes[:500])) > 490


def test_a_dictionary_given_out_does_not_change():
    builder = DictionaryBuilder()
    builder.add(strings(b"a"))
    early = builder.dictionary()
    builder.add(strings(b"b", b"c"))
    assert len(early) == 1 and early.data.tobytes() == b"a"


@pytest.mark.parametrize(("largest", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_codes_take_the_narrowest_width_of_their_page(largest, width):
    cells = np.array([0, largest, 7], np.int32)
    payload = CODEC.encode(FixedVector(cells), PhysicalType.BYTES)
    assert payload[0] == width
    assert len(payload) == 1 + 4 + 3 * width
    CODEC.check(payload, PhysicalType.BYTES, 3)
    assert CODEC.decode(payload, PhysicalType.BYTES, 3, 0, 3).values.tolist() == cells.tolist()


def test_attach_joins_codes_and_values():
    vector = attach(FixedVector(np.array([1, 0, 1], np.int32)), strings(b"x", b"yy"))
    assert materialize(vector).data.tobytes() == b"yyxyy"


@pytest.mark.parametrize("code", [2, 2**31 - 1, -1, -(2**31)])
def test_a_code_without_a_value_is_corruption(code):
    with pytest.raises(CorruptPageError):
        attach(FixedVector(np.array([0, code], np.int32)), strings(b"x", b"yy"))


def test_an_empty_dictionary_serves_rows_that_are_all_null():
    zeros = FixedVector(np.zeros(3, np.int32))
    vector = attach(zeros, strings(), np.zeros(3, np.bool_))
    assert materialize(vector).offsets.tolist() == [0, 0, 0, 0]
    with pytest.raises(CorruptPageError):
        attach(FixedVector(np.array([1], np.int32)), strings())
