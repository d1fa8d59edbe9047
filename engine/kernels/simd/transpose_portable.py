"""Bit transposition in plain integers, for processors without wide byte shuffles.

The unit is eight words of 8 bytes: word j holds one byte of cells j, 8 + j, 16 + j ... 56 + j. The
butterflies of Hacker's Delight (section 7-3), run over the eight words instead of inside one, turn
them into the eight bit planes of these 64 cells, and back: the transposition is its own inverse.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from .simd import load_u8, load_u64, store_u8, store_u64

_ODD_BITS = np.uint64(0x5555555555555555)
_ODD_PAIRS = np.uint64(0x3333333333333333)
_ODD_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)


@inline
def _trade(low, high, mask, shift):
    """Swap the bits of ``low`` above ``mask`` with the bits of ``high`` under it."""
    change = ((low >> shift) ^ high) & mask
    return low ^ (change << shift), high ^ change


@kernel
def transpose_words(words: np.ndarray) -> None:
    """Without vector instructions, trade bit j of every byte of word k with bit k of word j, in eight uint64."""
    for k in range(0, 8, 2):
        words[k], words[k + 1] = _trade(words[k], words[k + 1], _ODD_BITS, np.uint64(1))
    for k in (0, 1, 4, 5):
        words[k], words[k + 2] = _trade(words[k], words[k + 2], _ODD_PAIRS, np.uint64(2))
    for k in range(4):
        words[k], words[k + 4] = _trade(words[k], words[k + 4], _ODD_NIBBLES, np.uint64(4))


@kernel
def shuffle_tile_portable(source: int, target: int, plane_stride: int, width: int, words: np.ndarray) -> None:
    """Without vector instructions, shuffle 64 cells of ``width`` bytes; ``words`` is room for eight uint64."""
    for byte in range(width):
        for j in range(8):
            word = np.uint64(0)
            for i in range(8):
                cell = load_u8(source + (8 * i + j) * width + byte)
                word |= np.uint64(cell) << np.uint64(8 * i)
            words[j] = word
        transpose_words(words)
        for k in range(8):
            store_u64(target + (8 * byte + k) * plane_stride, words[k])


@kernel
def unshuffle_tile_portable(source: int, target: int, plane_stride: int, width: int, words: np.ndarray) -> None:
    """Without vector instructions, restore 64 cells of ``width`` bytes; ``words`` is room for eight uint64."""
    for byte in range(width):
        for k in range(8):
            words[k] = load_u64(source + (8 * byte + k) * plane_stride)
        transpose_words(words)
        for j in range(8):
            for i in range(8):
                cell = words[j] >> np.uint64(8 * i)
                store_u8(target + (8 * i + j) * width + byte, np.uint8(cell & np.uint64(255)))
