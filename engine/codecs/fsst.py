"""FSST: strings as codes of symbols that are frequent in their page.

Payload, little-endian::

    | symbols u1 | length u1 x symbols | symbol 8 x symbols | ends u4 x blocks | block 0 | ... | 8 zeros |

A block holds 1,024 rows (the last one of a page perhaps fewer) and is decoded alone; its layout is in
`nyala.engine.kernels.pages.fsst`. An end counts from the first byte of block 0. A symbol of fewer than 8 bytes is
followed by anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..kernels.pages import fsst as kernels
from ..vectors.memory.memory import address_of, allocate, allocate_zeroed
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, Vector
from .blocks import END, block_sizes, blocks_of_range, blocks_of_rows, ranges_of_block, row_count_in
from .codec import BLOCK_ROWS, PAGE_ROWS, CorruptPageError, block_count, require

_SAMPLE_BYTES = 24 << 10
_SAMPLED_SHARE = 12
"""Of short pages one string in so many is looked at, but never less than a page of memory."""
_TAIL_BYTES = 8


class FsstCodec:
    """Encode byte strings with up to 255 symbols of up to 8 bytes. A read decodes the mini-blocks it touches."""

    code = 8
    name = "fsst"
    fills_nulls = False

    def __init__(self, symbols: tuple[np.ndarray, int] | None = None) -> None:
        """``symbols`` are those of ``trained``; without them, each page has its own."""
        self._symbols = symbols

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for BYTES."""
        return physical is PhysicalType.BYTES

    def trained(self, vector: BytesVector) -> FsstCodec:
        """Return a codec that encodes every page with the symbols that are frequent in ``vector``: for short pages, as
        to find symbols takes longer than to use them. Strings without a byte have none."""
        return FsstCodec(_train(vector)) if vector.data_bytes else self

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload; at most twice the strings, 8 bytes a row, and 2.5 KB larger."""
        assert isinstance(vector, BytesVector), "FSST stores byte strings"
        assert len(vector) <= PAGE_ROWS, "more rows than a page holds"
        rows = len(vector)
        offsets = np.ascontiguousarray(vector.offsets, np.int32)
        where = address_of(offsets), address_of(vector.data), address_of(vector.data) + len(vector.data)
        coder, symbols = self._symbols or _train(vector)
        head = 1 + (1 + kernels.SYMBOL_BYTES) * symbols
        start = head + END.itemsize * block_count(rows)
        room = start + block_count(rows) * (kernels.HEAD_BYTES + 8) + 8 * rows + 2 * vector.data_bytes + _TAIL_BYTES
        payload = allocate(room, np.uint8)
        payload[0] = symbols
        firsts = offsets[: rows + 1 : BLOCK_ROWS]
        longest = int(max(np.diff(np.append(firsts, offsets[rows])), default=0))
        scratch = allocate(8 * BLOCK_ROWS + 2 * longest + 8, np.uint8)
        place = address_of(payload)
        kernels.write_symbols(address_of(coder), symbols, place + 1)
        size = start + kernels.pack_strings(
            address_of(coder), *where, rows, place + head, place + start, address_of(scratch)
        )
        payload[size : size + _TAIL_BYTES] = 0
        return payload[: size + _TAIL_BYTES]

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check the symbols, the directory, and the lengths of each block."""
        require(len(payload) > _TAIL_BYTES, "the page is too short for a table of symbols")
        symbols = int(payload[0])
        head = _head_bytes(payload)
        require(symbols < kernels.ESCAPE + 1 and len(payload) >= head + _TAIL_BYTES, "its symbols are cut short")
        lengths = payload[1 : 1 + symbols]
        require(((lengths > 0) & (lengths <= kernels.SYMBOL_BYTES)).all(), "a symbol is empty or over 8 bytes")
        block_sizes(payload[head : len(payload) - _TAIL_BYTES], row_count)
        outcome = kernels.check_strings(address_of(payload) + head, row_count)
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
        yield 0, 1
        head = _head_bytes(payload)
        yield 0, head
        ranges = ranges_of_block(payload, head, row_count, row)
        yield next(ranges)
        block = next(ranges)[0]
        lengths = block + kernels.HEAD_BYTES
        yield block, lengths
        width, i = int(payload[lengths - 1]), row % BLOCK_ROWS
        codes = lengths + -(-min(BLOCK_ROWS, row_count - row + i) * width // 8)
        yield lengths, codes
        bits = np.unpackbits(payload[lengths:codes], count=(i + 1) * width, bitorder="little").reshape(i + 1, width)
        before = bits.astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))
        start = codes + int(before[:-1].sum())
        yield start, start + int(before[-1])


def _train(vector: BytesVector) -> tuple[np.ndarray, int]:
    """Return the kernels' coder for the strings of ``vector``, and how many symbols it has."""
    coder = allocate_zeroed(kernels.CODER_BYTES, np.uint8)
    if not vector.data_bytes:
        return coder, 0
    offsets = np.ascontiguousarray(vector.offsets, np.int32)
    where = address_of(offsets), address_of(vector.data), address_of(vector.data) + len(vector.data)
    sample = min(_SAMPLE_BYTES, max(vector.data_bytes // _SAMPLED_SHARE, 4096))
    step = max(1, vector.data_bytes // sample)
    return coder, kernels.train(address_of(coder), *where, len(vector), step)


def _head_bytes(payload: np.ndarray) -> int:
    return 1 + (1 + kernels.SYMBOL_BYTES) * int(payload[0])


def _restore(payload: np.ndarray, row_count: int, blocks: np.ndarray) -> BytesVector:
    """Return the strings of the listed blocks (ascending), end to end."""
    start, head = address_of(payload), _head_bytes(payload)
    which = start + head, row_count, address_of(blocks), len(blocks)
    offsets = allocate(row_count_in(blocks, row_count) + 1, np.int32)
    offsets[0] = 0
    data = allocate(kernels.measure_strings(*which), np.uint8)
    outcome = kernels.unpack_strings(start + 1, int(payload[0]), *which, address_of(offsets) + 4, address_of(data))
    if outcome < 0:
        raise CorruptPageError(f"the codes of block {-1 - outcome} do not decode to its strings")
    return BytesVector(offsets, data)
