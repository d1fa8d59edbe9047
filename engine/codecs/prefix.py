"""Prefix: each string as the length it shares with the one before, and the rest. For sorted strings.

Payload, little-endian::

    | ends u4 x blocks | block 0 | block 1 | ... |

A block holds 1,024 rows (the last one of a page perhaps fewer) and is decoded alone; its layout is
in `nyala.engine.kernels.pages.prefix`. An end counts from the first byte of block 0.
"""

from collections.abc import Iterator

import numpy as np

from ..kernels.pages import prefix as kernels
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, Vector
from .blocks import END, block_sizes, blocks_of_range, blocks_of_rows, ranges_of_block, row_count_in
from .codec import PAGE_ROWS, CorruptPageError, block_count


class PrefixCodec:
    """Front-code byte strings by mini-blocks. A read decodes the mini-blocks it touches."""

    code = 5
    name = "prefix"
    fills_nulls = False

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for BYTES."""
        return physical is PhysicalType.BYTES

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload; at most 5 bytes a row larger than the strings."""
        assert isinstance(vector, BytesVector), "prefix stores byte strings"
        assert len(vector) <= PAGE_ROWS, "more rows than a page holds"
        offsets = np.ascontiguousarray(vector.offsets, np.int32)
        blocks = block_count(len(vector))
        head = END.itemsize * blocks
        size = head + blocks + 5 * len(vector) + vector.data_bytes
        payload = allocate(size + kernels.COPY_SLACK_BYTES, np.uint8)
        start, data = address_of(payload), address_of(vector.data)
        data_end = data + len(vector.data)
        packed = kernels.pack_blocks(address_of(offsets), data, data_end, len(vector), start, start + head)
        return payload[: head + packed]

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check the directory and all lengths."""
        block_sizes(payload, row_count)
        outcome = kernels.check_blocks(address_of(payload), row_count)
        if outcome < 0:
            raise CorruptPageError(f"the lengths in block {-1 - outcome} contradict each other")

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> BytesVector:
        """Return rows [first, last), a view of the mini-blocks around them."""
        blocks, start = blocks_of_range(first, last, row_count)
        return _restore(payload, row_count, blocks).slice(first - start, last - start)

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> BytesVector:
        """Return the strings at ``rows``."""
        blocks, places = blocks_of_rows(rows, row_count)
        return _restore(payload, row_count, blocks).take(places)

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        yield from ranges_of_block(payload, 0, row_count, row)


def _restore(payload: np.ndarray, row_count: int, blocks: np.ndarray) -> BytesVector:
    """Return the strings of the listed blocks (ascending), end to end."""
    start, numbers = address_of(payload), address_of(blocks)
    offsets = allocate(row_count_in(blocks, row_count) + 1, np.int32)
    total = kernels.measure_blocks(start, row_count, numbers, len(blocks), address_of(offsets))
    data = allocate(total, np.uint8)
    kernels.restore_blocks(start, start + len(payload), row_count, numbers, len(blocks), address_of(data))
    return BytesVector(offsets, data)
