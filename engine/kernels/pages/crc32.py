"""CRC-32, the one of zlib, gzip and Ethernet: of data that a kernel reads anyway; and long data is folded to 16 bytes
of the same CRC, the rest of which zlib computes.

Short data goes eight bytes at a time, each by a table of its own: M. Kounavis and F. Berry, "A Systematic Approach to
Building High Performance Software-Based CRC Generators" (ISCC 2005). Long data is folded after V. Gopal and others,
"Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009): four lanes of 16 bytes are
multiplied by x^(512 + 64) and x^512, and then by x^(128 + 64) and x^128, modulo the polynomial, bits in reflected
order. Where one instruction multiplies four lanes at once, four times four of them go first, by x^(2048 + 64) and
x^2048; then these are folded into four.
"""

import numpy as np

from ..ahead.form import FORM, Form
from ..ahead.kernel import kernel
from ..simd.cpu import HAS_CARRYLESS_PRODUCT, HAS_WIDE_CARRYLESS_PRODUCT
from ..simd.simd import copy64, load_u8, load_u32, load_u64, store_u32

_LANES_LOW, _LANES_HIGH = np.uint64(0x154442BD4), np.uint64(0x1C6E41596)
_WIDE_LOW, _WIDE_HIGH = np.uint64(0x11542778A), np.uint64(0x1322D1430)
_LANE_LOW, _LANE_HIGH = np.uint64(0x1751997D0), np.uint64(0x0CCAA009E)

_POLYNOMIAL = 0xEDB88320
_ALL_ONES = np.uint64(0xFFFFFFFF)
_WORTH_FOLDING_BYTES = 64
CRC_SCRATCH_BYTES = 64


def _tables() -> np.ndarray:
    """Return the CRC of each byte followed by 0 to 7 zeroes, 256 in each of 8 tables."""
    tables = np.zeros((8, 256), np.uint32)
    bits = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        bits = np.where(bits & 1, (bits >> 1) ^ np.uint32(_POLYNOMIAL), bits >> 1).astype(np.uint32)
    tables[0] = bits
    for i in range(1, 8):
        tables[i] = (tables[i - 1] >> 8) ^ tables[0][tables[i - 1] & 0xFF]
    return tables.reshape(-1)


_TABLES = _tables()

if FORM is Form.JIT:
    from ..simd.carryless_llvm import fold16, fold64

if HAS_CARRYLESS_PRODUCT:

    @kernel
    def fold_crc32(data, block_count, state):
        """Fold ``block_count`` blocks of 64 bytes into the 64 bytes at ``state``, and those into their first 16."""
        for block in range(block_count):
            place = data + 64 * block
            fold16(state, place, _LANES_LOW, _LANES_HIGH)
            fold16(state + 16, place + 16, _LANES_LOW, _LANES_HIGH)
            fold16(state + 32, place + 32, _LANES_LOW, _LANES_HIGH)
            fold16(state + 48, place + 48, _LANES_LOW, _LANES_HIGH)
        fold16(state, state + 16, _LANE_LOW, _LANE_HIGH)
        fold16(state, state + 32, _LANE_LOW, _LANE_HIGH)
        fold16(state, state + 48, _LANE_LOW, _LANE_HIGH)

    @kernel
    def fold_crc32_lane(data, lane_count, state):
        """Fold ``lane_count`` times 16 bytes into the 16 bytes at ``state``."""
        for lane in range(lane_count):
            fold16(state, data + 16 * lane, _LANE_LOW, _LANE_HIGH)


if HAS_WIDE_CARRYLESS_PRODUCT:

    @kernel
    def fold_crc32_wide(data, block_count, state):
        """Fold ``block_count`` blocks of 256 bytes into the 256 bytes at ``state``, and those into their first 64."""
        for block in range(block_count):
            place = data + 256 * block
            fold64(state, place, _WIDE_LOW, _WIDE_HIGH)
            fold64(state + 64, place + 64, _WIDE_LOW, _WIDE_HIGH)
            fold64(state + 128, place + 128, _WIDE_LOW, _WIDE_HIGH)
            fold64(state + 192, place + 192, _WIDE_LOW, _WIDE_HIGH)
        fold64(state, state + 64, _LANES_LOW, _LANES_HIGH)
        fold64(state, state + 128, _LANES_LOW, _LANES_HIGH)
        fold64(state, state + 192, _LANES_LOW, _LANES_HIGH)


@kernel
def _by_tables(data, size, start):
    """Return the CRC of ``size`` bytes, continued from ``start``."""
    crc = np.uint64(start) ^ _ALL_ONES
    place = np.int64(0)
    while size - place >= 8:
        word = load_u64(data + place) ^ crc
        crc = np.uint64(0)
        for i in range(8):
            crc ^= np.uint64(_TABLES[256 * (7 - i) + np.int64(word & np.uint64(0xFF))])
            word >>= np.uint64(8)
        place += 8
    while place < size:
        low = np.int64((crc ^ np.uint64(load_u8(data + place))) & np.uint64(0xFF))
        crc = np.uint64(_TABLES[low]) ^ (crc >> np.uint64(8))
        place += 1
    return np.int64(crc ^ _ALL_ONES)


if HAS_CARRYLESS_PRODUCT:

    @kernel
    def crc32_at(data, size, start, scratch):
        """Return the CRC of ``size`` bytes, continued from ``start``; ``scratch`` are CRC_SCRATCH_BYTES of memory."""
        if size < _WORTH_FOLDING_BYTES:
            return _by_tables(data, size, start)
        copy64(scratch, data)
        store_u32(scratch, np.uint32(np.uint64(load_u32(scratch)) ^ np.uint64(start) ^ _ALL_ONES))
        blocks = size // 64 - 1
        fold_crc32(data + 64, blocks, scratch)
        folded = 64 * (blocks + 1)
        fold_crc32_lane(data + folded, (size - folded) // 16, scratch)
        folded = size & ~np.int64(15)
        crc = _by_tables(scratch, 16, np.int64(_ALL_ONES))  # of everything so far, started with zero bits
        return _by_tables(data + folded, size - folded, crc)

else:

    @kernel
    def crc32_at(data, size, start, scratch):
        """Return the CRC of ``size`` bytes, continued from ``start``."""
        return _by_tables(data, size, start)
