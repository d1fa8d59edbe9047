"""Bitshuffle by vectors and by plain integers: the same bytes as the C library's, and back."""

import bitshuffle
import numpy as np
import pytest

from nyala.engine.kernels import transpose

COUNTS = [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 1016, 1023, 1024]
WIDTHS = [1, 2, 4, 8, 16]
VARIANTS = {
    "chosen": (transpose.shuffle, transpose.unshuffle),
    "portable": (transpose.shuffle_portable, transpose.unshuffle_portable),
}


def c_library(cells: np.ndarray, width: int) -> bytes:
    """Shuffle as one block; the library has no 16-byte integers, a complex number is as wide."""
    dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[width]
    return bitshuffle.bitshuffle(cells.view(dtype), 4096).tobytes() if cells.size else b""


def run(kernel, source: np.ndarray, cells: int, width: int) -> np.ndarray:
    scratch = np.zeros(transpose.SCRATCH_BYTES, np.uint8)
    target = np.full(cells * width + 1, 0xA5, np.uint8)
    kernel(source.ctypes.data, target.ctypes.data, cells, width, scratch.ctypes.data)
    assert target[-1] == 0xA5, "wrote past the block"
    return target[:-1]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_equals_the_c_library(variant, width, count):
    shuffle, unshuffle = VARIANTS[variant]
    cells = np.random.default_rng(count).integers(0, 256, count * width, dtype=np.uint8)
    shuffled = run(shuffle, cells, count, width)
    assert shuffled.tobytes() == c_library(cells, width)
    assert run(unshuffle, shuffled, count, width).tobytes() == cells.tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bit_lands_in_its_plane(variant):
    shuffle, _ = VARIANTS[variant]
    cells = np.zeros(64, np.uint32)
    cells[41] = 1 << 19
    shuffled = run(shuffle, cells, 64, 4)
    assert shuffled[19 * 8 + 41 // 8] == 1 << (41 % 8)
    assert np.count_nonzero(shuffled) == 1
