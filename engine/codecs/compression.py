"""Compression of whole pages, on top of their encoding; for columns that are read rarely.

A compressed page has to be decompressed as a whole to read one row of it. Sizes are known before: the page header has
the raw size, its reader limits it, and nothing here allocates more.
"""

import zlib

import lz4.block
import numpy as np
import pyarrow as pa
import zstandard

from ...schemas.cells.encoding import COMPRESSIONS
from ..kernels.pages.lz4 import decompress_block
from ..vectors.memory.memory import address_of, allocate
from .codec import CorruptPageError, require

# On disk in every page header: never reuse or renumber.
NONE, LZ4, ZSTD, ZLIB, SNAPPY = range(5)

ZSTD_LEVEL = 1
"""Higher levels save a few percent more and take several times as long."""


_SNAPPY = pa.Codec("snappy")


def compression_code(name: str) -> int:
    """Return the number of a compression of pages by name. Raises KeyError for an unknown name."""
    if name not in COMPRESSIONS:
        raise KeyError(name)
    return COMPRESSIONS.index(name)


def compression_name(code: int) -> str:
    """Return the name of a compression of pages by number. Raises CorruptPageError for an unknown number."""
    require(0 <= code < len(COMPRESSIONS), f"no compression has the number {code}")
    return COMPRESSIONS[code]


def compress(code: int, payload: bytes | memoryview) -> bytes:
    """Return the ``payload`` of a page (any contiguous bytes) compressed by compression ``code``."""
    if code == LZ4:
        return lz4.block.compress(payload, store_size=False)
    if code == ZSTD:
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(payload)
    if code == ZLIB:
        return zlib.compress(payload)
    if code == SNAPPY:
        return _SNAPPY.compress(payload, asbytes=True)
    assert code == NONE, f"no compression has the number {code}"
    return bytes(payload)


def decompress(code: int, data: np.ndarray, raw_size: int) -> np.ndarray:
    """Return the payload of a page: the ``raw_size`` bytes (uint8) that were compressed to ``data`` (uint8,
    contiguous).

    Raises `CorruptPageError` if ``data`` is damaged or has another number of bytes.
    """
    name = compression_name(code)
    try:
        raw = _DECOMPRESS[code](data, raw_size)
    except (zlib.error, zstandard.ZstdError, OSError) as error:
        raise CorruptPageError(f"the page is not valid {name} data: {error}") from error
    require(raw is not None and len(raw) == raw_size, f"the page does not decompress ({name}) to {raw_size} bytes")
    return raw  # pyright: ignore[reportReturnType]


def _decompress_none(data: np.ndarray, raw_size: int) -> np.ndarray:
    return data


def _decompress_lz4(data: np.ndarray, raw_size: int) -> np.ndarray | None:
    raw = allocate(raw_size, np.uint8)
    written = decompress_block(address_of(data), len(data), address_of(raw), raw_size)
    return raw if written == raw_size else None


def _decompress_zstd(data: np.ndarray, raw_size: int) -> np.ndarray | None:
    # The frame states its size and the library would allocate it, so it is compared first.
    if zstandard.frame_content_size(data.data) != raw_size:
        return None
    return np.frombuffer(zstandard.ZstdDecompressor().decompress(data.data), np.uint8)


def _decompress_zlib(data: np.ndarray, raw_size: int) -> np.ndarray | None:
    stream = zlib.decompressobj()
    raw = stream.decompress(data.data, raw_size + 1)
    return np.frombuffer(raw, np.uint8) if stream.eof else None


def _decompress_snappy(data: np.ndarray, raw_size: int) -> np.ndarray | None:
    if _snappy_raw_size(data) != raw_size:
        return None
    raw = _SNAPPY.decompress(data.data, decompressed_size=raw_size)
    return np.frombuffer(raw, np.uint8)


def _snappy_raw_size(data: np.ndarray) -> int:
    """Return the size at the head of snappy data, a number in groups of 7 bits; -1 if none."""
    size = 0
    for position, byte in enumerate(data[:5].tolist()):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    return -1


_DECOMPRESS = (
    _decompress_none,
    _decompress_lz4,
    _decompress_zstd,
    _decompress_zlib,
    _decompress_snappy,
)
