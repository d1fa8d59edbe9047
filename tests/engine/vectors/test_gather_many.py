"""Cells at places of many vectors are those that each vector has there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors.gather_many import take_from
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.places import Places, bits_for
from nyala.engine.vectors.vector import (
    BytesVector,
    DictionaryVector,
    FixedVector,
    Vector,
    as_bytes,
    concat,
    nulls,
    validity,
)


def strings(cells: list[bytes | None]) -> BytesVector:
    filled = [cell or b"" for cell in cells]
    offsets = np.cumsum([0, *map(len, filled)]).astype(np.int32)
    valid = np.array([cell is not None for cell in cells], np.bool_)
    return BytesVector(offsets, np.frombuffer(b"".join(filled), np.uint8), None if valid.all() else valid)


def coded(values: list[bytes], codes: list[int | None]) -> DictionaryVector:
    valid = np.array([code is not None for code in codes], np.bool_)
    filled = np.array([code or 0 for code in codes], np.int32)
    return DictionaryVector(filled, strings(list(values)), None if valid.all() else valid)


def cells_of(vector: Vector) -> list[bytes | None]:
    laid = as_bytes(vector)
    data, offsets = laid.data.tobytes(), laid.offsets.tolist()
    valid = validity(laid).tolist()
    return [data[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(len(laid))]


def places_in(vectors: list[Vector], wanted: list[int]) -> Places:
    """Return places of rows of the vectors laid end to end, with something else above them."""
    row_bits, place_bits = bits_for([len(vector) for vector in vectors])
    laid = [(number << row_bits) + np.arange(len(vector), dtype=np.uint64) for number, vector in enumerate(vectors)]
    words = np.concatenate(laid)[np.array(wanted, np.int64)]
    words |= np.arange(len(words), dtype=np.uint64) << np.uint64(place_bits)
    return Places(words, row_bits, place_bits)


VECTORS = st.lists(
    st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=9).map(strings)
    | st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=9).map(
        lambda codes: coded([b"", b"one", b"number two, which is a long one"], codes)
    )
    | st.just(nulls(PhysicalType.BYTES, 3))
    | st.just(DictionaryVector(np.zeros(2, np.int32), strings([]), np.zeros(2, np.bool_))),
    min_size=1,
    max_size=5,
)


@given(VECTORS, st.lists(st.integers(0, 60), max_size=20))
def test_strings_with_and_without_dictionaries(vectors, wanted):
    laid = [cell for vector in vectors for cell in cells_of(vector)]
    wanted = list(dict.fromkeys(row % len(laid) for row in wanted))  # each at most once
    places = places_in(vectors, wanted)
    taken = take_from(vectors, places)
    assert isinstance(taken, BytesVector)
    assert cells_of(taken) == [laid[row] for row in wanted]
    assert all(not taken.lengths[row] for row in np.flatnonzero(~validity(taken))), "nothing lies under a NULL"


@pytest.mark.parametrize("physical", [each for each in PhysicalType if each is not PhysicalType.BYTES])
def test_cells_of_every_width(physical: PhysicalType) -> None:
    random = np.random.default_rng(physical.width)
    vectors: list[Vector] = []
    for rows in (3, 1, 7):
        cells = random.integers(0, 2, rows * physical.width, dtype=np.uint8).view(physical.dtype)
        vectors.append(FixedVector(cells, random.random(rows) < 0.5 if rows > 1 else None))
    order = random.permutation(11)
    taken, expected = take_from(vectors, places_in(vectors, order.tolist())), concat(vectors).take(order)
    assert isinstance(expected, FixedVector)
    assert isinstance(taken, FixedVector)
    assert taken.values.tobytes() == expected.values.tobytes()
    assert np.array_equal(validity(taken), validity(expected))
