"""Encoded keys order as the rows do, and have the bytes that Kudu's have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.keys.keys import BytesKeys, KeyEncoder, U64Keys, argsort_keys, key_bytes
from nyala.engine.vectors.physical import PhysicalType

from ..conftest import (
    INTEGERS,
    bounds,
    byte_strings,
    bytes_vector,
    compiled,
    dictionary_vector,
    integer_vector,
    integers,
)

BYTES = PhysicalType.BYTES
key_types = st.lists(st.sampled_from([*INTEGERS, BYTES, BYTES, BYTES]), min_size=1, max_size=4)


def encode(physicals, rows):
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(physicals)
    vectors = [
        bytes_vector(list(cells)) if physical is BYTES else integer_vector(physical, list(cells))
        for physical, cells in zip(physicals, columns, strict=True)
    ]
    return KeyEncoder(physicals).encode(vectors)


def rows_of(physicals):
    row = st.tuples(*(byte_strings if kind is BYTES else integers(kind) for kind in physicals))
    return st.lists(row, max_size=25)


@compiled
@given(st.data())
def test_the_order_of_keys_is_the_order_of_rows(data):
    physicals = data.draw(key_types)
    rows = data.draw(rows_of(physicals))
    keys = encode(physicals, rows)
    encoded = [key_bytes(keys, row) for row in range(len(rows))]
    assert [rows[row] for row in argsort_keys(keys)] == sorted(rows)
    assert sorted(encoded) == [code for _, code in sorted(zip(rows, encoded, strict=True))]
    assert len(set(encoded)) == len(set(rows))
    encoder = KeyEncoder(physicals)
    assert encoded == [encoder.encode_bound(row) for row in rows]
    assert isinstance(keys, U64Keys) == encoder.is_u64


@compiled
@given(st.data())
def test_a_bound_of_leading_columns_cuts_where_they_do(data):
    physicals = data.draw(key_types)
    first, second = data.draw(rows_of(physicals).filter(lambda rows: len(rows) > 1))[:2]
    encoder = KeyEncoder(physicals)
    width = data.draw(st.integers(0, len(physicals)))
    bound = encoder.encode_bound(second[:width])
    assert (encoder.encode_bound(first) >= bound) == (first[:width] >= second[:width])


@pytest.mark.parametrize(
    ("physicals", "row", "expected"),
    [
        (["int8"], (-128,), "00"),
        (["int8"], (127,), "ff"),
        (["int16"], (1,), "8001"),
        (["int32"], (-1,), "7fffffff"),
        (["int64"], (0,), "8000000000000000"),
        (["int128"], (-(2**127),), "00" * 16),
        (["int128"], (258,), "80" + "00" * 13 + "0102"),
        (["bytes"], (b"a\0",), "6100"),
        (["bytes", "int8"], (b"a\0b", 0), "610001620000" + "80"),
        (["bytes", "bytes"], (b"", b"\0"), "0000" + "00"),
        (["int32", "int32"], (1, -2), "800000017ffffffe"),
        (["int8", "int16", "int32"], (0, 0, 0), "80800080000000"),
    ],
)
def test_known_encodings(physicals, row, expected):
    physicals = [PhysicalType(name) for name in physicals]
    assert key_bytes(encode(physicals, [row]), 0).hex() == expected


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("zero_at", [None, 0, 5, 7, 8, 31, 63])
def test_escaping_finds_zeros_wherever_they_are(length, zero_at):
    cells = bytearray(b"\x01\x80\xff" * 40)[:length]
    if zero_at is not None and zero_at < length:
        cells[zero_at] = 0
    rows = [(bytes(cells), 5), (bytes(cells) + b"\0", -5), (b"", 1)]
    keys = encode([BYTES, PhysicalType.INT32], rows)
    for row, (text, number) in enumerate(rows):
        escaped = text.replace(b"\0", b"\0\1") + b"\0\0"
        assert key_bytes(keys, row) == escaped + (number + 2**31).to_bytes(4, "big")


def test_one_string_column_is_not_copied():
    vector = bytes_vector([b"b", b"a"])
    keys = KeyEncoder([BYTES]).encode([vector])
    assert isinstance(keys, BytesKeys)
    assert keys.data is vector.data


def test_a_slice_and_a_dictionary_encode_as_their_cells():
    whole, coded = bytes_vector([b"x", b"a\0", b"b"]), dictionary_vector([b"a\0", b"b"])
    numbers = integer_vector(PhysicalType.INT16, [9, 1, 2])
    encoder = KeyEncoder([BYTES, PhysicalType.INT16])
    sliced = encoder.encode([whole.slice(1, 3), numbers.slice(1, 3)])
    from_codes = encoder.encode([coded, numbers.slice(1, 3)])
    for row in range(2):
        assert key_bytes(sliced, row) == key_bytes(from_codes, row)
        assert key_bytes(sliced, row).startswith([b"a\0\1\0\0", b"b\0\0"][row])


def test_packing_uses_the_width_it_says():
    for physicals in ([PhysicalType.INT8], [PhysicalType.INT32, PhysicalType.INT8]):
        width = sum(physical.width for physical in physicals)
        largest = tuple(bounds(physical)[1] for physical in physicals)
        keys = encode(physicals, [largest])
        assert isinstance(keys, U64Keys)
        assert keys.width == KeyEncoder(physicals).width == width
        assert keys.values.tolist() == [2 ** (8 * width) - 1]
    assert not KeyEncoder([PhysicalType.INT64, PhysicalType.INT8]).is_u64


def test_what_is_no_key_is_refused():
    for physical in (PhysicalType.BOOL, PhysicalType.FLOAT64):
        with pytest.raises(TypeError):
            KeyEncoder([PhysicalType.INT32, physical])
    with pytest.raises(OverflowError):
        KeyEncoder([PhysicalType.INT8]).encode_bound((128,))


def test_encoding_does_not_write_to_its_input():
    values = np.array([1, 2], np.int64)
    values.flags.writeable = False
    vector = integer_vector(PhysicalType.INT64, [1, 2])
    first = type(vector)(values)
    keys = KeyEncoder([PhysicalType.INT64]).encode([first])
    assert isinstance(keys, U64Keys)
    assert values.tolist() == [1, 2]
