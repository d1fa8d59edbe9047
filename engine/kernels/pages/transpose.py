"""Bitshuffle: the bits of equal weight of many cells side by side, so that LZ4 finds runs of zeros.

The layout inside one block is that of the C library (github.com/kiyo-masui/bitshuffle), to the bit::

    plane 0 | plane 1 | ... | plane 8 width - 1 | last cells

A block of n cells has 8 x width planes of n // 8 bytes; bit i of plane 8 b + k is bit k of byte b
of cell i. The last n % 8 cells stand behind the planes, as they are.

Keep blocks at 4,096 cells or fewer: with longer planes all stores of one tile fall into the same
few sets of the first-level cache, and shuffling slows down tenfold.
"""

import numpy as np

from ..ahead.form import FORM, Form
from ..ahead.kernel import inline, kernel
from ..simd.cpu import HAS_WIDE_VECTORS
from ..simd.simd import copy_bytes, load_u8, store_u8, view_u64
from ..simd.transpose_portable import shuffle_tile_portable, unshuffle_tile_portable

SCRATCH_BYTES = 64
"""Room that the portable transposition needs."""

VECTORIZED = HAS_WIDE_VECTORS
"""Whether `shuffle` and `unshuffle` use vectors of 64 bytes."""


@inline
def _transpose_8x8(word):
    """Trade bit j of byte k with bit k of byte j (Hacker's Delight, section 7-3)."""
    change = (word ^ (word >> np.uint64(7))) & np.uint64(0x00AA00AA00AA00AA)
    word = word ^ change ^ (change << np.uint64(7))
    change = (word ^ (word >> np.uint64(14))) & np.uint64(0x0000CCCC0000CCCC)
    word = word ^ change ^ (change << np.uint64(14))
    change = (word ^ (word >> np.uint64(28))) & np.uint64(0x00000000F0F0F0F0)
    return word ^ change ^ (change << np.uint64(28))


@kernel
def shuffle_tail(source: int, target: int, cell_count: int, width: int) -> None:
    """Bitshuffle what is left of a page's cells after the last whole tile of 64."""
    stride = cell_count >> 3
    for group in range(stride & ~7, stride):
        for byte in range(width):
            word = np.uint64(0)
            for i in range(8):
                cell = load_u8(source + (8 * group + i) * width + byte)
                word |= np.uint64(cell) << np.uint64(8 * i)
            word = _transpose_8x8(word)
            for k in range(8):
                bits = np.uint8((word >> np.uint64(8 * k)) & np.uint64(255))
                store_u8(target + (8 * byte + k) * stride + group, bits)
    planes = 8 * stride * width
    copy_bytes(target + planes, source + planes, (cell_count & 7) * width)


@kernel
def unshuffle_tail(source: int, target: int, cell_count: int, width: int) -> None:
    """Restore what is left of a page's bitshuffled cells after the last whole tile of 64."""
    stride = cell_count >> 3
    for group in range(stride & ~7, stride):
        for byte in range(width):
            word = np.uint64(0)
            for k in range(8):
                bits = load_u8(source + (8 * byte + k) * stride + group)
                word |= np.uint64(bits) << np.uint64(8 * k)
            word = _transpose_8x8(word)
            for i in range(8):
                cell = np.uint8((word >> np.uint64(8 * i)) & np.uint64(255))
                store_u8(target + (8 * group + i) * width + byte, cell)
    planes = 8 * stride * width
    copy_bytes(target + planes, source + planes, (cell_count & 7) * width)


@kernel
def shuffle_portable(source: int, target: int, cell_count: int, width: int, scratch: int) -> None:
    """Bitshuffle a page's cells as `shuffle` does, without wide vectors."""
    words = view_u64(scratch, 8)
    stride = cell_count >> 3
    for tile in range(cell_count >> 6):
        shuffle_tile_portable(source + 64 * width * tile, target + 8 * tile, stride, width, words)
    shuffle_tail(source, target, cell_count, width)


@kernel
def unshuffle_portable(source: int, target: int, cell_count: int, width: int, scratch: int) -> None:
    """Restore a page's bitshuffled cells as `unshuffle` does, without wide vectors."""
    words = view_u64(scratch, 8)
    stride = cell_count >> 3
    for tile in range(cell_count >> 6):
        unshuffle_tile_portable(source + 8 * tile, target + 64 * width * tile, stride, width, words)
    unshuffle_tail(source, target, cell_count, width)


if VECTORIZED and FORM is Form.JIT:
    from ..simd.transpose_llvm import make_shuffle_tile, make_unshuffle_tile

    _shuffle_tile1 = make_shuffle_tile(1)
    _shuffle_tile2 = make_shuffle_tile(2)
    _shuffle_tile4 = make_shuffle_tile(4)
    _shuffle_tile8 = make_shuffle_tile(8)
    _shuffle_tile16 = make_shuffle_tile(16)
    _unshuffle_tile1 = make_unshuffle_tile(1)
    _unshuffle_tile2 = make_unshuffle_tile(2)
    _unshuffle_tile4 = make_unshuffle_tile(4)
    _unshuffle_tile8 = make_unshuffle_tile(8)
    _unshuffle_tile16 = make_unshuffle_tile(16)

if VECTORIZED:

    @kernel
    def shuffle(source: int, target: int, cell_count: int, width: int, scratch: int) -> None:
        """Shuffle one block of cells of 1, 2, 4, 8 or 16 bytes; ``scratch`` is SCRATCH_BYTES."""
        stride = cell_count >> 3
        tiles = cell_count >> 6
        if width == 8:
            for tile in range(tiles):
                _shuffle_tile8(source + 512 * tile, target + 8 * tile, stride)
        elif width == 4:
            for tile in range(tiles):
                _shuffle_tile4(source + 256 * tile, target + 8 * tile, stride)
        elif width == 2:
            for tile in range(tiles):
                _shuffle_tile2(source + 128 * tile, target + 8 * tile, stride)
        elif width == 1:
            for tile in range(tiles):
                _shuffle_tile1(source + 64 * tile, target + 8 * tile, stride)
        else:
            for tile in range(tiles):
                _shuffle_tile16(source + 1024 * tile, target + 8 * tile, stride)
        shuffle_tail(source, target, cell_count, width)

    @kernel
    def unshuffle(source: int, target: int, cell_count: int, width: int, scratch: int) -> None:
        """Restore one block of cells of 1, 2, 4, 8 or 16 bytes; ``scratch`` is SCRATCH_BYTES."""
        stride = cell_count >> 3
        tiles = cell_count >> 6
        if width == 8:
            for tile in range(tiles):
                _unshuffle_tile8(source + 8 * tile, target + 512 * tile, stride)
        elif width == 4:
            for tile in range(tiles):
                _unshuffle_tile4(source + 8 * tile, target + 256 * tile, stride)
        elif width == 2:
            for tile in range(tiles):
                _unshuffle_tile2(source + 8 * tile, target + 128 * tile, stride)
        elif width == 1:
            for tile in range(tiles):
                _unshuffle_tile1(source + 8 * tile, target + 64 * tile, stride)
        else:
            for tile in range(tiles):
                _unshuffle_tile16(source + 8 * tile, target + 1024 * tile, stride)
        unshuffle_tail(source, target, cell_count, width)

else:
    shuffle = shuffle_portable
    unshuffle = unshuffle_portable
