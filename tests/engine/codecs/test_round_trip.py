"""Every codec with every type it supports: what goes in comes out, to the bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, nulls

SIZES = (0, 1, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 2500)
KINDS = ("random", "small", "runs", "equal", "extremes", "sorted")

examples = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@examples
@given(
    rows=st.sampled_from(SIZES) | st.integers(0, 2100),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_any_range_comes_back(codec, physical, make_page, cells_of, rows, kind, seed, bounds):
    vector = make_page(codec, physical, rows, kind, seed)
    payload = codec.encode(vector, physical)
    codec.check(payload, physical, rows)
    expected = cells_of(vector)
    assert cells_of(codec.decode(payload, physical, rows, 0, rows)) == expected
    first, last = sorted(round(bound * rows) for bound in bounds)
    part = codec.decode(payload, physical, rows, first, last)
    assert len(part) == last - first
    assert cells_of(part) == expected[first:last]


@examples
@given(
    rows=st.sampled_from(SIZES),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
)
def test_any_rows_come_back_in_the_order_asked(codec, physical, make_page, cells_of, rows, kind, seed, picks):
    vector = make_page(codec, physical, rows, kind, seed)
    payload = codec.encode(vector, physical)
    wanted = np.array([int(pick * rows) for pick in picks if rows], np.int64)
    found = codec.gather(payload, physical, rows, wanted)
    expected = cells_of(vector)
    assert cells_of(found) == [expected[row] for row in wanted]


@pytest.mark.parametrize("kind", ["random", "runs"])
def test_a_full_page(codec, physical, make_page, cells_of, kind):
    vector = make_page(codec, physical, PAGE_ROWS, kind, 7)
    payload = codec.encode(vector, physical)
    codec.check(payload, physical, PAGE_ROWS)
    assert cells_of(codec.decode(payload, physical, PAGE_ROWS, 0, PAGE_ROWS)) == cells_of(vector)


def test_cells_under_null_are_zero_again(codec, physical, cells_of):
    codes = codec.name == "dictionary"
    vector = nulls(PhysicalType.INT32 if codes else physical, 1500)
    payload = codec.encode(vector, physical)
    codec.check(payload, physical, 1500)
    assert cells_of(codec.decode(payload, physical, 1500, 3, 1400)) == cells_of(vector)[3:1400]


def test_the_result_has_the_physical_type(codec, physical, make_page):
    vector = make_page(codec, physical, 100, "small", 1)
    payload = codec.encode(vector, physical)
    for result in (
        codec.decode(payload, physical, 100, 10, 90),
        codec.gather(payload, physical, 100, np.array([4, 2])),
    ):
        if physical is PhysicalType.BYTES and codec.name != "dictionary":
            assert isinstance(result, BytesVector)
            assert result.offsets.dtype == np.int32
        else:
            assert isinstance(result, FixedVector)
            dtype = np.dtype(np.int32) if codec.name == "dictionary" else physical.dtype
            assert result.values.dtype == dtype


def test_rows_outside_the_page_are_an_index_error(codec, physical, make_page):
    payload = codec.encode(make_page(codec, physical, 100, "small", 1), physical)
    for first, last in ((-1, 5), (0, 101), (60, 50)):
        with pytest.raises(IndexError):
            codec.decode(payload, physical, 100, first, last)
    for row in (-1, 100, 2**40):
        with pytest.raises(IndexError):
            codec.gather(payload, physical, 100, np.array([3, row]))


def test_nothing_is_read_past_the_cells_or_the_payload(codec, physical, make_page, cells_of, guarded):
    """The byte after each input is not ours: touching it would end this process."""
    for rows in (1, 63, 64, 65, 1025):
        for kind in ("random", "runs", "sorted"):
            vector = make_page(codec, physical, rows, kind, rows)
            if isinstance(vector, BytesVector):
                close = BytesVector(guarded(vector.offsets), guarded(vector.data))
            else:
                close = FixedVector(guarded(vector.values))
            payload = guarded(codec.encode(close, physical))
            codec.check(payload, physical, rows)
            assert cells_of(codec.decode(payload, physical, rows, 0, rows)) == cells_of(vector)
            last = codec.gather(payload, physical, rows, np.array([rows - 1]))
            assert cells_of(last) == cells_of(vector)[-1:]


def test_many_threads_may_read_one_page(codec, physical, make_page, cells_of):
    vector = make_page(codec, physical, 5000, "sorted", 11)
    payload = codec.encode(vector, physical)
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda _: codec.decode(payload, physical, 5000, 0, 5000), range(40))
        expected = cells_of(vector)
        assert all(cells_of(result) == expected for result in results)
