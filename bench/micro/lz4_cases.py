"""LZ4 decoding: all units of a buffer in one kernel call, or one call a unit through Python."""

from collections.abc import Iterator

import bitshuffle
import lz4.block
import numba
import numpy as np
import pyarrow as pa

from bench.micro.case import NYALA, Case
from nyala.engine.kernels.pages.lz4 import decompress_block
from nyala.engine.kernels.simd.simd import address_of

TOTAL = 256 << 10


@numba.njit(nogil=True)
def decode_units(source, ends, unit, target):
    start = 0
    for i in range(ends.size):
        place = address_of(target) + i * unit
        if decompress_block(address_of(source) + start, ends[i] - start, place, unit) != unit:
            return -1
        start = ends[i]
    return 0


def cases() -> Iterator[Case]:
    """Text and shuffled timestamps, in units of a mini-block and of 64 KiB."""
    timestamps = np.cumsum(np.random.default_rng(1).integers(900, 1_100, TOTAL // 8))
    contents = {"text": _text(), "shuffled timestamps": bitshuffle.bitshuffle(timestamps, 1_024).view(np.uint8)}
    for content, raw in contents.items():
        for unit in (8 << 10, 64 << 10):
            yield _case(f"LZ4 decode, {content}, {unit >> 10} KiB", raw, unit)


def _text() -> np.ndarray:
    random = np.random.default_rng(2)
    words = [bytes(random.integers(97, 123, random.integers(3, 10), dtype=np.uint8)) for _ in range(2_000)]
    chosen = random.zipf(1.3, TOTAL // 4) % len(words)
    return np.frombuffer(b" ".join(words[i] for i in chosen)[:TOTAL], np.uint8)


def _case(name: str, raw: np.ndarray, unit: int) -> Case:
    units = [
        lz4.block.compress(raw[start : start + unit].tobytes(), store_size=False) for start in range(0, TOTAL, unit)
    ]
    ends = np.cumsum([len(packed) for packed in units])
    source, target = np.frombuffer(b"".join(units), np.uint8), np.zeros(TOTAL, np.uint8)
    codec = pa.Codec("lz4_raw")
    assert decode_units(source, ends, unit, target) == 0 and (target == raw).all()
    return Case(
        name,
        "GB",
        TOTAL / 1e9,
        {
            NYALA: lambda: decode_units(source, ends, unit, target),
            "lz4.block": lambda: [lz4.block.decompress(packed, uncompressed_size=unit) for packed in units],
            "pyarrow": lambda: [codec.decompress(packed, unit) for packed in units],
        },
    )
