"""Bitshuffle by vectors and by plain integers: the planes that numpy cuts, the C library's bytes, and back."""

import numpy as np
import pytest

from nyala.engine.kernels.pages import transpose

COUNTS = [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 1016, 1023, 1024]
WIDTHS = [1, 2, 4, 8, 16]
VARIANTS = {
    "chosen": (transpose.shuffle, transpose.unshuffle),
    "portable": (transpose.shuffle_portable, transpose.unshuffle_portable),
}


def planes(cells: np.ndarray, width: int) -> bytes:
    """Shuffle one block by numpy."""
    whole = cells.size // width // 8 * 8 * width
    bits = np.unpackbits(cells[:whole].reshape(-1, width), axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes() + cells[whole:].tobytes()


def c_library(cells: np.ndarray, width: int) -> bytes:
    """Shuffle one block by the C library; it has no 16-byte integers, a complex number is as wide."""
    bitshuffle = pytest.importorskip("bitshuffle")
    dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[width]
    return bitshuffle.bitshuffle(cells.view(dtype), 4096).tobytes()


def run(kernel, source: np.ndarray, cells: int, width: int) -> np.ndarray:
    scratch = np.zeros(transpose.SCRATCH_BYTES, np.uint8)
    target = np.full(cells * width + 1, 0xA5, np.uint8)
    kernel(source.ctypes.data, target.ctypes.data, cells, width, scratch.ctypes.data)
    assert target[-1] == 0xA5, "wrote past the block"
    return target[:-1]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_planes_and_back(variant, width, count):
    shuffle, unshuffle = VARIANTS[variant]
    cells = np.random.default_rng(count).integers(0, 256, count * width, dtype=np.uint8)
    shuffled = run(shuffle, cells, count, width)
    assert shuffled.tobytes() == planes(cells, width)
    assert run(unshuffle, shuffled, count, width).tobytes() == cells.tobytes()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS[1:])
def test_equals_the_c_library(width, count):
    cells = np.random.default_rng(count).integers(0, 256, count * width, dtype=np.uint8)
    assert run(transpose.shuffle, cells, count, width).tobytes() == c_library(cells, width)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bit_lands_in_its_plane(variant):
    shuffle, _ = VARIANTS[variant]
    cells = np.zeros(64, np.uint32)
    cells[41] = 1 << 19
    shuffled = run(shuffle, cells, 64, 4)
    assert shuffled[19 * 8 + 41 // 8] == 1 << (41 % 8)
    assert np.count_nonzero(shuffled) == 1
