"""Bit-packed numbers, of which any is read alone: frame of reference for integers, ALP for floating point.

Payload, little-endian::

    | frame x blocks | block 0 | block 1 | ... | 8 zeros |

A block holds 1,024 rows (the last one of a page perhaps fewer); frames and blocks are drawn in
`nyala.engine.kernels.pages.frames` and `nyala.engine.kernels.pages.decimals`. Under NULL stands whatever takes no bits.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..kernels.pages import frame_pages as pages
from ..kernels.pages import frames as kernels
from ..vectors.memory.memory import address_of, address_or_0, allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector
from .codec import BLOCK_ROWS, PAGE_ROWS, CorruptPageError, block_count, check_range, check_rows, require

_FRAME = np.dtype([("line", "<i8", 2), ("end", "<u4"), ("width", "u1"), ("form", "u1"), ("exceptions", "<u2")])


class _FramesCodec:
    """A page of blocks with frames. A read of one cell reads nothing but its block's frame beside it."""

    fills_nulls = True
    _physicals: tuple[PhysicalType, ...]
    _forms: tuple[int, ...]
    _pack: Callable[..., int]

    def supports(self, physical: PhysicalType) -> bool:
        """Return whether the codec takes cells of this type."""
        return physical in self._physicals

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload; at most 24 bytes a mini-block and 8 bytes larger than cells of 8 bytes."""
        assert isinstance(vector, FixedVector), "frames hold cells of a fixed width"
        cells = np.ascontiguousarray(vector.values, physical.dtype)
        valid = None if vector.valid is None else np.ascontiguousarray(vector.valid, np.bool_)
        assert len(cells) <= PAGE_ROWS, "more rows than a page holds"
        frames = kernels.FRAME_BYTES * block_count(len(cells))
        payload = allocate(frames + 8 * len(cells) + kernels.TAIL_BYTES, np.uint8)
        scratch = np.empty(pages.SCRATCH_BYTES, np.uint8)
        start = address_of(payload)
        size = type(self)._pack(
            address_of(cells), len(cells), physical.width, address_or_0(valid), start, address_of(scratch)
        )
        payload[size : size + kernels.TAIL_BYTES] = 0
        return payload[: size + kernels.TAIL_BYTES]

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Compare each block with its frame, and the blocks with the page."""
        check_frames(payload, physical, row_count, self._forms)

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> FixedVector:
        """Return rows [first, last), a view of the mini-blocks around them."""
        check_range(first, last, row_count)
        start, end = first // BLOCK_ROWS, block_count(last)
        cells = allocate(max(min(end * BLOCK_ROWS, row_count) - start * BLOCK_ROWS, 0), physical.dtype)
        scratch = np.empty(pages.SCRATCH_BYTES, np.uint8)
        pages.unpack_frames(
            address_of(payload), row_count, physical.width, start, end, address_of(cells), address_of(scratch)
        )
        return FixedVector(cells[first - start * BLOCK_ROWS : last - start * BLOCK_ROWS])

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> FixedVector:
        """Return the cells at ``rows``; decodes no others."""
        rows = check_rows(rows, row_count)
        cells = allocate(len(rows), physical.dtype)
        pages.gather_frames(
            address_of(payload), row_count, physical.width, address_of(rows), len(rows), address_of(cells)
        )
        return FixedVector(cells)

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``."""
        number, size = row // BLOCK_ROWS, kernels.FRAME_BYTES
        first = size * max(number - 1, 0)
        yield first, size * (number + 1)
        frames = payload[first : size * (number + 1)].view(_FRAME)
        frame, ends = frames[-1], frames["end"].tolist()
        start = size * block_count(row_count)
        end = start + ends[-1] + kernels.TAIL_BYTES
        start += ends[0] if number else 0
        if frame["form"] != kernels.DICTIONARY and not frame["exceptions"]:
            start += (row - number * BLOCK_ROWS) * int(frame["width"]) >> 3
            end = start + kernels.TAIL_BYTES
        yield start, min(end, len(payload))


class FrameOfReferenceCodec(_FramesCodec):
    """Pack integers of up to 8 bytes, as their distances from a line, as steps, or as few distinct ones."""

    code = 6
    name = "frame_of_reference"
    _physicals = (PhysicalType.INT8, PhysicalType.INT16, PhysicalType.INT32, PhysicalType.INT64)
    _forms = (kernels.LINE, kernels.STEPS, kernels.DICTIONARY)
    _pack = staticmethod(pages.pack_frames)


class AlpCodec(_FramesCodec):
    """Pack floating point numbers as the decimals that they were; blocks of others as the integers of their bits."""

    code = 7
    name = "alp"
    _physicals = (PhysicalType.FLOAT32, PhysicalType.FLOAT64)
    _forms = (kernels.LINE, kernels.STEPS, kernels.DECIMAL, kernels.REAL, kernels.DICTIONARY)
    _pack = staticmethod(pages.pack_reals)


def check_frames(payload: np.ndarray, physical: PhysicalType, row_count: int, forms: Sequence[int]) -> None:
    """Raise `CorruptPageError` unless frames and blocks fit each other and fill the payload."""
    require(row_count <= PAGE_ROWS, f"{row_count} rows are too many for a page")
    blocks = block_count(row_count)
    least = kernels.FRAME_BYTES * blocks + kernels.TAIL_BYTES
    require(len(payload) >= least, f"{len(payload)} bytes are too few for {row_count} rows")
    allowed = sum(1 << form for form in forms)
    outcome = kernels.check_frames(address_of(payload), len(payload), row_count, physical.width, allowed)
    if outcome < -blocks:
        raise CorruptPageError("the blocks do not fill the page")
    if outcome < 0:
        raise CorruptPageError(f"block {-1 - outcome} contradicts its frame")
