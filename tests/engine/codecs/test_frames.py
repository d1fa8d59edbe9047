"""Frames of reference: every width, lines, exceptions, what stands under NULL, and cells read alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.frames import FrameOfReferenceCodec
from nyala.engine.kernels.pages import frames as kernels
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

CODEC = FrameOfReferenceCodec()
FRAME = np.dtype(
    [("base", "<i8"), ("slope", "<i8"), ("end", "<u4"), ("width", "u1"), ("form", "u1"), ("exceptions", "<u2")]
)
INTEGERS = ["int8", "int16", "int32", "int64"]


def frames_of(payload: np.ndarray, rows: int) -> np.ndarray:
    return payload[: FRAME.itemsize * -(-rows // 1024)].view(FRAME)


def come_back(values: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Encode and compare all cells, read whole and alone; return the frames."""
    physical, rows = PhysicalType(values.dtype.name), len(values)
    payload = CODEC.encode(FixedVector(values, valid), physical)
    CODEC.check(payload, physical, rows)
    seen = np.ones(rows, np.bool_) if valid is None else valid
    whole = CODEC.decode(payload, physical, rows, 0, rows).values
    assert (whole[seen] == values[seen]).all()
    alone = CODEC.gather(payload, physical, rows, np.arange(rows)[::-1]).values[::-1]
    assert (alone == whole).all()
    return frames_of(payload, rows)


@pytest.mark.parametrize("width", range(65))
@pytest.mark.parametrize("rows", [1, 7, 8, 1024, 1500])
def test_every_width(width, rows):
    random = np.random.default_rng(width)
    values = random.integers(0, 2**64, rows, dtype=np.uint64) >> np.uint64(max(64 - width, 0)) if width else None
    values = np.zeros(rows, np.uint64) if values is None else values
    values[0], values[-1] = 0, (1 << width) - 1 if rows > 1 else 0
    found = come_back(values.view(np.int64))
    if rows == 1024:
        assert found["width"][0] == (width if width <= 57 else 64)


@settings(deadline=None)
@given(st.sampled_from(INTEGERS), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2100), st.data())
def test_any_integers_with_nulls(name, numbers, data):
    values = np.array(numbers, np.int64).astype(name)
    valid = np.array(data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers))), np.bool_)
    come_back(values, valid)


@settings(deadline=None)
@given(
    st.sampled_from(INTEGERS),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**45), 2**45),
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
)
def test_lines_with_jitter_and_outliers(name, start, step, seed, outliers):
    random = np.random.default_rng(seed)
    values = (np.arange(1100) * step + random.integers(0, 100, 1100)).view(np.uint64) + np.uint64(start % 2**64)
    values[random.integers(0, 1100, outliers)] = random.integers(0, 2**64, outliers, dtype=np.uint64)
    come_back(values.view(np.int64).astype(name))


def test_rising_numbers_take_the_bits_of_their_jitter():
    random = np.random.default_rng(1)
    found = come_back(1_700_000_000_000_000 + np.arange(4096) * 1000 + random.integers(0, 256, 4096))
    assert (found["slope"] != 0).all() and (found["width"] <= 9).all()


@pytest.mark.parametrize(("name", "step"), [("int64", 1_000_000), ("int64", 2**40 + 2), ("int32", 60), ("int16", 256)])
def test_multiples_take_the_bits_of_their_quotients(name, step):
    random = np.random.default_rng(1)
    quotients = random.integers(-50, 50, 2048)
    quotients[:2] = quotients[1024:1026] = 3, 4
    found = come_back((quotients * step + 7).astype(name))
    assert (found["form"] == kernels.STEPS).all() and (found["slope"] == step).all() and (found["width"] <= 7).all()


def test_a_line_of_multiples_takes_no_bits():
    found = come_back(np.arange(2048) * 1_000_000)
    assert (found["form"] == kernels.LINE).all() and (found["width"] == 0).all()


@settings(deadline=None)
@given(
    st.sampled_from(INTEGERS), st.integers(1, 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)
)
def test_any_multiples_and_outliers(name, step, start, seed):
    random = np.random.default_rng(seed)
    values = random.integers(0, 1 + seed % 99, 1100) * step + start if step < 2**50 else np.array([start, start ^ step])
    values[: seed % 3] = start
    come_back(values.astype(np.uint64).view(np.int64).astype(name))


@pytest.mark.parametrize("name", ["int16", "int32", "int64"])
@pytest.mark.parametrize("distinct", [3, 8, 9, 16])
def test_few_integers_far_apart_take_the_bits_of_their_numbers(name, distinct):
    random = np.random.default_rng(distinct)
    limits = np.iinfo(name)
    few = random.integers(limits.min, limits.max, distinct).astype(name)
    few[:2] = limits.min, limits.max
    values = few[random.integers(0, distinct, 2500)]
    found = come_back(values)
    assert (found["form"] == kernels.DICTIONARY).all() and (found["exceptions"] == 1 << found["width"]).all()
    assert (found["width"] == (distinct - 1).bit_length()).all()


@settings(deadline=None)
@given(
    st.sampled_from(INTEGERS),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=70),
    st.integers(1, 1100),
    st.integers(0, 2**32 - 1),
)
def test_any_few_integers_with_nulls(name, few, rows, seed):
    random = np.random.default_rng(seed)
    values = np.array(few, np.int64).astype(name)[random.integers(0, len(few), rows)]
    come_back(values)
    come_back(values, random.random(rows) < 0.7)


def test_too_many_integers_for_a_dictionary_are_packed():
    random = np.random.default_rng(1)
    few = random.integers(-(2**62), 2**62, 65)
    assert (come_back(few[np.arange(1024) % 65])["form"] == kernels.LINE).all()
    assert (come_back(few[np.arange(1024) % 64])["form"] == kernels.DICTIONARY).all()


@pytest.mark.parametrize(("field", "value"), [("width", 0), ("width", 5), ("width", 7), ("exceptions", 9), ("form", 0)])
def test_a_dictionary_that_does_not_fit_its_block(field, value):
    few = np.random.default_rng(1).integers(-(2**62), 2**62, 10)
    payload = CODEC.encode(FixedVector(few[np.arange(2000) % 10]), PhysicalType.INT64)
    frames_of(payload, 2000)[field][1] = value
    with pytest.raises(CorruptPageError, match="block 1 contradicts its frame"):
        CODEC.check(payload, PhysicalType.INT64, 2000)


def test_any_number_of_a_dictionary_has_a_cell():
    """Ten cells have numbers of four bits: a spoilt number reads one of the ten, and nothing behind the block."""
    few = np.random.default_rng(1).integers(-(2**62), 2**62, 10)
    payload = CODEC.encode(FixedVector(few[np.arange(1024) % 10]), PhysicalType.INT64)
    payload[kernels.FRAME_BYTES : kernels.FRAME_BYTES + 512] = 0xFF
    CODEC.check(payload, PhysicalType.INT64, 1024)
    assert set(CODEC.decode(payload, PhysicalType.INT64, 1024, 0, 1024).values) == {few[9]}


def test_a_form_of_other_pages_is_refused():
    payload = CODEC.encode(FixedVector(np.arange(50) * 7 % 13), PhysicalType.INT64)
    for form in (kernels.DECIMAL, kernels.REAL, 5, 64, 255):
        payload[21] = form
        with pytest.raises(CorruptPageError, match="block 0 contradicts its frame"):
            CODEC.check(payload, PhysicalType.INT64, 50)


def test_a_few_outliers_are_exceptions():
    values = np.arange(1024) % 16
    values[[3, 500, 1023]] = [2**40, 2**62, 2**63 - 1]
    found = come_back(values)
    assert found["exceptions"].tolist() == [3] and found["width"].tolist() == [4]


def test_the_extremes_of_every_width():
    for name in INTEGERS:
        limits = np.iinfo(name)
        come_back(np.array([limits.min, limits.max] * 600, name))


def test_nulls_take_no_bits():
    valid = np.arange(2048) % 3 != 0
    values = np.where(valid, 10**15 + np.arange(2048) % 4, 0)
    assert (come_back(values, valid)["width"] <= 2).all()


def test_one_cell_reads_its_frame_and_nothing_else_of_the_block():
    values = np.random.default_rng(2).integers(0, 1 << 20, 1024)
    payload = CODEC.encode(FixedVector(values), PhysicalType.INT64)
    row = 700
    spoilt = payload.copy()
    kept = {*range(kernels.FRAME_BYTES), *range(byte := kernels.FRAME_BYTES + row * 20 // 8, byte + 4)}
    spoilt[[place for place in range(len(payload)) if place not in kept]] ^= 0xFF
    assert CODEC.gather(spoilt, PhysicalType.INT64, 1024, np.array([row])).values[0] == values[row]


@pytest.mark.parametrize(
    ("field", "value"),
    [("width", 58), ("width", 65), ("width", 9), ("form", 1), ("exceptions", 1025), ("end", 0), ("end", 2**32 - 1)],
)
def test_a_frame_that_does_not_fit_its_block(field, value):
    payload = CODEC.encode(FixedVector(np.arange(2000) % 250), PhysicalType.INT64)
    frames_of(payload, 2000)[field][1] = value
    with pytest.raises(CorruptPageError, match="block 1 contradicts its frame"):
        CODEC.check(payload, PhysicalType.INT64, 2000)


@pytest.mark.parametrize("rows", [(5, 5), (6, 5), (5, 1024), (5, 0xFFFF)])
def test_rows_of_exceptions_rise_inside_the_block(rows):
    values = np.zeros(1024, np.int64)
    values[[5, 6]] = 2**62
    payload = CODEC.encode(FixedVector(values), PhysicalType.INT64)
    payload[24:28].view("<u2")[:] = rows
    with pytest.raises(CorruptPageError, match="block 0 contradicts its frame"):
        CODEC.check(payload, PhysicalType.INT64, 1024)
