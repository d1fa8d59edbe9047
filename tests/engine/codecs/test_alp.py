"""ALP: numbers that were decimals take few bits, and any others come back to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.frames import AlpCodec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

CODEC = AlpCodec()
FRAME = np.dtype(
    [("base", "<i8"), ("powers", "u1", 8), ("end", "<u4"), ("width", "u1"), ("form", "u1"), ("exceptions", "<u2")]
)
STEPS, REAL = 2, 3
BITS = {"float32": "u4", "float64": "u8"}


def come_back(values: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Encode and compare all cells by their bits, read whole and alone; return the frames."""
    physical, rows = PhysicalType(values.dtype.name), len(values)
    payload = CODEC.encode(FixedVector(values, valid), physical)
    CODEC.check(payload, physical, rows)
    seen = np.ones(rows, np.bool_) if valid is None else valid
    whole = CODEC.decode(payload, physical, rows, 0, rows).values.view(BITS[values.dtype.name])
    assert (whole[seen] == values.view(whole.dtype)[seen]).all()
    alone = CODEC.gather(payload, physical, rows, np.arange(rows)[::-1]).values[::-1]
    assert (alone.view(whole.dtype) == whole).all()
    return payload[: FRAME.itemsize * -(-rows // 1024)].view(FRAME)


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("digits", range(6))
def test_decimals_take_the_bits_of_their_digits(name, digits):
    random = np.random.default_rng(digits)
    numbers = random.integers(0, 10_000, 4096)
    found = come_back((numbers / 10**digits).astype(name))
    assert (found["form"] == 1).all() and (found["width"] <= 14).all() and (found["exceptions"] < 200).all()


@pytest.mark.parametrize(("name", "whole"), [("float64", 52), ("float32", 23)])
def test_noise_loses_the_bits_of_exponents_that_are_seldom(name, whole):
    """Of both signs, one bit is the sign."""
    noise = np.random.default_rng(1).normal(size=2048).astype(name)
    found = come_back(noise)
    assert (found["form"] == REAL).all() and (found["width"] <= whole + 5).all() and (found["exceptions"] > 0).any()
    assert (found["powers"][:, 0] == 1).all()
    assert (come_back(np.minimum(np.abs(noise), 3.9).astype(name))["width"] <= whole + 5).all()


def test_singles_among_doubles_are_steps():
    found = come_back(np.random.default_rng(1).normal(size=2048).astype("f4").astype("f8"))
    assert (found["form"] == STEPS).all() and (found["width"] <= 36).all()


def test_a_turn_of_more_than_a_bit_is_refused():
    values = np.random.default_rng(1).normal(size=50)
    payload = CODEC.encode(FixedVector(values), PhysicalType.FLOAT64)
    payload[8] = 2
    with pytest.raises(CorruptPageError, match="block 0 contradicts its frame"):
        CODEC.check(payload, PhysicalType.FLOAT64, 50)


def test_a_constant_takes_no_bits_whatever_it_is():
    for value in (np.nan, -0.0, np.pi, np.inf, 5e-324):
        assert come_back(np.full(1500, value))["width"].tolist() == [0, 0]


def test_other_numbers_among_decimals_are_exceptions():
    values = np.random.default_rng(2).integers(0, 1000, 1024) / 100
    odd = [np.nan, -0.0, np.inf, -np.inf, np.pi, 5e-324, 1.7976931348623157e308, 2.0**60]
    values[np.arange(len(odd)) * 100] = odd
    found = come_back(values)
    assert found["form"].tolist() == [1] and found["exceptions"].tolist() == [len(odd)]


def test_nulls_take_no_bits():
    valid = np.arange(2048) % 3 != 0
    found = come_back(np.where(valid, 1e6 + np.arange(2048) % 4 / 4, 0.0), valid)
    assert (found["width"] <= 9).all()


def test_every_cell_an_exception_of_the_powers_of_the_page():
    """The sampled blocks are decimals; the ones between are not."""
    values = np.random.default_rng(3).integers(0, 1000, 8 * 1024) / 100
    values.reshape(8, 1024)[1::2] = np.random.default_rng(4).normal(size=(4, 1024))
    assert come_back(values)["form"].tolist() == [1, REAL] * 4


@settings(deadline=None)
@given(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 2**64 - 1), max_size=1500), st.data())
def test_any_bits_with_nulls(name, numbers, data):
    values = np.array(numbers, np.uint64).astype(BITS[name]).view(name)
    valid = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    come_back(values, np.array(valid, np.bool_))


@settings(deadline=None)
@given(
    st.sampled_from(sorted(BITS)),
    st.integers(-20, 20),
    st.integers(1, 2**53),
    st.lists(st.floats(width=32), max_size=50),
    st.integers(0, 2**32 - 1),
)
def test_any_decimals_with_any_numbers_among_them(name, exponent, limit, others, seed):
    random = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        values = (random.integers(-limit, limit, 1100) * 10.0**exponent).astype(name)
    values[random.integers(0, 1100, len(others))] = others
    come_back(values, random.random(1100) < 0.9 if seed % 2 else None)


@pytest.mark.parametrize(("exponent", "factor"), [(19, 0), (2, 3), (255, 255)])
def test_powers_beyond_the_table(exponent, factor):
    payload = CODEC.encode(FixedVector(np.arange(100) / 4), PhysicalType.FLOAT64)
    payload[8:10] = exponent, factor
    with pytest.raises(CorruptPageError, match="block 0 contradicts its frame"):
        CODEC.check(payload, PhysicalType.FLOAT64, 100)
