"""FSST: symbols for frequent pieces, any bytes at all, and codes that are not those of their strings."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.lineitem import WORDS
from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.fsst import FsstCodec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector

CODEC, BYTES = FsstCodec(), PhysicalType.BYTES


def strings(cells: list[bytes], first: int = 3) -> BytesVector:
    offsets = np.cumsum([first, *map(len, cells)]).astype(np.int32)
    return BytesVector(offsets, np.frombuffer(b"-" * first + b"".join(cells), np.uint8))


def come_back(cells: list[bytes]) -> np.ndarray:
    payload, rows = CODEC.encode(strings(cells), BYTES), len(cells)
    CODEC.check(payload, BYTES, rows)
    for vector, wanted in (
        (CODEC.decode(payload, BYTES, rows, 0, rows), cells),
        (CODEC.gather(payload, BYTES, rows, np.arange(rows)[::-3]), cells[::-3]),
    ):
        data, ends = vector.data.tobytes(), vector.offsets.tolist()
        assert [data[start:end] for start, end in itertools.pairwise(ends)] == wanted
    return payload


def test_frequent_pieces_become_symbols():
    cells = [b"https://example.com/item/%d" % (number * 7919 % 100_000) for number in range(3000)]
    payload = come_back(cells)
    assert len(payload) < sum(map(len, cells)) / 3


def test_words_of_a_text_cut_anywhere_become_symbols():
    """Rounds find first where words are cut badly, and then where they begin."""
    random = np.random.default_rng(0)
    text = " ".join(random.choice(WORDS, 20_000)).encode()
    starts = random.integers(0, len(text) - 40, 10_000).tolist()
    cells = [text[start : start + 10 + start % 30] for start in starts]
    assert len(come_back(cells)) < 0.345 * sum(map(len, cells))


def test_bytes_without_a_pattern_are_not_much_larger():
    random = np.random.default_rng(1)
    cells = [random.bytes(20) for _ in range(3000)]
    assert len(come_back(cells)) < 1.3 * 20 * 3000


@pytest.mark.parametrize(
    "cells", [[], [b""], [b""] * 2000, [b"\0"], [b"\xff" * 9] * 1025, [b"a\0", b"a", b"a\0\0b"] * 400]
)
def test_corners(cells):
    come_back(cells)


def test_a_symbol_never_reaches_past_its_string():
    """``ab`` and ``b`` NUL are frequent, and strings end in the middle of them."""
    come_back([b"ab" * 50, b"b\0" * 50] * 100 + [b"a", b"b", b"xa", b"xb"] * 20)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=60), st.integers(1, 60))
def test_any_strings(cells, times):
    come_back(cells * times)


@settings(deadline=None)
@given(st.lists(st.text("abc\0\u00e4", max_size=12).map(str.encode), min_size=1, max_size=40), st.integers(1, 2000))
def test_text_of_a_small_alphabet(cells, rows):
    come_back([cells[row * 7919 % len(cells)] for row in range(rows)])


def _spoilt(change) -> np.ndarray:
    payload = CODEC.encode(strings([b"some text", b"some other text"] * 100), BYTES)
    change(payload)
    return payload


@pytest.mark.parametrize("length", [0, 9])
def test_lengths_of_symbols_are_checked(length):
    payload = _spoilt(lambda payload: payload.__setitem__(1, length))
    with pytest.raises(CorruptPageError, match="a symbol is empty or over 8 bytes"):
        CODEC.check(payload, BYTES, 200)


def test_a_symbol_of_another_length_is_found_while_decoding():
    payload = _spoilt(lambda payload: payload.__setitem__(1, 1 if payload[1] > 1 else 2))
    CODEC.check(payload, BYTES, 200)
    with pytest.raises(CorruptPageError, match="the codes of block 0 do not decode to its strings"):
        CODEC.decode(payload, BYTES, 200, 0, 200)


def test_a_code_without_a_symbol_is_found_while_decoding():
    payload = _spoilt(lambda payload: payload.__setitem__(-9, 254))
    CODEC.check(payload, BYTES, 200)
    with pytest.raises(CorruptPageError, match="the codes of block 0 do not decode to its strings"):
        CODEC.gather(payload, BYTES, 200, np.array([199]))


def test_an_escape_at_the_end_of_a_string_is_found_while_decoding():
    payload = _spoilt(lambda payload: payload.__setitem__(-9, 255))
    with pytest.raises(CorruptPageError, match="the codes of block 0"):
        CODEC.decode(payload, BYTES, 200, 0, 200)
