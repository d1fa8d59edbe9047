"""Which codec a page of numbers gets."""

import numpy as np
import pytest

from nyala.engine.codecs.chooser import MIN_SAVING, candidates_of, choose
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

RANDOM = np.random.default_rng(1)
PAGES = {
    "timestamps": (
        1_700_000_000_000_000 + np.arange(PAGE_ROWS) * 1000 + RANDOM.integers(0, 999, PAGE_ROWS),
        "frame_of_reference",
    ),
    "keys": (np.sort(RANDOM.integers(0, 10**11, PAGE_ROWS)), "frame_of_reference"),
    "quantities": (RANDOM.integers(0, 10_000, PAGE_ROWS).astype(np.int32), "frame_of_reference"),
    "long runs": (np.repeat(RANDOM.integers(0, 10**6, 70), 1000)[:PAGE_ROWS], "run_length"),
    "a pattern of bits": (RANDOM.choice([0, 1 << 62], PAGE_ROWS), "bitshuffle"),
    "small numbers": (RANDOM.integers(0, 7, PAGE_ROWS).astype(np.int8), "bitshuffle"),
    "prices": (np.round(RANDOM.gamma(2, 50, PAGE_ROWS), 2), "alp"),
    "noise": (RANDOM.normal(size=PAGE_ROWS), "bitshuffle"),
    "two numbers": (RANDOM.choice([np.pi, -np.pi], PAGE_ROWS), "bitshuffle"),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_codec_of_a_page(name):
    values, expected = PAGES[name]
    assert choose(FixedVector(values), PhysicalType(values.dtype.name)).name == expected


@pytest.mark.parametrize("name", PAGES)
def test_no_candidate_makes_the_whole_page_much_smaller(name):
    values, _ = PAGES[name]
    physical, cells = PhysicalType(values.dtype.name), FixedVector(values)
    chosen = len(choose(cells, physical).encode(cells, physical))
    least = min(len(codec.encode(cells, physical)) for codec in candidates_of(physical))
    assert chosen * (1 - MIN_SAVING) <= least * 1.02


@pytest.mark.parametrize("rows", [0, 1, 1023, 1024, 5000])
def test_short_pages(rows):
    for physical in PhysicalType:
        if physical is not PhysicalType.BYTES:
            cells = FixedVector(np.zeros(rows, physical.dtype), np.zeros(rows, np.bool_) if rows % 2 else None)
            assert choose(cells, physical).supports(physical)
