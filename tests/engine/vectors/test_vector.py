"""Slices, takes, concatenations and patches, against the same on Python lists."""

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors import gather
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import INT128_DTYPE, PhysicalType
from nyala.engine.vectors.vector import (
    BytesVector,
    DictionaryVector,
    FixedVector,
    concat,
    materialize,
    nulls,
    patch,
    zeros,
)

from .conftest import ARROW_TYPES, byte_strings, bytes_vector, cells_of, compiled, dictionary_vector

nullable_strings = st.lists(st.none() | byte_strings, max_size=30)
nullable_integers = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30)


def int64_vector(values: list[int | None]) -> FixedVector:
    vector = from_arrow(pa.array(values, pa.int64()), PhysicalType.INT64)
    assert isinstance(vector, FixedVector)
    return vector


SHAPES = {
    "fixed": (int64_vector, nullable_integers, pa.int64()),
    "bytes": (bytes_vector, nullable_strings, pa.binary()),
    "dictionary": (dictionary_vector, nullable_strings, pa.binary()),
}


@pytest.mark.parametrize("shape", SHAPES)
@compiled
@given(data=st.data())
def test_slice_and_take_pick_the_rows_they_name(shape, data):
    make, lists, arrow_type = SHAPES[shape]
    cells = data.draw(lists)
    first = data.draw(st.integers(0, len(cells)))
    last = data.draw(st.integers(first, len(cells)))
    part = make(cells).slice(first, last)
    assert len(part) == last - first
    assert cells_of(part, arrow_type) == cells[first:last]
    picks = st.integers(0, max(last - first - 1, 0))
    rows = data.draw(st.lists(picks, max_size=40 if last > first else 0))
    taken = part.take(np.array(rows, data.draw(st.sampled_from([np.int32, np.int64]))))
    assert cells_of(taken, arrow_type) == [cells[first + row] for row in rows]


@pytest.mark.parametrize("shape", SHAPES)
@compiled
@given(data=st.data())
def test_concat_lays_rows_end_to_end(shape, data):
    make, lists, arrow_type = SHAPES[shape]
    parts = data.draw(st.lists(lists, min_size=1, max_size=5))
    whole = concat([make([None, *part]).slice(1, len(part) + 1) for part in parts])
    assert cells_of(whole, arrow_type) == list(chain(*parts))


@pytest.mark.parametrize("shape", SHAPES)
@compiled
@given(data=st.data())
def test_patch_replaces_only_the_named_rows(shape, data):
    make, lists, arrow_type = SHAPES[shape]
    cells = data.draw(lists)
    picks = st.integers(0, max(len(cells) - 1, 0))
    rows = sorted(data.draw(st.sets(picks, max_size=len(cells))))
    new = data.draw(st.lists(st.sampled_from([*cells, None]), min_size=len(rows), max_size=len(rows)))
    base = make([None, *cells]).slice(1, len(cells) + 1)
    patched = patch(base, np.array(rows, np.int64), make(new))
    expected = list(cells)
    for row, cell in zip(rows, new, strict=True):
        expected[row] = cell
    assert cells_of(patched, arrow_type) == expected
    assert cells_of(base, arrow_type) == cells, "the base was written to"


@pytest.mark.parametrize("row", [-1, 3, 2**40])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_outside_the_vector_is_refused(shape, row):
    vector = SHAPES[shape][0]([None, None, None])
    with pytest.raises(IndexError):
        vector.take(np.array([0, row]))
    with pytest.raises(IndexError):
        patch(vector, np.array([row]), SHAPES[shape][0]([None]))


@pytest.mark.parametrize("physical", list(PhysicalType))
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_zeros_are_zero_and_nulls_are_null(physical, count):
    for make, is_valid in ((zeros, True), (nulls, False)):
        vector = make(physical, count)
        assert len(vector) == count
        assert (vector.valid is None) == is_valid
        if isinstance(vector, BytesVector):
            assert vector.offsets.tolist() == [0] * (count + 1)
        else:
            assert vector.values.tobytes() == bytes(count * physical.width)
        if not is_valid and physical in ARROW_TYPES:
            assert cells_of(vector, ARROW_TYPES[physical]) == [None] * count


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f8", INT128_DTYPE])
def test_take_of_every_width(dtype):
    cells = np.arange(16 * 100, dtype=np.uint32).view(np.uint8).view(dtype)
    rows = np.random.default_rng(1).integers(0, len(cells), 500)
    assert FixedVector(cells).take(rows).values.tobytes() == cells[rows].tobytes()


def test_one_dictionary_stays_and_two_are_written_out():
    vector = dictionary_vector([b"a", b"b", None, b"a"])
    same = concat([vector.slice(0, 2), vector.slice(1, 4)])
    assert isinstance(same, DictionaryVector)
    assert same.dictionary is vector.dictionary
    mixed = concat([vector, bytes_vector([b"c"]), dictionary_vector([b"a"])])
    assert isinstance(mixed, BytesVector)
    assert cells_of(mixed) == [b"a", b"b", None, b"a", b"c", b"a"]
    assert isinstance(patch(vector, np.array([0]), vector.slice(1, 2)), DictionaryVector)
    assert isinstance(patch(vector, np.array([0]), dictionary_vector([b"a"])), BytesVector)


def test_nothing_lies_under_a_null_of_a_dictionary():
    cells = materialize(dictionary_vector([b"first", None, b"first"]))
    assert cells.offsets.tolist() == [0, 5, 5, 10]
    assert cells_of(materialize(dictionary_vector([None, None]))) == [None, None]


def test_too_many_bytes_for_int32_offsets_are_refused(monkeypatch):
    monkeypatch.setattr(gather, "MAX_DATA_BYTES", 10)
    vector = bytes_vector([b"123456"])
    with pytest.raises(OverflowError):
        vector.take(np.array([0, 0]))
    with pytest.raises(OverflowError):
        concat([vector, vector])
    with pytest.raises(OverflowError):
        patch(bytes_vector([b"123456", b""]), np.array([1]), vector)
    vector.take(np.array([0]))
