"""Bitshuffle and LZ4: the default of every fixed-width column.

Payload, little-endian::

    | ends u4 x blocks | block 0 | block 1 | ... |

A block holds 1,024 rows (the last one of a page perhaps fewer). Its cells are bitshuffled (see
`nyala.engine.kernels.pages.transpose` for the layout, which is the C library's) and then compressed as one LZ4 block.
If that saves nothing, they are stored uncompressed, and the block is exactly as large as its cells. An end counts from
the first byte of block 0.

Cells of one column mostly differ in their low bits only: their high bit planes are long runs of
equal bytes, which LZ4 shrinks to almost nothing and decodes at memory speed. 8 KB blocks keep both
sides of that in the first-level cache.
"""

from collections.abc import Iterator

import numpy as np

from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector
from .blocks import blocks_of_range, blocks_of_rows, check_packed, loose_cells, loosened, pack, ranges_of_block, unpack
from .codec import check_rows


class BitshuffleCodec:
    """Transpose bits, then LZ4, by mini-blocks. A read decodes the mini-blocks it touches."""

    code = 2
    name = "bitshuffle"
    fills_nulls = False

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for every fixed width."""
        return physical is not PhysicalType.BYTES

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload; at most 4 bytes a mini-block larger than the cells."""
        assert isinstance(vector, FixedVector), "bitshuffle stores fixed widths"
        return pack(np.ascontiguousarray(vector.values, physical.dtype))

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check the directory. Errors inside LZ4 blocks show only when they are decoded."""
        check_packed(payload, physical.width, row_count)

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> FixedVector:
        """Return rows [first, last), a view of the mini-blocks around them."""
        blocks, start = blocks_of_range(first, last, row_count)
        cells = unpack(payload, physical.dtype, row_count, blocks)
        return FixedVector(cells[first - start : last - start])

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> FixedVector:
        """Return the cells at ``rows``."""
        loose = loose_cells(payload, physical.dtype, row_count)
        if loose is not None:
            return FixedVector(loose[check_rows(rows, row_count)])
        blocks, places = blocks_of_rows(rows, row_count)
        return FixedVector(unpack(payload, physical.dtype, row_count, blocks)[places])

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        yield from ranges_of_block(payload, 0, row_count, row, physical.width)

    def loosened(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> np.ndarray | None:
        """Return the payload with uncompressed blocks; None if it is already. Raises as ``decode`` does."""
        if loose_cells(payload, physical.dtype, row_count) is not None:
            return None
        return loosened(payload, physical.dtype, row_count)
