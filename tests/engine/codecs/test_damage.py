"""A page whose checksum is right and whose content is not: an error or other cells, never a crash.

Each payload ends at a page of memory that must not be touched, so a read past it ends the process.
"""

import numpy as np
import pytest

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.vectors.vector import BytesVector

ROWS = 1100
FLIPS = 1500


def try_to_read(codec, payload, physical, rows) -> bool:
    """Read ``payload`` in all ways; return whether it was taken for a page."""
    try:
        codec.check(payload, physical, rows)
        whole = codec.decode(payload, physical, rows, 0, rows)
        part = codec.decode(payload, physical, rows, rows // 3, rows // 2)
        picked = codec.gather(payload, physical, rows, np.arange(rows)[::-7])
    except CorruptPageError as error:
        assert str(error)
        return False
    for vector, count in ((whole, rows), (part, rows // 2 - rows // 3), (picked, -(-rows // 7))):
        assert len(vector) == count
        if isinstance(vector, BytesVector):
            assert (np.diff(vector.offsets) >= 0).all()
            assert 0 <= vector.offsets[0] <= vector.offsets[-1] <= len(vector.data)
    return True


@pytest.mark.parametrize("kind", ["small", "runs"])
def test_flipped_bits(codec, physical, make_page, guarded, kind):
    random = np.random.default_rng(1)
    payload = guarded(codec.encode(make_page(codec, physical, ROWS, kind, 2), physical))
    head = min(24, len(payload))  # directory, counts and widths: where a flip does most
    for i in range(FLIPS):
        place = random.integers(0, head if i % 3 == 0 else len(payload))
        bit = np.uint8(1 << random.integers(0, 8))
        payload[place] ^= bit
        try_to_read(codec, payload, physical, ROWS)
        payload[place] ^= bit
    assert try_to_read(codec, payload, physical, ROWS)


def test_overwritten_words(codec, physical, make_page, guarded):
    random = np.random.default_rng(3)
    payload = guarded(codec.encode(make_page(codec, physical, ROWS, "runs", 4), physical))
    evil = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE]
    for _ in range(500):
        place = random.integers(0, max(1, len(payload) - 4))
        saved = payload[place : place + 4].copy()
        word = np.array([random.choice(evil)], "<u4").view(np.uint8)
        payload[place : place + 4] = word[: len(saved)]
        try_to_read(codec, payload, physical, ROWS)
        payload[place : place + 4] = saved


def test_truncated_and_extended(codec, physical, make_page, guarded):
    payload = codec.encode(make_page(codec, physical, ROWS, "runs", 5), physical)
    lengths = {*range(min(40, len(payload))), *range(0, len(payload), 97), len(payload) - 1}
    for length in lengths:
        assert not try_to_read(codec, guarded(payload[:length]), physical, ROWS)
    longer = np.concatenate([payload, np.zeros(3, np.uint8)])
    assert not try_to_read(codec, guarded(longer), physical, ROWS)


def test_noise(codec, physical, guarded):
    random = np.random.default_rng(6)
    for length in (0, 1, 3, 4, 5, 8, 9, 64, 700, 9000):
        for _ in range(20):
            noise = guarded(random.integers(0, 256, length, dtype=np.uint8))
            try_to_read(codec, noise, physical, ROWS)


def test_another_row_count(codec, physical, make_page, guarded):
    payload = guarded(codec.encode(make_page(codec, physical, ROWS, "random", 8), physical))
    for rows in (0, 1, ROWS - 100, ROWS + 100, 65_536, 65_537, 2**31):
        assert not try_to_read(codec, payload, physical, rows), rows
