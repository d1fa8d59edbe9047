"""Fold long data to 16 bytes of the same CRC-32 (the one of zlib, gzip and Ethernet).

After V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009):
four lanes of 16 bytes are multiplied by x^(512 + 64) and x^512, and then by x^(128 + 64) and x^128, modulo the
polynomial, bits in reflected order. Where one instruction multiplies four lanes at once, four times four of them go
first, by x^(2048 + 64) and x^2048; then these are folded into four.
"""

import numpy as np

from .form import FORM, Form
from .kernel import kernel
from .simd.cpu import HAS_CARRYLESS_PRODUCT, HAS_WIDE_CARRYLESS_PRODUCT

_LANES_LOW, _LANES_HIGH = np.uint64(0x154442BD4), np.uint64(0x1C6E41596)
_WIDE_LOW, _WIDE_HIGH = np.uint64(0x11542778A), np.uint64(0x1322D1430)
_LANE_LOW, _LANE_HIGH = np.uint64(0x1751997D0), np.uint64(0x0CCAA009E)

if FORM is Form.JIT:
    from .simd.carryless_llvm import fold16, fold64

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
