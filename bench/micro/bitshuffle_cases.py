"""Bitshuffle beside the two C libraries, all three called from inside compiled loops.

Blocks of 1,024 cells, buffers of 256 KiB or less: source and target fit the second-level cache.
"""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bitshuffle
import bitshuffle.ext
import blosc2  # pyright: ignore[reportMissingImports]
import numba
import numpy as np
from llvmlite import binding
from numba import types

from bench.micro.case import NYALA, Case
from nyala.engine.codecs.bitshuffle import BitshuffleCodec
from nyala.engine.kernels.pages import transpose
from nyala.engine.kernels.simd.simd import address_of
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

BLOCK = 1_024
BLOCKS = 32
PAGE = 65_536


def _external(library: ctypes.CDLL, symbol: str, signature: Any) -> types.ExternalFunction:
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    binding.add_symbol(f"bench_{symbol}", address)
    return types.ExternalFunction(f"bench_{symbol}", signature)


_bitshuffle = ctypes.CDLL(bitshuffle.ext.__file__)
_blosc = ctypes.CDLL(str(Path(blosc2.__path__[0], "lib", "libblosc2.so")))
_C_SIGNATURE = types.int64(types.int64, types.int64, types.int64, types.int64)
_BLOSC_SIGNATURE = types.int32(types.int32, types.int32, types.int64, types.int64)
c_shuffle = _external(_bitshuffle, "bshuf_trans_bit_elem", _C_SIGNATURE)
c_unshuffle = _external(_bitshuffle, "bshuf_untrans_bit_elem", _C_SIGNATURE)
blosc_shuffle = _external(_blosc, "blosc2_bitshuffle", _BLOSC_SIGNATURE)
blosc_unshuffle = _external(_blosc, "blosc2_bitunshuffle", _BLOSC_SIGNATURE)


def nyala_block(shuffle: Any) -> Callable:
    @numba.njit
    def block(source, target, width, scratch):
        shuffle(source, target, BLOCK, width, scratch)

    return block


def bitshuffle_block(shuffle: Any) -> Callable:
    @numba.njit
    def block(source, target, width, scratch):
        shuffle(source, target, BLOCK, width)

    return block


def blosc2_block(shuffle: Any) -> Callable:
    @numba.njit
    def block(source, target, width, scratch):
        shuffle(np.int32(width), np.int32(BLOCK * width), source, target)

    return block


def all_blocks(block: Callable) -> Callable[[np.ndarray, np.ndarray, int, np.ndarray], None]:
    """Return a compiled loop over the buffer, so that no subject pays for a call from Python."""

    @numba.njit
    def loop(source, target, width, scratch):
        for number in range(BLOCKS):
            start = number * BLOCK * width
            block(address_of(source) + start, address_of(target) + start, width, address_of(scratch))

    return loop


ENCODERS = {
    NYALA: all_blocks(nyala_block(transpose.shuffle)),
    "bitshuffle (C)": all_blocks(bitshuffle_block(c_shuffle)),
    "blosc2 (C)": all_blocks(blosc2_block(blosc_shuffle)),
}
DECODERS = {
    NYALA: all_blocks(nyala_block(transpose.unshuffle)),
    "bitshuffle (C)": all_blocks(bitshuffle_block(c_unshuffle)),
    "blosc2 (C)": all_blocks(blosc2_block(blosc_unshuffle)),
}


def cases() -> Iterator[Case]:
    """Shuffling alone, then whole pages with LZ4."""
    for width in (2, 4, 8):
        yield from _transposition(width)
    yield from _pages()


def _transposition(width: int) -> Iterator[Case]:
    size = BLOCKS * BLOCK * width
    cells = np.random.default_rng(width).integers(0, 256, size, dtype=np.uint8)
    shuffled, restored = _aligned(size), _aligned(size)
    scratch = _aligned(transpose.SCRATCH_BYTES)
    source = _aligned(size)
    source[:] = cells

    def call(kernel: Callable, from_: np.ndarray, to: np.ndarray) -> Callable[[], None]:
        return lambda: kernel(from_, to, width, scratch)

    encoders = {subject: call(kernel, source, shuffled) for subject, kernel in ENCODERS.items()}
    decoders = {subject: call(kernel, shuffled, restored) for subject, kernel in DECODERS.items()}
    layouts = set()
    for encode, decode in zip(encoders.values(), decoders.values(), strict=True):
        encode()
        layouts.add(shuffled.tobytes())
        decode()
        assert restored.tobytes() == source.tobytes()
    assert len(layouts) == 1, "the libraries disagree on the layout"
    yield Case(f"bitshuffle int{8 * width} encode", "GB", size / 1e9, encoders)
    yield Case(f"bitshuffle int{8 * width} decode", "GB", size / 1e9, decoders)


def _aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def _pages() -> Iterator[Case]:
    """Timestamps with 10 % jitter: a page of 512 KiB that LZ4 takes to a quarter."""
    codec = BitshuffleCodec()
    values = np.cumsum(np.random.default_rng(1).integers(900, 1_100, PAGE))
    vector = FixedVector(values)
    payload = codec.encode(vector, PhysicalType.INT64)
    packed = bitshuffle.compress_lz4(values, BLOCK)
    codec.check(payload, PhysicalType.INT64, PAGE)
    yield Case(
        "page of timestamps, bitshuffle + LZ4, encode",
        "GB",
        values.nbytes / 1e9,
        {
            NYALA: lambda: codec.encode(vector, PhysicalType.INT64),
            "bitshuffle (C)": lambda: bitshuffle.compress_lz4(values, BLOCK),
        },
    )
    yield Case(
        "page of timestamps, bitshuffle + LZ4, decode",
        "GB",
        values.nbytes / 1e9,
        {
            NYALA: lambda: codec.decode(payload, PhysicalType.INT64, PAGE, 0, PAGE),
            "bitshuffle (C)": lambda: bitshuffle.decompress_lz4(packed, (PAGE,), np.dtype(np.int64), BLOCK),
        },
    )
