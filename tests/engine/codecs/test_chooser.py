"""Which codec a page gets."""

import numpy as np
import pytest

from nyala.engine.codecs.chooser import MIN_SAVING, candidates_of, choose
from nyala.engine.codecs.codec import PAGE_ROWS, Codec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector

RANDOM = np.random.default_rng(1)
PAGES = {
    "timestamps": (
        1_700_000_000_000_000 + np.arange(PAGE_ROWS) * 1000 + RANDOM.integers(0, 999, PAGE_ROWS),
        "frame_of_reference",
    ),
    "keys": (np.sort(RANDOM.integers(0, 10**11, PAGE_ROWS)), "frame_of_reference"),
    "quantities": (RANDOM.integers(0, 10_000, PAGE_ROWS).astype(np.int32), "frame_of_reference"),
    "long runs": (np.repeat(RANDOM.integers(0, 10**6, 70), 1000)[:PAGE_ROWS], "run_length"),
    "a pattern of bits": (
        RANDOM.integers(0, 16, PAGE_ROWS) | RANDOM.integers(0, 16, PAGE_ROWS) << 40,
        "bitshuffle",
    ),
    "few numbers far apart": (RANDOM.choice([0, 1, 1 << 62], PAGE_ROWS), "frame_of_reference"),
    "small numbers": (RANDOM.integers(0, 7, PAGE_ROWS).astype(np.int8), "bitshuffle"),
    "prices": (np.round(RANDOM.gamma(2, 50, PAGE_ROWS), 2), "alp"),
    "noise": (RANDOM.normal(size=PAGE_ROWS), "alp"),
    "three numbers": (RANDOM.choice([np.pi, -np.e, 1e-300 / 3], PAGE_ROWS), "alp"),
    "random bits": (RANDOM.integers(-(2**63), 2**63 - 1, PAGE_ROWS), "plain"),
    "random bits of 4 bytes": (RANDOM.integers(-(2**31), 2**31 - 1, PAGE_ROWS).astype(np.int32), "plain"),
    "a constant": (np.full(PAGE_ROWS, 7, np.int16), "run_length"),
    "few numbers": (np.array([1, 2, 3]), "plain"),
    "milliseconds": (RANDOM.integers(0, 10**10, PAGE_ROWS) * 1000, "frame_of_reference"),
}


def chosen(values: np.ndarray) -> Codec:
    physical = PhysicalType(values.dtype.name)
    return choose(FixedVector(values), physical, candidates_of(physical))


@pytest.mark.parametrize("name", PAGES)
def test_the_codec_of_a_page(name):
    values, expected = PAGES[name]
    assert chosen(values).name == expected


@pytest.mark.parametrize("name", PAGES)
def test_no_candidate_makes_the_whole_page_much_smaller(name):
    values, _ = PAGES[name]
    physical, cells = PhysicalType(values.dtype.name), FixedVector(values)
    size = len(chosen(values).encode(cells, physical))
    least = min(len(codec.encode(cells, physical)) for codec in candidates_of(physical))
    assert size * (1 - MIN_SAVING) <= least * 1.02


@pytest.mark.parametrize("rows", [0, 1, 1023, 1024, 5000])
def test_short_pages(rows):
    for physical in PhysicalType:
        if physical is not PhysicalType.BYTES:
            cells = FixedVector(np.zeros(rows, physical.dtype), np.zeros(rows, np.bool_) if rows % 2 else None)
            assert choose(cells, physical, candidates_of(physical)).supports(physical)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (lambda row: b"%05d.example.com/item" % (row * 7919 % 65_536), "fsst"),
        (lambda row: b"a rather long prefix of sorted strings/%08d" % row, "prefix"),
        (lambda row: RANDOM.bytes(20), "plain"),
        (lambda row: b"", "fsst"),
    ],
    ids=["urls", "sorted", "noise", "nothing"],
)
def test_the_codec_of_strings(cell, expected):
    cells = [cell(row) for row in range(8192)]
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    vector = BytesVector(offsets, np.frombuffer(b"".join(cells), np.uint8))
    assert choose(vector, PhysicalType.BYTES, candidates_of(PhysicalType.BYTES)).name == expected


def test_few_strings_are_plain():
    cells = BytesVector(np.arange(0, 10 * 101, 10, dtype=np.int32), np.full(1000, 65, np.uint8))
    assert choose(cells, PhysicalType.BYTES, candidates_of(PhysicalType.BYTES)).name == "plain"
