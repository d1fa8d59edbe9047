"""Whole pages compressed: sizes are believed only after they are compared."""

import contextlib

import numpy as np
import pytest

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.compression import (
    compress,
    compression_code,
    compression_name,
    decompress,
)
from nyala.schemas.cells.encoding import COMPRESSIONS

PAGES = {
    "empty": np.zeros(0, np.uint8),
    "one byte": np.ones(1, np.uint8),
    "text": np.tile(np.arange(100, dtype=np.uint8), 700),
    "noise": np.random.default_rng(1).integers(0, 256, 70_000, dtype=np.uint8),
}
CODES = range(len(COMPRESSIONS))


def compressed(code: int, page: np.ndarray) -> np.ndarray:
    return np.frombuffer(compress(code, page.data), np.uint8).copy()


def test_numbers_on_disk_never_change():
    assert [compression_name(code) for code in range(5)] == ["none", "lz4", "zstd", "zlib", "snappy"]
    assert [compression_code(name) for name in COMPRESSIONS] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        compression_code("brotli")
    with pytest.raises(CorruptPageError):
        compression_name(5)
    with pytest.raises(CorruptPageError):
        decompress(-1, PAGES["text"], 3)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", PAGES)
def test_round_trip(code, name):
    page = PAGES[name]
    assert decompress(code, compressed(code, page), len(page)).tobytes() == page.tobytes()


@pytest.mark.parametrize("code", CODES)
def test_another_size_than_stated_is_corruption(code):
    data = compressed(code, PAGES["text"])
    for size in (0, 1, 69_999, 70_001, 2**30):
        with pytest.raises(CorruptPageError):
            decompress(code, data, size)


@pytest.mark.parametrize("code", [code for code in CODES if code])
def test_damage_is_corruption_or_other_bytes_of_the_same_size(code):
    random = np.random.default_rng(code)
    data = compressed(code, PAGES["text"])
    for length in (0, 1, 2, 5, len(data) // 2, len(data) - 1):
        with pytest.raises(CorruptPageError):
            decompress(code, data[:length], 70_000)
    for _ in range(500):
        place, bit = random.integers(len(data)), np.uint8(1 << random.integers(8))
        data[place] ^= bit
        with contextlib.suppress(CorruptPageError):
            assert len(decompress(code, data, 70_000)) == 70_000
        data[place] ^= bit
